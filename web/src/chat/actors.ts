/** Actor names, shown in conversations with more than two participants, and a stable colour for each. */

import type { Turn } from "../api/types";

const USUAL = new Set(["user", "assistant", "offline", ""]);

export function nameOf(turn: Turn): string {
  if (turn.role === "user") return USUAL.has(turn.actor) ? "You" : turn.actor;
  return USUAL.has(turn.actor) ? "Assistant" : turn.actor;
}

export const isNamed = (turn: Turn, me: string | null) => !USUAL.has(turn.actor) && turn.actor !== me;

/** Derive a hue from a name. */
export function hueOf(name: string): number {
  let sum = 7;
  for (const letter of name) sum = (sum * 31 + letter.codePointAt(0)!) % 3_600;
  return sum % 360;
}
