/** A conversation on a server, with the methods of the Python library. */

import { answerEvents, type AnswerEvent } from "./answer.ts";
import { failure } from "./errors.ts";
import { follow, type LiveEvent, type SubscribeOptions } from "./live.ts";
import type { components, paths } from "./schema.ts";
import type { Body, Cancellable, Query, Transport } from "./transport.ts";
import type {
  Attachment, Branch, Content, Context, ConversationInfo, Deletion, Explanation, Fact, FileText, Hits, LogEvent, Matches, ModelRequest,
  Role, Summary, Turn, Verified, WorkingMemory,
} from "./types.ts";
import { TurnWriter } from "./writer.ts";

type Schemas = components["schemas"];
type With<T> = T & Cancellable;
/** A turn, or its id. */
export type TurnRef = string | { id: string };

const HERE = "/api/conversations/{conversation}";
const TURN = `${HERE}/turns/{turn}` as const;
const FILE = `${HERE}/attachments/{attachment}` as const;
const NOTES = `${HERE}/memory/{list}` as const;

export type AppendOptions = With<Partial<Omit<Schemas["NewTurn"], "role" | "content" | "replaces">> & { replaces?: TurnRef }>;
export type StreamOptions = With<Partial<Omit<Schemas["NewStream"], "role" | "replaces">> & { replaces?: TurnRef }>;
export type EditOptions = With<Partial<Omit<Schemas["EditedTurn"], "content">>>;
export type HistoryOptions = With<Omit<Query<`${typeof HERE}/turns`, "get">, "before" | "after"> & { before?: TurnRef; after?: TurnRef }>;
export type ContextOptions = With<Omit<Body<`${typeof HERE}/context`, "post">, "question"> & { question?: TurnRef }>;
export type RecallOptions = With<Omit<Schemas["RecallQuery"], "query">>;
export type GenerateOptions = With<Omit<Schemas["Question"], "message" | "stream" | "replaces"> & { replaces?: TurnRef }>;
export type RegenerateOptions = With<Omit<Schemas["Regenerate"], "stream">>;
export type ConversationChanges = Schemas["ChangedConversation"];
/** A list of the working memory. */
export type NoteList = paths[typeof NOTES]["post"]["parameters"]["path"]["list"];
export type AuditOptions = With<Omit<Query<`${typeof HERE}/audit`, "get">, "turn"> & { turn?: TurnRef }>;

/** Returned by `store.conversation`, `store.find` and `store.get`. */
export class Conversation {
  private readonly transport: Transport;
  private known: ConversationInfo;

  constructor(transport: Transport, info: ConversationInfo) {
    this.transport = transport;
    this.known = info;
  }

  get id(): string {
    return this.known.id;
  }

  /** The details as they were last read; see `refresh`. */
  get info(): ConversationInfo {
    return this.known;
  }

  private get path(): { conversation: string } {
    return { conversation: this.id };
  }

  async refresh(options: Cancellable = {}): Promise<ConversationInfo> {
    this.known = await this.transport.call("get", HERE, { path: this.path, ...options });
    return this.known;
  }

  // ---- append

  /** Store a turn. It is on disk when this returns. If the reply is lost, the request is repeated, and the turn is stored once. */
  async append(role: Role, content: Content = "", options: AppendOptions = {}): Promise<Turn> {
    const { signal, replaces, ...fields } = options;
    const body = { idempotency_key: key(), ...fields, role, content, ...(replaces && { replaces: idOf(replaces) }) };
    return this.transport.call("post", `${HERE}/turns`, { path: this.path, body, repeatable: true, ...(signal && { signal }) });
  }

  /** Store up to 1,000 turns: all of them or none. */
  async appendMany(turns: Schemas["BatchTurn"][], options: With<{ expected_seq?: number }> = {}): Promise<Turn[]> {
    const { signal, ...place } = options;
    const body = { turns: turns.map((turn) => ({ idempotency_key: key(), ...turn })), ...place };
    const call = { path: this.path, body, repeatable: true, ...(signal && { signal }) };
    return (await this.transport.call("post", `${HERE}/turns/batch`, call)).items;
  }

