/** A thread as the live feed tells it. Pure: frames in, a new thread out. Telling a frame twice does no harm. */

import type { Turn } from "../api/types";
import type { Message } from "../sse/parser";
import { codePoints, textOf, unitsAt } from "./text";

export interface Thread {
  /** The active view, in its order. */
  turns: Turn[];
  /** How many characters of a turn in the making are here. */
  told: { readonly [turn: string]: number };
  /** An answer that broke off: no longer part of the thread, still worth showing. */
  cut: Turn | null;
}

/** What the thread alone cannot answer, and must be read from the server. */
export type Need = "turns" | "info" | "branches" | "gone";

export const NO_THREAD: Thread = { turns: [], told: {}, cut: null };

export function threadOf(turns: Turn[]): Thread {
  const told: { [turn: string]: number } = {};
  for (const turn of turns) if (turn.status === "pending") told[turn.id] = codePoints(textOf(turn.content));
  return { turns, told, cut: null };
}

/** The thread after some frames, and what has to be read again. */
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

/** A turn takes its place in the view; whatever stood there, or after it, gives way as the log says. */
export function withTurn(thread: Thread, turn: Turn, isOpening = false, discardsAfter = false): Thread {
  if (!turn.active) return without(thread, turn.id);
  const known = thread.turns.find((one) => one.id === turn.id);
  if (isOpening && known) return thread; // its text is ahead of this frame
  if (known?.status === "complete" && turn.status === "pending") return thread;
  const kept = thread.turns.filter((one) =>
    one.id !== turn.id && one.position !== turn.position && !(discardsAfter && one.position > turn.position));
  const place = kept.findIndex((one) => one.position > turn.position);
  const turns = place < 0 ? [...kept, turn] : [...kept.slice(0, place), turn, ...kept.slice(place)];
  const { [turn.id]: _, ...others } = thread.told;
  const told = turn.status === "pending" ? { ...others, [turn.id]: codePoints(textOf(turn.content)) } : others;
  return { turns, told, cut: turn.role === "tool" ? thread.cut : null };
}

function without(thread: Thread, id: string): Thread {
  const { [id]: _, ...told } = thread.told;
  return { ...thread, told, turns: thread.turns.filter((one) => one.id !== id) };
}

/** Text is joined by its place: a repeat changes nothing, a gap means that something was missed. */
function withPiece(thread: Thread, id: string, from: number, piece: string, needs: Set<Need>): Thread {
  const told = thread.told[id];
  if (told === undefined) return thread; // sealed meanwhile
  if (from > told) {
    needs.add("turns");
    return thread;
  }
  const end = from + codePoints(piece);
  if (end <= told) return thread;
  const news = piece.slice(unitsAt(piece, told - from));
  const turns = thread.turns.map((one) => (one.id === id ? { ...one, content: textOf(one.content) + news } : one));
  return { ...thread, turns, told: { ...thread.told, [id]: end } };
}
