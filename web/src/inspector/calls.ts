/** The model calls behind an answer: one, plus one for each round of tools. */

import type { ModelRequest, Turn } from "../api/types";
import { listRequests } from "../api/verbs";
import { current } from "../state/current-conversation";
import { textOf } from "../state/text";
import { itemsOf } from "../state/views";

const TRIES = 6;
const PAUSE = 500; // milliseconds between attempts: the record is stored shortly after the answer

export async function readCalls(conversation: string, turn: string, signal: AbortSignal): Promise<ModelRequest[]> {
  const turns = roundsOf(turn);
  for (let tries = 1; ; tries++) {
    const calls = (await Promise.all(turns.map((one) => listRequests(conversation, one)))).flat();
    const isComplete = calls.some((one) => one.turn === turn && one.response);
    if (isComplete || !isMadeHere(turn) || tries === TRIES || signal.aborted) return calls;
    await new Promise((resolve) => setTimeout(resolve, PAUSE));
  }
}

function itemWith(turn: string) {
  const items = itemsOf(current.get().thread.turns);
  const at = items.findIndex((item) => item.turns.some((one) => one.id === turn));
  return { item: items[at], before: items[at - 1] };
}

function roundsOf(turn: string): string[] {
  const turns = itemWith(turn).item?.turns.filter((one) => one.role === "assistant") ?? [];
  return turns.length ? turns.map((one) => one.id) : [turn];
}

const isMadeHere = (turn: string) => Boolean(current.get().thread.turns.find((one) => one.id === turn)?.adapter);

/** The question that the turn answers, if it is on the page. */
export function questionOf(turn: string): string | null {
  const before: Turn | undefined = itemWith(turn).before?.turns[0];
  return before?.role === "user" ? textOf(before.content) || null : null;
}

/** The names of files of earlier messages, as far as they are on the page: their text is not repeated in later prompts. */
export function earlierFilesOf(turn: string): string[] {
  const { before } = itemWith(turn);
  const { turns } = current.get().thread;
  const end = turns.findIndex((one) => one.id === before?.turns[0]?.id);
  return turns.slice(0, Math.max(0, end)).flatMap((one) => one.attachments.map((file) => file.filename));
}
