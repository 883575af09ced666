/** The server operations that this app uses, one function each, named as in the API. */

import { call, headers, type Options, Problem, query, send, toProblem } from "./client";
import type {
  Attachment, Branch, BudgetLine, Context, Conversation, ConversationPage, Fact, Fields, Found, Hit, LogEvent, ModelRequest,
  ManagedModels, NoteList, PersonItem, Settings, Summary, Turn, TurnPage, UsageLine, Verified, WorkingMemory,
} from "./types";

type Items<T> = { items: T[] };
const API = "/api";
const at = (id: string) => `${API}/conversations/${encodeURIComponent(id)}`;
const items = async <T>(method: string, path: string, options: Options = {}): Promise<T[]> =>
  (await call<Items<T>>(method, path, options)).items;

// ---- settings

export const getSettings = () => call<Settings>("GET", `${API}/settings`);

export const listManagedModels = () => call<ManagedModels>("GET", `${API}/models`);
export const putModel = (fields: Fields) => call<ManagedModels>("PUT", `${API}/models`, { body: fields });
export const deleteModel = (name: string) => call<ManagedModels>("DELETE", `${API}/models${query({ name })}`);
export const testModel = (name: string) =>
  call<{ ok: boolean; problem: string | null; seconds: number }>("POST", `${API}/models/test`, { body: { name } });
export const chooseDefaultModel = (name: string) => call<ManagedModels>("PUT", `${API}/models/default`, { body: { name } });
export const listUsage = (since: string) => items<UsageLine>("GET", `${API}/usage${query({ since, limit: 1_000 })}`);

/** Import an export of another product as a stream of events: progress, then a report. */
export const importFile = (file: File, signal: AbortSignal) =>
  fetch(`${API}/imports`, { method: "POST", headers: headers({ "Content-Type": "application/octet-stream" }), body: file, signal });
export const listBudgets = () => items<BudgetLine>("GET", `${API}/budgets`);

// ---- the memory of a person

const ME = `${API}/people/me`;
export const listPersonItems = (status: "approved" | "proposed" | "all" = "all") => items<PersonItem>("GET", `${ME}/facts${query({ status })}`);
export const rememberOfPerson = (kind: string, text: string) => call<PersonItem>("POST", `${ME}/facts`, { body: { kind, text } });
export const correctPersonItem = (id: string, text: string) => call<PersonItem>("PUT", `${ME}/facts/${id}`, { body: { text } });
export const approvePersonItem = (id: string) => call<PersonItem>("POST", `${ME}/facts/${id}/approve`);
export const dropPersonItem = (id: string) => call<void>("DELETE", `${ME}/facts/${id}`);
export const exportPerson = () => call<Fields>("GET", `${ME}/export`);
export const forgetPerson = () => call<void>("DELETE", ME);

// ---- conversations

export const listConversations = (limit: number, next?: string | null) =>
  call<ConversationPage>("GET", next ?? `${API}/conversations${query({ limit })}`);
export const createConversation = (fields: Fields = {}) =>
  call<Conversation>("POST", `${API}/conversations`, { body: fields });
export const getConversation = (id: string) => call<Conversation>("GET", at(id));
export const updateConversation = (id: string, fields: Fields) =>
  call<Conversation>("PATCH", at(id), { body: fields });
/** The request continues if the page is closed. */
export const deleteConversation = (id: string) => call<void>("DELETE", at(id), { keepalive: true });
export const searchConversations = (q: string, signal?: AbortSignal, limit = 30) =>
  items<Found>("GET", `${API}/search${query({ q, limit })}`, { signal });

// ---- turns

export const listTurns = (id: string, limit: number) => call<TurnPage>("GET", `${at(id)}/turns${query({ limit })}`);
export const appendTurns = (id: string, turns: Fields[]) => call<Items<Turn>>("POST", `${at(id)}/turns/batch`, { body: { turns } });
export const listTurnsAt = (path: string) => call<TurnPage>("GET", path);
export const getTurn = (id: string, turn: string) => call<Turn>("GET", `${at(id)}/turns/${turn}`);
export const listBranches = (id: string) => items<Branch>("GET", `${at(id)}/branches`);
export const switchBranch = (id: string, turn: string) =>
  call<Conversation>("POST", `${at(id)}/turns/${turn}/switch`, { body: {} });
