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

export interface TypedPart {
  text: string;
  isCode: boolean;
  language?: string;
}

/** A person's own message: code between fences apart from the rest. A fence that is never closed is text. */
export function typedParts(text: string): TypedPart[] {
  const parts: TypedPart[] = [];
  let lines: string[] = [];
  let fence: string | null = null;
  const endText = () => {
    if (lines.some((line) => line.trim())) parts.push({ text: lines.join("\n"), isCode: false });
    lines = [];
  };
  for (const line of text.split("\n")) {
    const after: string | null = line.trim() === "$$" ? fence : fenceAfter(fence, line); // formulas stay as they were typed
    if (fence === null && after !== null) {
      endText();
      lines = [line];
    } else if (fence !== null && after === null) {
      parts.push({ text: lines.slice(1).join("\n"), isCode: true, language: lines[0]!.replace(/^\s*[`~]+/, "").trim() || undefined });
      lines = [];
    } else lines.push(line);
    fence = after;
  }
  endText();
  return parts;
}
