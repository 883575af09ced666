/** Which rows of a long list are visible. Pure. */

import type { Row } from "../state/dates";

export const ROW = globalThis.matchMedia?.("(pointer: coarse)").matches ? 48 : 40; // must match the style sheet
export const GROUP = 38;
const SPARE = 8; // extra rows beyond the edges, so that fast scrolling shows no gaps

/** The offset of each row, followed by the end of the last one. */
export function rowOffsets(rows: Row[]): number[] {
  const places = [0];
  for (const row of rows) places.push(places.at(-1)! + (row.kind === "group" ? GROUP : ROW));
  return places;
}

/** The first visible row, and the first one after the visible range. */
export function visibleRange(places: number[], top: number, height: number): [number, number] {
  const rows = places.length - 1;
  const first = Math.max(0, rowAt(places, top) - SPARE);
  return [first, Math.min(rows, rowAt(places, top + height) + 1 + SPARE)];
}

/** The row at an offset, by binary search. */
function rowAt(places: number[], place: number): number {
  let low = 0;
  let high = places.length - 2;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (places[middle]! <= place) low = middle;
    else high = middle - 1;
  }
  return Math.max(0, low);
}
