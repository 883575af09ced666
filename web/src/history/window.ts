/** Which rows of a long list are in sight. Pure. */

import type { Row } from "../state/dates";

export const ROW = 40;
export const GROUP = 38;
const SPARE = 8; // rows beyond the edges, so that fast scrolling shows no holes

/** Where each row begins, and at the end where the last one ends. */
export function placesOf(rows: Row[]): number[] {
  const places = [0];
  for (const row of rows) places.push(places.at(-1)! + (row.kind === "group" ? GROUP : ROW));
  return places;
}

/** The first row in sight, and the first one after. */
export function inSight(places: number[], top: number, height: number): [number, number] {
  const rows = places.length - 1;
  const first = Math.max(0, rowAt(places, top) - SPARE);
  return [first, Math.min(rows, rowAt(places, top + height) + 1 + SPARE)];
}

/** The row at a place, by halving. */
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