  /** Open a turn whose text arrives in pieces, such as the answer of a model that you call yourself. */
  async stream(role: "user" | "assistant" | "system" = "assistant", options: StreamOptions = {}): Promise<TurnWriter> {
    const { signal, replaces, ...fields } = options;
    const body = { idempotency_key: key(), ...fields, role, ...(replaces && { replaces: idOf(replaces) }) };
    const call = { path: this.path, body, repeatable: true, ...(signal && { signal }) };
    return new TurnWriter(this.transport, await this.transport.call("post", `${HERE}/streams`, call));
  }

  /** Replace a turn with a new version. Later turns belong to the old version, unless `discard_after` is false. */
  async edit(turn: TurnRef, content: Content, options: EditOptions = {}): Promise<Turn> {
    const { signal, ...fields } = options;
    const headers = { "Idempotency-Key": key() };
    const call = { path: this.of(turn), body: { ...fields, content }, headers, repeatable: true, ...(signal && { signal }) };
    return this.transport.call("post", `${TURN}/edit`, call);
  }

  // ---- reading

  /** The latest turns, oldest first: 50, or `limit` (at most 1,000). For the previous page, pass `before: turns[0]`. */
  async history(options: HistoryOptions = {}): Promise<Turn[]> {
    const { signal, before, after, ...rest } = options;
    const query = { ...rest, ...(before && { before: idOf(before) }), ...(after && { after: idOf(after) }) };
    const found = await this.transport.call("get", `${HERE}/turns`, { path: this.path, query, ...(signal && { signal }) });
    return found.items as Turn[];
  }

  async turn(turn: TurnRef, options: Cancellable = {}): Promise<Turn> {
    return this.transport.call("get", TURN, { path: this.of(turn), ...options });
  }

  /** Turns that contain words of `text`, with the words that match. */
  async search(text: string, options: With<{ limit?: number }> = {}): Promise<Matches["items"]> {
    const { signal, limit } = options;
    const query = { q: text, ...(limit && { limit }) };
    return (await this.transport.call("get", `${HERE}/search`, { path: this.path, query, ...(signal && { signal }) })).items;
  }

  /** Places with more than one version. */
  async branches(turn?: TurnRef): Promise<Branch[]> {
    const query = turn ? { turn: idOf(turn) } : {};
    return (await this.transport.call("get", `${HERE}/branches`, { path: this.path, query })).items;
  }

  /** Make the branch of a turn the active one. */
  async switch(turn: TurnRef): Promise<void> {
    this.known = await this.transport.call("post", `${TURN}/switch`, { path: this.of(turn), repeatable: true });
  }

  // ---- details and deletion

  async update(changes: ConversationChanges, options: Cancellable = {}): Promise<ConversationInfo> {
    this.known = await this.transport.call("patch", HERE, { path: this.path, body: changes, repeatable: true, ...options });
    return this.known;
  }

  async rename(title: string | null): Promise<ConversationInfo> {
    return this.update({ title });
  }

  /** Permanently delete a turn and everything derived from it; without a turn, the whole conversation. */
  async forget(turn?: TurnRef): Promise<Deletion> {
    const path = turn ? `${HERE}/turns/${idOf(turn)}` : HERE;
    const response = await this.transport.send("DELETE", path.replace("{conversation}", this.id));
    return { pending: response.status === 202 };
  }

  /** Delete every turn, and keep the conversation. */
  async reset(): Promise<void> {
    await this.transport.call("post", `${HERE}/reset`, { path: this.path });
    await this.refresh();
  }

  // ---- memory

  /** The prompt for a model: recent turns, summaries, notes, facts and recalled turns, within a budget. */
  async buildContext(options: ContextOptions = {}): Promise<Context> {
    const { signal, question, ...rest } = options;
    const body = { ...rest, ...(question && { question: idOf(question) }) };
    return this.transport.call("post", `${HERE}/context`, { path: this.path, body, repeatable: true, ...(signal && { signal }) });
  }

