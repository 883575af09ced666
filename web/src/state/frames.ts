/** Apply frames of the live feed to a thread. Pure, and idempotent for repeated frames. */

import type { Turn } from "../api/types";
import type { Message } from "../sse/parser";
import { codePoints, textOf, unitsAt } from "./text";

export interface Thread {
  /** The active branch, in order. */
  turns: Turn[];
  /** How many code points of each pending turn have been received. */
  received: { readonly [turn: string]: number };
  /** An interrupted answer: no longer part of the thread, but still shown. */
  cut: Turn | null;
}

/** Data that the frames do not contain, to be loaded from the server. */
export type Need = "turns" | "info" | "branches" | "gone";

export const NO_THREAD: Thread = { turns: [], received: {}, cut: null };

export function threadOf(found: Turn[]): Thread {
  const received: { [turn: string]: number } = {};
  const turns = found.filter((one) => one.status !== "aborted");
  for (const turn of turns) if (turn.status === "pending") received[turn.id] = codePoints(textOf(turn.content));
  return { turns, received, cut: found.findLast((one) => one.status === "aborted") ?? null };
}

/** The thread after some frames, and what has to be reloaded. */
export function afterFrames(thread: Thread, messages: Message[]): { thread: Thread; needs: Set<Need> } {
  const needs = new Set<Need>();
  let next = thread;
  for (const message of messages) next = afterFrame(next, message, needs);
  return { thread: next, needs };
}

function afterFrame(thread: Thread, message: Message, needs: Set<Need>): Thread {
  const data = JSON.parse(message.data);
  switch (message.event) {
    case "append":
    case "open":
    case "commit":
      if (data.payload?.replaces) needs.add("branches");
      needs.add("info");
      return withTurn(thread, data.turn, message.event === "open", Boolean(data.payload?.discard_after));
    case "delta":
      return withPiece(thread, data.turn, data.from, data.text, needs);
    case "abort":
      return { ...without(thread, data.turn.id), cut: data.turn };
    case "update":
      needs.add("info");
      return thread;
    case "switch":
    case "forget":
    case "reset":
      needs.add("turns");
      needs.add("branches");
      return thread;
    case "gone":
    case "denied":
      needs.add("gone");
      return thread;
    default:
      return thread;
  }
}

/** Put a turn at its position. It replaces the turn there, and those after it if the log says so. */
export function withTurn(thread: Thread, turn: Turn, isOpening = false, discardsAfter = false): Thread {
  if (!turn.active) return without(thread, turn.id);
  const known = thread.turns.find((one) => one.id === turn.id);
  if (isOpening && known) return thread; // the known text is newer than this frame
  if (known?.status === "complete" && turn.status === "pending") return thread;
  const kept = thread.turns.filter((one) =>
    one.id !== turn.id && one.position !== turn.position && !(discardsAfter && one.position > turn.position));
  const place = kept.findIndex((one) => one.position > turn.position);
  const turns = place < 0 ? [...kept, turn] : [...kept.slice(0, place), turn, ...kept.slice(place)];
  const { [turn.id]: _, ...others } = thread.received;
  const received = turn.status === "pending" ? { ...others, [turn.id]: codePoints(textOf(turn.content)) } : others;
  return { turns, received, cut: turn.role === "tool" ? thread.cut : null };
}

function without(thread: Thread, id: string): Thread {
  const { [id]: _, ...received } = thread.received;
  return { ...thread, received, turns: thread.turns.filter((one) => one.id !== id) };
}

/** Append text by its offset: a repeat changes nothing, a gap means that a frame was missed. */
function withPiece(thread: Thread, id: string, from: number, piece: string, needs: Set<Need>): Thread {
  const received = thread.received[id];
  if (received === undefined) return thread; // the turn is already complete
  if (from > received) {
    needs.add("turns");
    return thread;
  }
  const end = from + codePoints(piece);
  if (end <= received) return thread;
  const news = piece.slice(unitsAt(piece, received - from));
  const turns = thread.turns.map((one) => (one.id === id ? { ...one, content: textOf(one.content) + news } : one));
  return { ...thread, turns, received: { ...thread.received, [id]: end } };
}