export const eventsPath = (id: string) => `${at(id)}/events`;

// ---- answers

export interface Question {
  message?: string;
  attachments?: string[];
  replaces?: string;
  model?: string | null;
}

/** Request an answer as a stream of events. Closing the connection does not stop the answer. */
export const generate = (id: string, question: Question, key?: string, signal?: AbortSignal) =>
  send("POST", `${at(id)}/generate`, {
    body: { ...question, stream: true },
    headers: { Accept: "text/event-stream", ...(key && { "Idempotency-Key": key }) },
    signal,
  });
export const regenerate = (id: string, turn: string, model?: string, signal?: AbortSignal) =>
  send("POST", `${at(id)}/turns/${turn}/regenerate`, { body: { stream: true, ...(model && { model }) }, signal });
export const stop = (id: string) => call<{ event: number }>("POST", `${at(id)}/stop`);

// ---- files

/** Uses XMLHttpRequest, because fetch does not report upload progress. */
export function upload(
  id: string,
  file: File,
  name: string,
  onProgress: (share: number) => void,
  signal: AbortSignal,
): Promise<Attachment> {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("POST", `${at(id)}/attachments${query({ filename: name })}`);
    for (const [header, value] of Object.entries(headers())) request.setRequestHeader(header, value);
    request.setRequestHeader("Content-Type", file.type || "application/octet-stream");
    request.responseType = "json";
    request.upload.onprogress = (event) => event.lengthComputable && onProgress(event.loaded / event.total);
    request.onload = () =>
      request.status < 300 ? resolve(request.response) : reject(toProblem(request.response ?? {}, request.status));
    request.onerror = () => reject(new Problem(0, "No connection", ""));
    request.onabort = () => reject(new DOMException("", "AbortError"));
    signal.addEventListener("abort", () => request.abort());
    request.send(file);
  });
}

export async function download(id: string, attachment: string): Promise<Blob> {
  return (await send("GET", `${at(id)}/attachments/${attachment}/content`)).blob();
}

export const attachmentText = async (id: string, attachment: string) =>
  (await call<{ text: string }>("GET", `${at(id)}/attachments/${attachment}/text`)).text;

// ---- requests and contexts

export const listRequests = (id: string, turn?: string, limit = 20, before?: string) =>
  items<ModelRequest>("GET", `${at(id)}/requests${query({ turn, limit, before })}`);
export const buildContext = (id: string, options: Fields, signal?: AbortSignal) =>
  call<Context>("POST", `${at(id)}/context`, { body: options, signal });

// ---- memory

export const listSummaries = (id: string) => items<Summary>("GET", `${at(id)}/summaries`);
export const compact = (id: string) => call<{ summaries: number }>("POST", `${at(id)}/compact`, { body: {} });
export const summarize = (id: string) => items<Summary>("POST", `${at(id)}/summarize`);
export const listFacts = (id: string, all = false) =>
  items<Fact>("GET", `${at(id)}/facts${query({ include_invalidated: all || undefined })}`);
export const extractFacts = (id: string) => items<Fact>("POST", `${at(id)}/facts/extract`);
export const forgetFact = (id: string, fact: string) => call<void>("DELETE", `${at(id)}/facts/${fact}`);
export const getMemory = (id: string) => call<WorkingMemory>("GET", `${at(id)}/memory`);
export const addNote = (id: string, list: NoteList, text: string) =>
  call<WorkingMemory>("POST", `${at(id)}/memory/${list}`, { body: { text } });
export const correctNote = (id: string, list: NoteList, index: number, text: string) =>
  call<WorkingMemory>("PUT", `${at(id)}/memory/${list}/${index}`, { body: { text } });
export const dropNote = (id: string, list: NoteList, index: number) =>
  call<WorkingMemory>("DELETE", `${at(id)}/memory/${list}/${index}`);
export const recall = (id: string, body: Fields, signal?: AbortSignal) =>
  items<Hit>("POST", `${at(id)}/recall`, { body, signal });
export const audit = (id: string, after = 0, limit = 200) =>
  call<Items<LogEvent> & { next: string | null }>("GET", `${at(id)}/audit${query({ after, limit })}`);
export const verify = (id: string) => call<Verified>("POST", `${at(id)}/verify`);