  /** Explain the context that would be built: its parts with their tokens, and what was left out. */
  async explain(options: ContextOptions = {}): Promise<Explanation> {
    return (await this.buildContext(options)).explanation;
  }

  /** The turns and facts that match a question, best first. `empty` has the reason if there are none. */
  async recall(query: string, options: RecallOptions = {}): Promise<Hits> {
    const { signal, ...rest } = options;
    const call = { path: this.path, body: { query, ...rest }, repeatable: true, ...(signal && { signal }) };
    return this.transport.call("post", `${HERE}/recall`, call);
  }

  async summaries(): Promise<Summary[]> {
    return (await this.transport.call("get", `${HERE}/summaries`, { path: this.path })).items;
  }

  /** Summarise the turns that have no summary yet: up to and including a turn, or all of them. */
  async summarize(options: { through?: TurnRef } = {}): Promise<Summary[]> {
    const body = options.through ? { through: idOf(options.through) } : {};
    return (await this.transport.call("post", `${HERE}/summarize`, { path: this.path, body })).items;
  }

  async facts(options: Query<`${typeof HERE}/facts`, "get"> = {}): Promise<Fact[]> {
    return (await this.transport.call("get", `${HERE}/facts`, { path: this.path, query: options })).items;
  }

  async extractFacts(options: { through?: TurnRef } = {}): Promise<Fact[]> {
    const body = options.through ? { through: idOf(options.through) } : {};
    return (await this.transport.call("post", `${HERE}/facts/extract`, { path: this.path, body })).items;
  }

  async forgetFact(fact: string | { id: string }): Promise<Deletion> {
    const response = await this.transport.send("DELETE", `/api/conversations/${this.id}/facts/${encodeURIComponent(idOf(fact))}`);
    return { pending: response.status === 202 };
  }

  async workingMemory(): Promise<WorkingMemory> {
    return this.transport.call("get", `${HERE}/memory`, { path: this.path });
  }

  /** Add a note to a list of the working memory, such as `goals` or `constraints`. */
  async remember(list: NoteList, text: string, options: { by?: string } = {}): Promise<WorkingMemory> {
    return this.transport.call("post", NOTES, { path: { ...this.path, list }, body: { text, ...options } });
  }

  async correct(list: NoteList, index: number, text: string, options: { by?: string } = {}): Promise<WorkingMemory> {
    return this.transport.call("put", `${NOTES}/{index}`, { path: { ...this.path, list, index }, body: { text, ...options } });
  }

  async dropNote(list: NoteList, index: number): Promise<WorkingMemory> {
    return this.transport.call("delete", `${NOTES}/{index}`, { path: { ...this.path, list, index }, repeatable: false });
  }

  // ---- answers

  /** Store the message, call the model of the server, and return the stored answer. */
  async generate(message?: Content, options: GenerateOptions = {}): Promise<Turn> {
    return lastTurn(this.generateStream(message, options));
  }

  /**
   * The same, with the answer's events as they arrive. A lost connection is resumed without lost or repeated text. Leaving
   * the loop does not stop the answer, which runs on the server: call `stop` for that.
   */
  generateStream(message?: Content, options: GenerateOptions = {}): AsyncGenerator<AnswerEvent, void> {
    const { signal, replaces, ...fields } = options;
    const asked = message === undefined ? {} : { message, idempotency_key: fields.idempotency_key ?? key() };
    const body = { ...fields, ...asked, ...(replaces && { replaces: idOf(replaces) }) };
    const path = `/api/conversations/${this.id}/generate`;
    const repeatable = message !== undefined;
    return answerEvents(this.transport, { conversation: this.id, path, body, repeatable, ...(signal && { signal }) });
  }

  /** Answer a question again, in a new branch. */
  regenerateStream(turn: TurnRef, options: RegenerateOptions = {}): AsyncGenerator<AnswerEvent, void> {
    const { signal, ...body } = options;
    const path = `/api/conversations/${this.id}/turns/${idOf(turn)}/regenerate`;
    return answerEvents(this.transport, { conversation: this.id, path, body, repeatable: false, ...(signal && { signal }) });
  }

