/**
 * Split Markdown into independent blocks. While an answer streams, only the last block is parsed again.
 * A block ends at a blank line outside a code fence, before a line that starts a new block. Pure.
 */
export function blocksOf(text: string): string[] {
  if (/^ {0,3}\[[^\]\n]+\]:/m.test(text)) return [text]; // link definitions apply to the whole text
  const blocks: string[] = [];
  let lines: string[] = [];
  let fence: string | null = null;
  let isAfterBlank = false;
  for (const line of text.split("\n")) {
    if (fence === null && isAfterBlank && lines.length && beginsNew(line)) {
      blocks.push(lines.join("\n"));
      lines = [];
    }
    fence = fenceAfter(fence, line);
    isAfterBlank = line.trim() === "";
    lines.push(line);
  }
  if (lines.some((line) => line.trim())) blocks.push(lines.join("\n"));
  return blocks;
}

/** Whether a line is not a list item, not indented and not blank. */
const beginsNew = (line: string) => /^[^\s]/.test(line) && !/^([-*+]|\d{1,9}[.)])(\s|$)/.test(line);

/** The marker of the code fence that is open after a line, or null. */
function fenceAfter(fence: string | null, line: string): string | null {
  if (line.trim() === "$$" && (fence === null || fence === "$$")) return fence === null ? "$$" : null; // a formula
  const marker = /^ {0,3}(`{3,}|~{3,})(.*)$/.exec(line);
  if (!marker) return fence;
  const [, marks, rest] = marker as unknown as [string, string, string];
  if (fence === null) return marks[0] === "`" && rest.includes("`") ? null : marks;
  const closes = marks[0] === fence[0] && marks.length >= fence.length && rest.trim() === "";
  return closes ? null : fence;
}
