/**
 * Prepare formulas for the Markdown parser: `\( \)` and `\[ \]` become dollars, and dollars that are money are escaped.
 * A dollar opens a formula only before, and closes it only after, something that is not a space; none closes before a digit.
 * Code is left alone. Pure.
 */
export function withFormulas(text: string): string {
  if (!/[$]|\\[([]/.test(text)) return text;
  return splitCode(text).map((part, at) => (at % 2 ? part : inText(part))).join("");
}

/** Text and code by turns, beginning with text. */
function splitCode(text: string): string[] {
  return text.split(/((?:^|\n) {0,3}(`{3,}|~{3,})[^\n]*\n[\s\S]*?(?:\n {0,3}\2[`~]*(?=\n|$)|$)|(?<!`)(`+)(?!`)[\s\S]*?(?<!`)\3(?!`))/)
    .filter((_, at) => at % 4 < 2);
}

const FORMULA = new RegExp(
  [
    String.raw`\\\\|\\\$`, // an escaped backslash or dollar stays
    String.raw`\$\$([\s\S]+?)\$\$`,
    String.raw`\\\[([\s\S]+?)\\\]`,
    String.raw`\\\(((?:[^\n]|\n(?!\s*\n))+?)\\\)`,
    String.raw`\$(?![\s$])((?:[^$\n\\]|\\[^\n]|\n(?!\s*\n))*?(?<!\s))\$(?!\d)`,
    String.raw`\$`,
  ].join("|"),
  "g",
);

function inText(text: string): string {
  return text.replace(FORMULA, (whole, display?: string, bracket?: string, inline?: string, dollar?: string) => {
    if (display !== undefined) return shown(display);
    if (bracket !== undefined) return shown(bracket);
    if (inline !== undefined) return `$${inline.trim()}$`;
    if (dollar) return whole;
    return whole === "$" ? "\\$" : whole;
  });
}

/** A formula on lines of its own, as the parser wants it. Blank lines would end it. */
const shown = (formula: string) => `\n\n$$\n${formula.trim().replace(/\n\s*\n/g, "\n")}\n$$\n\n`;