  async regenerate(turn: TurnRef, options: RegenerateOptions = {}): Promise<Turn> {
    return lastTurn(this.regenerateStream(turn, options));
  }

  /** Stop the running answers, in every process of the server. The text so far is kept. */
  async stop(): Promise<void> {
    await this.transport.call("post", `${HERE}/stop`, { path: this.path, repeatable: true });
  }

  /** The recorded calls to models, with the request that was sent. */
  async requests(options: Query<`${typeof HERE}/requests`, "get"> = {}): Promise<ModelRequest[]> {
    return (await this.transport.call("get", `${HERE}/requests`, { path: this.path, query: options })).items;
  }

  // ---- the log

  /** Follow the events of this conversation, from a position or from now on. Reconnects by itself, without lost or repeated events. */
  subscribe(options: SubscribeOptions = {}): AsyncGenerator<LiveEvent, void> {
    const after = options.after ?? this.known.last_event;
    return follow(this.transport, `/api/conversations/${this.id}/events`, {}, { ...options, after });
  }

  async audit(options: AuditOptions = {}): Promise<LogEvent[]> {
    const { signal, turn, ...rest } = options;
    const query = { ...rest, ...(turn && { turn: idOf(turn) }) };
    return (await this.transport.call("get", `${HERE}/audit`, { path: this.path, query, ...(signal && { signal }) })).items;
  }

  /** Recompute the fingerprints of the whole log. Throws `VerificationFailed` if a row was changed, moved or removed. */
  async verify(options: Cancellable = {}): Promise<Verified> {
    const found = await this.transport.call("post", `${HERE}/verify`, { path: this.path, repeatable: true, ...options });
    if (!found.ok) throw failure("VerificationFailed", `${found.row}: ${found.problem}`);
    return found;
  }

  // ---- files

  /** Store a file. Then put its id into `attachments` of a turn or a message. */
  async attach(data: Blob | Uint8Array<ArrayBuffer> | string, options: With<{ filename?: string; media_type?: string }> = {}): Promise<Attachment> {
    const { signal, filename, media_type } = options;
    const kind = media_type ?? (data instanceof Blob && data.type ? data.type : "application/octet-stream");
    const raw = { query: { filename }, body: data, headers: { "Content-Type": kind }, ...(signal && { signal }) };
    return (await this.transport.send("POST", `/api/conversations/${this.id}/attachments`, raw)).json() as Promise<Attachment>;
  }

  async attachments(options: Query<`${typeof HERE}/attachments`, "get"> = {}): Promise<Attachment[]> {
    return (await this.transport.call("get", `${HERE}/attachments`, { path: this.path, query: options })).items;
  }

  async attachment(attachment: string | { id: string }): Promise<Attachment> {
    return this.transport.call("get", FILE, { path: { ...this.path, attachment: idOf(attachment) } });
  }

  async readAttachment(attachment: string | { id: string }, options: Cancellable = {}): Promise<Uint8Array> {
    const path = `/api/conversations/${this.id}/attachments/${idOf(attachment)}/content`;
    return new Uint8Array(await (await this.transport.send("GET", path, options)).arrayBuffer());
  }

  async attachmentText(attachment: string | { id: string }): Promise<FileText> {
    return this.transport.call("get", `${FILE}/text`, { path: { ...this.path, attachment: idOf(attachment) } });
  }

  private of(turn: TurnRef): { conversation: string; turn: string } {
    return { ...this.path, turn: idOf(turn) };
  }
}

const idOf = (one: string | { id: string }): string => (typeof one === "string" ? one : one.id);
const key = (): string => globalThis.crypto.randomUUID();

async function lastTurn(events: AsyncIterable<AnswerEvent>): Promise<Turn> {
  for await (const event of events) if (event.kind === "done") return event.turn;
  throw failure("EngineUnavailable", "the server ended the stream before the answer was complete");
}

