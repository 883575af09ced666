/** Prepares the explanation of a prompt for display. Pure. */

import type { Block, Explanation, Fields, Json, ModelRequest } from "../api/types";

export const KINDS: { [kind: string]: { name: string; about: string } } = {
  instructions: { name: "Instructions", about: "What the application tells the model to do." },
  memory: { name: "Memory", about: "Notes and facts from this conversation." },
  summaries: { name: "Summaries", about: "Short versions of older messages." },
  "omission note": { name: "Note on what is missing", about: "Tells the model that it does not see everything." },
  person: { name: "About you", about: "What Palaver remembers about you from other conversations." },
  recent: { name: "Recent messages", about: "The most recent messages, in full." },
  recalled: { name: "Recalled messages", about: "Earlier messages related to yours, each with its author and date." },
  current: { name: "Your message", about: "The message to answer. It is always sent in full." },
  rounds: { name: "Tool calls so far", about: "Tool calls and results since your message." },
};

export const nameOf = (kind: string) => KINDS[kind]?.name ?? kind;
export const slugOf = (kind: string) => kind.replace(/\W+/g, "-");

export const count = (value: number) => value.toLocaleString("en");
export const counted = (value: number, one: string) => `${count(value)} ${one}${value === 1 ? "" : "s"}`;
export const percent = (share: number) => `${Math.round(share * 100)}%`;
export const seconds = (value: number) => (value < 1 ? `${Math.round(value * 1_000)} ms` : `${value.toFixed(1)} s`);

/** Tokens that belong to no block: separators between messages, and the start of the answer. */
export function marksOf(explanation: Explanation): number {
  return explanation.tokens - explanation.blocks.reduce((sum, block) => sum + block.tokens, 0);
}

/** Turn positions as people count them: from one, with an inclusive end. */
export function spanOf(from: number | null, through: number | null): string {
  if (from === null || through === null) return "";
  return through - from > 1 ? `messages ${count(from + 1)}–${count(through)}` : `message ${count(from + 1)}`;
}

// ---- files

export interface FileLine {
  id: string;
  name: string;
  about: string;
}

/** One line per file of the message: in full, in part or not sent, why, and what it costs. */
export function filesOf({ files = [], unit }: Explanation): FileLine[] {
  return files.map(({ attachment, name, state, reason, tokens }) => ({
    id: attachment, name, about: `${state}: ${reason}${tokens > 0 ? ` (${count(tokens)} ${unit})` : ""}`,
  }));
}

// ---- the text of a block

// The tag of summaries had another name in prompts of older versions.
const TAGS: { [kind: string]: string } = { memory: "memory", summaries: "(?:summaries|summary)", recalled: "recalled" };

/** Find the text of a block in a prompt of any provider, by the markers around it. */
export function wordsOf(kind: string, prompt: Json): string | null {
  const tag = TAGS[kind];
  if (!tag) return null;
  const marks = new RegExp(`<(${tag}(?:-\\d+)?) note="[^"]*">\\n([\\s\\S]*?)\\n</\\1>`);
  for (const text of textsOf(prompt)) {
    const found = marks.exec(text);
    if (found) return found[2]!;
  }
  return null;
}

function* textsOf(value: Json): Generator<string> {
  if (typeof value === "string") yield value;
  else if (Array.isArray(value)) for (const one of value) yield* textsOf(one);
  else if (value) for (const one of Object.values(value)) yield* textsOf(one);
}

// ---- scores

export interface Score {
  turn: string;
  conversation: string;
  score: number;
  parts: { [name: string]: number };
}

export const scoresOf = (block: Block) => new Map((block.scores as unknown as Score[]).map((one) => [one.turn, one]));

// ---- cost

export interface Figure {
  name: string;
  value: string;
  about?: string;
}

const part = (fields: Fields | null, name: string) => (fields?.[name] ?? {}) as { [name: string]: number | undefined };

/** Usage, cost and timings of a call, as the provider and the server reported them. */
export function figuresOf(request: ModelRequest): Figure[] {
  const usage = part(request.response, "usage");
  const timings = part(request.response, "timings");
  const tools = request.explanation?.tools_and_history_tokens;
  const found: (Figure | false | undefined)[] = [
    { name: "Model", value: request.model },
    usage.prompt !== undefined && { name: "Prompt", value: counted(usage.prompt, "token"), about: "As the provider counted them." },
    usage.cached !== undefined && { name: "Cached", value: counted(usage.cached, "token"), about: "Billed at a fraction of the price." },
    usage.completion !== undefined && { name: "Answer", value: counted(usage.completion, "token") },
    usage.reasoning !== undefined && { name: "Reasoning", value: counted(usage.reasoning, "token") },
    tools !== undefined && tools > 0 && { name: "Tools and supplied history", value: counted(tools, "token"), about: "Not included above." },
    costOf(request),
    typeof timings.first_token === "number" && { name: "Time to first token", value: seconds(timings.first_token) },
    typeof timings.total === "number" && { name: "Total time", value: seconds(timings.total) },
    { name: "Finish reason", value: endOf(request) },
    ...retriesOf(request),
  ];
  return found.filter((one): one is Figure => Boolean(one));
}

function costOf(request: ModelRequest): Figure {
  const cost = request.response?.cost;
  if (request.adapter === "offline") return { name: "Cost", value: "free", about: "No model was called." };
  if (typeof cost === "number") return { name: "Cost", value: money(cost), about: "At the prices in the server's settings." };
  return { name: "Cost", value: "unknown", about: "No price is set for this model on the server." };
}

export const money = (value: number) =>
  `$${value === 0 || value >= 0.01 ? value.toFixed(2) : value.toLocaleString("en", { maximumSignificantDigits: 2 })}`;

function endOf(request: ModelRequest): string {
  if (!request.response) return "interrupted";
  const error = request.response.error as { type: string } | null;
  return error ? error.type : String(request.response.finish_reason ?? "not reported");
}

function retriesOf(request: ModelRequest): Figure[] {
  const retries = (request.response?.retries ?? []) as { error: string; waited: number }[];
  return retries.map((one) => ({ name: "Retried", value: `${one.error}, after ${seconds(one.waited)}` }));
}
