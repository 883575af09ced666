/** Words with one typing mistake. Pure. */

export const fold = (text: string) => text.normalize("NFKD").replace(/\p{M}+/gu, "").toLowerCase();
export const wordsOf = (text: string) => fold(text).match(/[\p{L}\p{N}]+/gu) ?? [];
const SHORTEST = 4; // letters of a word in which a mistake is forgiven

/** Whether `typed` is the beginning of `word`, with at most one letter missing, added, changed or swapped. */
export function isNear(typed: string, word: string): boolean {
  if (word.startsWith(typed)) return true;
  if (typed.length < SHORTEST) return false;
  return [typed.length - 1, typed.length, typed.length + 1].some((length) => length <= word.length && isOneOff(typed, word.slice(0, length)));
}

/**
 * Beginnings of words to search for, in two rounds; the second is for when the first finds nothing. Every word has to be in a
 * message, so one that begins as typed is enough: first, the first halves of the two longest words.
 * Then the longest word again, for a mistake in its first half. One after its second letter leaves two letters; swapped letters and
 * one too many are undone. A wrong or missing letter among its first two is not forgiven then: any letter might be meant.
 */
export function beginningsOf(typed: string[]): string[][] {
  const [one = "", other] = typed.toSorted((a, b) => b.length - a.length);
  if (one.length < SHORTEST) return [];
  const halves = new Set([one, other ?? one].map((word) => (word.length < SHORTEST ? word : word.slice(0, word.length >> 1))));
  const others = new Set([one.slice(0, 2), one[1]! + one[0]!, one[0]! + one[2]!, one.slice(1, 3)].filter((start) => !halves.has(start)));
  return [[...halves], [...others]];
}

/** Whether one edit turns `other` into `one`. */
function isOneOff(one: string, other: string): boolean {
  let at = 0;
  while (at < one.length && at < other.length && one[at] === other[at]) at++;
  const rest = (text: string, from: number) => text.slice(from);
  return (
    rest(one, at + 1) === rest(other, at + 1) || rest(one, at + 1) === rest(other, at) || rest(one, at) === rest(other, at + 1) ||
    (one[at] === other[at + 1] && one[at + 1] === other[at] && rest(one, at + 2) === rest(other, at + 2))
  );
}

/** How well a text has all the words: 0 if one is missing, 2 if each is written as it was typed, 1 with mistakes. */
export function rank(typed: string[], text: string): 0 | 1 | 2 {
  const words = wordsOf(text);
  if (typed.every((one) => words.some((word) => word.startsWith(one)))) return 2;
  return typed.every((one) => words.some((word) => isNear(one, word))) ? 1 : 0;
}
