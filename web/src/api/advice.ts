/** Errors in the words of the person who reads them: what happened, and what to do. Pure. */

export interface ErrorFacts {
  status: number;
  title: string;
  detail: string;
  fields: Record<string, unknown>;
}

type Words = (model: string, problem: ErrorFacts) => string;

/** By the end of the problem's type, then by words of its detail; the first that fits. */
const MODEL_ERRORS: [kind: string, detail: RegExp, words: Words][] = [
  ["model-unavailable", /no more requests/, (model) => `Too many requests to ${model}. Try again in a moment.`],
  ["model-unavailable", /reached|closed|took too long/, (model) => `The connection to ${model} was lost. Try again.`],
  ["model-unavailable", /./, (model, problem) => `${model} had a problem${statusIn(problem)}. Try again in a moment.`],
  ["model-refused", /key/, (model) => `${model} rejected the API key. Check the key in Settings.`],
  ["model-refused", /read so much/, (model) => `This conversation is too long for ${model}. Start a new chat, or choose a model that reads more.`],
  ["model-refused", /credit/, (model) => `The account for ${model} has no credit left. Add credit with the provider, or choose another model.`],
  ["model-refused", /not known/, (model) => `The provider doesn't know ${model}. Check the model's name in Settings.`],
  ["model-refused", /./, (model, problem) => `${model} refused the request${statusIn(problem)}. Try again, or choose another model.`],
  ["model-error", /./, (model) => `${model} sent an answer that could not be read. Try again.`],
];

export function explain(problem: ErrorFacts): string {
  const { status, title, detail, fields } = problem;
  const kind = String(fields.type ?? "").split(":").at(-1)!;
  const model = nameOf(fields.model);
  const found = MODEL_ERRORS.find(([name, words]) => name === kind && words.test(detail || " "));
  if (found) return found[2](model, problem);
  if (status === 0) return "Can't reach the server. Check that it is running, then try again.";
  if (status === 401) return /no longer/i.test(detail) ? "This key is no longer valid. Sign in again." : "That key isn't valid.";
  if (status === 403) return "You don't have permission to do that.";
  if (status === 404 || status === 410) return "It was deleted, or you don't have access.";
  if (status === 429) return "Too many requests at once. Wait a moment and try again.";
  if (kind === "file-refused") return fileAdvice(detail);
  if (/is not an export/.test(detail)) return "This file isn't an export of ChatGPT, Claude, Open WebUI or LibreChat. Choose the archive that you got from “Export data”, or the conversations.json in it.";
  if (/must be the file of an export/.test(detail)) return "This file is empty. Choose another one.";
  if (status === 413 && typeof fields.limit === "number") return `That is too large. The limit is ${fields.limit.toLocaleString("en")} bytes.`;
  if (status === 503) return "The server is busy or restarting. Try again in a moment.";
  return sentence(detail || title);
}

function fileAdvice(detail: string): string {
  const real = /the bytes are ([\w./+-]+)/.exec(detail);
  if (real) return `This file isn't what its name says: its content is ${real[1]}. Rename it, or choose another file.`;
  return "This file type isn't supported. You can attach images, PDFs, text, Office files, audio, video and archives.";
}

const statusIn = ({ detail }: ErrorFacts) => {
  const found = /status (\d+)/.exec(detail);
  return found ? ` (${found[1]})` : "";
};

/** A model's name without its provider: people chose "gpt-5-mini", not "openai:gpt-5-mini". */
export const nameOf = (model: unknown) => (typeof model === "string" && model ? model.replace(/^(openai|responses|anthropic):/, "") : "The model");

const sentence = (text: string) => (text ? text[0]!.toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".") : "Something went wrong. Try again.");
