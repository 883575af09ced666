/** Text offsets. The server counts code points, as Python does; JavaScript counts UTF-16 units. */

export function codePoints(text: string): number {
  let count = 0;
  for (let at = 0; at < text.length; at++) {
    const unit = text.charCodeAt(at);
    if (unit < 0xdc00 || unit > 0xdfff) count++; // skip the second half of a surrogate pair
  }
  return count;
}

/** The JavaScript index of a code point. */
export function unitsAt(text: string, points: number): number {
  let at = 0;
  for (let count = 0; count < points && at < text.length; count++) {
    const unit = text.charCodeAt(at);
    at += unit >= 0xd800 && unit <= 0xdbff ? 2 : 1;
  }
  return Math.min(at, text.length);
}

/** The text of a turn's content, which may have several parts. */
export function textOf(content: string | { [name: string]: unknown }[]): string {
  if (typeof content === "string") return content;
  return content.map((part) => (part.type === "text" ? String(part.text ?? "") : "")).filter(Boolean).join("\n\n");
}

/** An excerpt around the matches, split into matched and other parts. Spans are in code points. */
export function markSpans(
  text: string,
  spans: [number, number][],
  width = 120,
): { text: string; isMatch: boolean }[] {
  const places = spans.map(([from, to]) => [unitsAt(text, from), unitsAt(text, to)] as const);
  const first = places[0]?.[0] ?? 0;
  const start = first > width / 2 ? wordAfter(text, snapToCodePoint(text, first - width / 3), first) : 0;
  const end = snapToCodePoint(text, Math.min(text.length, start + width));
  const parts: { text: string; isMatch: boolean }[] = [];
  let at = start;
  for (const [from, to] of places) {
    if (from < at || from >= end) continue;
    parts.push({ text: text.slice(at, from), isMatch: false }, { text: text.slice(from, Math.min(to, end)), isMatch: true });
    at = Math.min(to, end);
  }
  parts.push({ text: text.slice(at, end), isMatch: false });
  if (start > 0 && parts[0]) parts[0].text = `…${parts[0].text.trimStart()}`;
  if (end < text.length) parts.push({ text: "…", isMatch: false });
  return parts.filter((part) => part.text);
}

/** Where the next word begins, if that is before `end`: an excerpt does not begin in the middle of one. */
function wordAfter(text: string, at: number, end: number): number {
  const space = text.slice(at, end).search(/\s\S/);
  return space < 0 ? at : at + space + 1;
}

/** Move an index out of the middle of a surrogate pair. */
function snapToCodePoint(text: string, at: number): number {
  const place = Math.floor(at);
  const unit = text.charCodeAt(place);
  return unit >= 0xdc00 && unit <= 0xdfff ? place + 1 : place;
}

/** Find the search words in a title: the server sends no spans for titles. */
export function titleParts(title: string, words: string): { text: string; isMatch: boolean }[] {
  const stems = words.split(/\s+/).filter(Boolean).map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  if (!stems.length) return [{ text: title, isMatch: false }];
  const parts = title.split(new RegExp(`(${stems.join("|")})`, "giu"));
  return parts.map((text, at) => ({ text, isMatch: at % 2 === 1 })).filter((part) => part.text);
}
