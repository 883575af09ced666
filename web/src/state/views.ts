/** Group the turns of a thread into questions and answers, with the versions of each. Pure. */

import type { Branch, ToolCall, ToolResult, Turn } from "../api/types";
import { textOf } from "./text";

export interface Step {
  call: ToolCall;
  result: ToolResult | null;
}

/** One item on the page: a question, or an answer with all its tool rounds. */
export interface Item {
  id: string;
  role: Turn["role"];
  turns: Turn[];
}

/**
 * Consecutive turns of one actor's answer, with the tool turns between them, are one item. Unchanged items keep their identity,
 * so that they are not rendered again; those before the first change are not even looked into.
 */
export function itemsOf(turns: Turn[], previous: Item[] = []): Item[] {
  const items = unchangedStart(previous, turns);
  const rest: Item[] = [];
  for (const turn of turns.slice(items.reduce((sum, item) => sum + item.turns.length, 0))) {
    const last = rest.at(-1);
    if (last && belongs(last, turn)) last.turns.push(turn);
    else rest.push({ id: turn.id, role: turn.role, turns: [turn] });
  }
  const known = new Map(previous.slice(items.length).map((item) => [item.id, item]));
  for (const item of rest) {
    const old = known.get(item.id);
    items.push(old && isSame(old.turns, item.turns) ? old : item);
  }
  return items;
}

/** The items with which both lists begin, but the last of them: the next turn may belong to it. */
function unchangedStart(items: Item[], turns: Turn[]): Item[] {
  let at = 0;
  const changed = items.findIndex((item) => !item.turns.every((turn) => turn === turns[at++]));
  return items.slice(0, Math.max(0, (changed < 0 ? items.length : changed) - 1));
}

function belongs(item: Item, turn: Turn): boolean {
  if (item.role !== "assistant") return false;
  if (turn.role === "tool") return true;
  const last = item.turns.at(-1)!;
  return turn.role === "assistant" && turn.actor === item.turns[0]!.actor && (last.role === "tool" || last.tool_calls.length > 0);
}

function isSame<T>(one: T[], other: T[]): boolean {
  return one.length === other.length && one.every((value, at) => value === other[at]);
}

/** Neighbouring items that are rendered together. */
export interface Chunk {
  id: number;
  items: Item[];
}

const CHUNK = 8; // positions: laid out together when they come into view

/** Group items by their position. Unchanged chunks keep their identity: while text streams in, only the last one changes. */
export function chunksOf(items: Item[], previous: Chunk[] = []): Chunk[] {
  const known = new Map(previous.map((chunk) => [chunk.id, chunk]));
  const chunks: Chunk[] = [];
  for (const item of items) {
    const id = Math.floor(item.turns[0]!.position / CHUNK);
    const last = chunks.at(-1);
    if (last?.id === id) last.items.push(item);
    else chunks.push({ id, items: [item] });
  }
  return chunks.map((chunk) => {
    const old = known.get(chunk.id);
    return old && isSame(old.items, chunk.items) ? old : chunk;
  });
}

/** The calls of a turn, each with its result from anywhere in the item. */
export function stepsOf(turn: Turn, item: Item): Step[] {
  const results = new Map(item.turns.flatMap((one) => one.tool_results).map((result) => [result.id, result]));
  return turn.tool_calls.map((call) => ({ call, result: results.get(call.id) ?? null }));
}

/** Whether the last answer is still in progress: it is being written, or its tools may still be running. */
export function isAnswerRunning(turns: Turn[], now = Date.now()): boolean {
  const last = turns.at(-1);
  if (!last || last.status === "pending") return last !== undefined;
  const until = last.tool_calls.length ? last.metadata.tools_until : null;
  return typeof until === "string" && Date.parse(until) > now;
}

// ---- versions

export interface Versions {
  /** Ids, oldest first. */
  ids: string[];
  at: number;
}

/** Map each turn that has more than one version to its branch. */
export function branchesByTurn(branches: Branch[]): Map<string, Branch> {
  return new Map(branches.flatMap((branch) => branch.turns.map((turn) => [turn.id, branch] as const)));
}

/**
 * The edited versions of a question, and those with the same text, which are regenerated answers.
 * For the server both are versions of the question; the page shows the second kind next to the answer.
 */
export function versionsOf(turn: Turn, branches: Map<string, Branch>): { edits: Versions | null; answers: Versions | null } {
  const branch = branches.get(turn.id);
  if (!branch) return { edits: null, answers: null };
  if (turn.role !== "user") return { edits: null, answers: listed(branch.turns, turn) };
  const groups = new Map<string, Turn[]>();
  for (const version of branch.turns) {
    const same = textOf(version.content);
    groups.set(same, [...(groups.get(same) ?? []), version]);
  }
  const own = groups.get(textOf(turn.content)) ?? [turn];
  const newest = [...groups.values()].map((group) => (group === own ? turn : group.at(-1)!));
  return { edits: listed(newest, turn), answers: listed(own, turn) };
}

function listed(turns: Turn[], turn: Turn): Versions | null {
  if (turns.length < 2) return null;
  return { ids: turns.map((one) => one.id), at: turns.findIndex((one) => one.id === turn.id) };
}

export const isSameVersion = (one: Versions | null, other: Versions | null) =>
  one === other || (one !== null && other !== null && one.at === other.at && one.ids.join() === other.ids.join());
