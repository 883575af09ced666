/** The open conversation: loaded once, then followed by the live feed. Messages are sent from here. */

import { adviceOf, Problem, toProblem } from "../api/client";
import type { Attachment, Branch, Conversation, Turn } from "../api/types";
import * as api from "../api/verbs";
import { follow } from "../sse/follow";
import { type Message, messagesOf } from "../sse/parser";
import { change, discard, put, notifyOtherTabs } from "./conversations";
import { keepDraft, moveDraft, readDraft } from "./drafts";
import { afterFrames, type Need, NO_THREAD, type Thread, threadOf, withTurn } from "./frames";
import { isEmpty, withPlaceKept } from "./placement";
import { navigate, route } from "./route";
import { Store } from "./store";
import { textOf } from "./text";
import { showError, showMessage } from "./toasts";
import { isAnswerRunning } from "./views";

const PAGE = 30;
const MOST = 1_000;
const AGAIN = 3_000; // milliseconds until a conversation that could not be opened is tried again

/** A message being sent: shown at once, and replaced by the stored turn when the live feed delivers it. */
export interface OutgoingMessage {
  key: string;
  message: string;
  attachments: Attachment[];
  replaces?: string;
  failed: string | null;
}

export interface QueuedMessage {
  key: string;
  message: string;
  attachments: Attachment[];
}

export interface CurrentConversation {
  /** Changes when another conversation is opened, but not when a new chat becomes a conversation. */
  visit: number;
  id: string | null;
  phase: "new" | "loading" | "ready" | "failed" | "gone";
  problem: string;
  info: Conversation | null;
  thread: Thread;
  older: string | null;
  branches: Branch[];
  outgoing: OutgoingMessage | null;
  /** Messages written while an answer was running: sent one after the other when it has ended. */
  queue: QueuedMessage[];
  /** The model chosen before the conversation was there; afterwards it is part of `info`. */
  model: string | null;
  /** An edit that could not be sent and is open in its form again. */
  unsentEdit: OutgoingMessage | null;
  /** An answer requested by this tab is running. */
  busy: boolean;
  thinking: string;
  /** Why there is no answer. */
  failure: string | null;
  live: boolean;
  /** Incremented when memory changes, so that panels that show it reload. */
  memoryVersion: number;
}

const MEMORY_EVENTS = new Set(["remember", "summarize", "extract_facts", "forget_fact", "forget", "retire", "reset"]);

const NEW: CurrentConversation = {
  visit: 0, id: null, phase: "new", problem: "", info: null, thread: NO_THREAD, older: null, branches: [], outgoing: null, queue: [], model: null, unsentEdit: null,
  busy: false, thinking: "", failure: null, live: true,
  memoryVersion: 0,
};
export const current = new Store<CurrentConversation>(NEW);

/** Whether an answer is running, in this tab or another. Nothing else can be sent then. */
export const isBusy = (one: CurrentConversation) => one.busy || isAnswerRunning(one.thread.turns);

let unfollow: () => void = () => undefined;
let visit = 0; // number of the open conversation; results for an earlier one are ignored
let round = 0; // number of the current load; results of an earlier one are ignored

const isNow = (mine: number) => mine === round;

// ---- opening

export function open(id: string | null): void {
  if (id === current.get().id) return;
  saveUnsentDraft(current.get());
  discardIfEmpty(current.get());
  visit++;
  round++;
  unfollow();
  current.set({ ...NEW, visit, id, phase: id ? "loading" : "new" });
  if (id) void read(id, PAGE);
}

/** Keep an unsent message as the draft of its conversation. */
function saveUnsentDraft({ id, outgoing }: CurrentConversation): void {
  if (outgoing?.failed && !outgoing.replaces && !readDraft(id)) keepDraft(id, outgoing.message);
}

/** Delete a chat that was made for a file and left without a message. */
function discardIfEmpty({ info, outgoing, thread, phase }: CurrentConversation): void {
  if (info && madeHere.has(info.id) && phase === "ready" && isEmpty(info) && !outgoing && !thread.turns.length) discard(info.id);
}
const madeHere = new Set<string>(); // conversations created by this tab

/** Load the turns, then follow from the event number they came with, so that nothing is missed. */
async function read(id: string, limit: number): Promise<void> {
  const mine = round;
  try {
    const [page, info, branches] = await Promise.all([
      api.listTurns(id, Math.min(limit, MOST)), api.getConversation(id), api.listBranches(id),
    ]);
    if (!isNow(mine)) return;
    const { model } = current.get();
    current.patch({ phase: "ready", thread: threadOf(page.items), older: page.older, info, branches, live: true });
    if (model) chooseModel(model);
    put(info);
    startFollowing(id, page.last_event);
  } catch (problem) {
    if (!isNow(mine)) return;
    const isGone = problem instanceof Problem && (problem.status === 404 || problem.status === 410);
    current.patch({ phase: isGone ? "gone" : "failed", problem: adviceOf(problem) });
    if (!isGone && isTemporary(problem)) setTimeout(() => isNow(mine) && reopen(), AGAIN);
  }
}

const isTemporary = (problem: unknown) => problem instanceof Problem && (problem.status === 0 || problem.status >= 500);

export function reopen(): void {
  const { id } = current.get();
  if (!id) return;
  round++;
  unfollow();
  void read(id, PAGE); // keep the error message until a retry succeeds
}

/** Load the previous page. Returns whether there was one. */
export async function loadOlder(): Promise<boolean> {
  const { older } = current.get();
  if (!older || waiting === round) return false;
  const mine = (waiting = round);
  try {
    const page = await api.listTurnsAt(older);
    if (!isNow(mine)) return false;
    const { thread } = current.get();
    const here = new Set(thread.turns.map((one) => one.id));
    const turns = [...page.items.filter((one) => !here.has(one.id)), ...thread.turns];
    current.patch({ thread: { ...thread, turns }, older: page.older });
    return true;
  } catch (problem) {
    if (isNow(mine)) showError(adviceOf(problem));
    return false;
  } finally {
    if (waiting === mine) waiting = -1;
  }
}
let waiting = -1; // the load whose previous page is being fetched

// ---- following

function startFollowing(id: string, after: number): void {
  const mine = round;
  let queue: Message[] = [];
  const flush = () => {
    const messages = queue;
    queue = [];
    if (isNow(mine)) applyMessages(id, messages);
  };
  unfollow = follow(api.eventsPath(id), after, {
    onMessage: (message) => {
      if (message.event === "reset" && !JSON.parse(message.data).kind) return void reload(id); // the resume point is lost
      if (queue.push(message) === 1) nextFrame(flush); // render once per frame, however fast messages arrive
    },
    onState: (live) => isNow(mine) && current.patch({ live }),
    onEnd: (problem) => {
      if (!isNow(mine) || !problem) return;
      if (problem.status === 404 || problem.status === 410) return current.patch({ phase: "gone" });
      current.patch({ live: false });
      showError(adviceOf(problem)); // otherwise the page would just stop updating
    },
  });
}

function nextFrame(run: () => void): void {
  if (document.hidden) setTimeout(run, 50);
  else requestAnimationFrame(run);
}

function applyMessages(id: string, messages: Message[]): void {
  const now = current.get();
  const { thread, needs } = afterFrames(now.thread, messages);
  const isAnswered = thread.turns.at(-1)?.role === "assistant";
  current.set({
    ...now,
    thread,
    outgoing: now.outgoing && isStored(now.outgoing, now.thread, thread) ? null : now.outgoing,
    failure: isAnswered ? null : now.failure,
    memoryVersion: now.memoryVersion + (messages.some((one) => MEMORY_EVENTS.has(one.event)) ? 1 : 0),
  });
  if (needs.size) void fetchAll(id, needs);
}

/** Whether the feed has delivered an outgoing message: a new user turn with its text. */
function isStored(outgoing: OutgoingMessage, before: Thread, after: Thread): boolean {
  const known = new Set(before.turns.map((one) => one.id));
  return after.turns.some((one) => one.role === "user" && !known.has(one.id) && textOf(one.content) === outgoing.message);
}

async function fetchAll(id: string, needs: Set<Need>): Promise<void> {
  if (needs.has("gone")) {
    unfollow();
    return current.patch({ phase: "gone" });
  }
  if (needs.has("turns")) return void reload(id);
  const mine = round;
  try {
    const [info, branches] = await Promise.all([
      needs.has("info") ? api.getConversation(id) : null,
      needs.has("branches") ? api.listBranches(id) : null,
    ]);
    if (info) {
      put(info);
      if (info.title !== current.get().info?.title) notifyOtherTabs();
    }
    if (isNow(mine)) current.patch({ ...(info && { info }), ...(branches && { branches }) });
  } catch {
    // keep what is shown; the next event tries again
  }
}

/** Load the thread again without showing an empty page. */
function reload(id: string): Promise<void> {
  round++;
  unfollow();
  return read(id, Math.max(PAGE, current.get().thread.turns.length));
}

// ---- sending

let creating: { visit: number; id: Promise<string> } | null = null;

/** The id of the open conversation. A new chat is created once, even for concurrent calls. */
export function ensureConversation(): Promise<string> {
  const { id } = current.get();
  if (id) return Promise.resolve(id);
  if (creating?.visit !== visit) {
    creating = { visit, id: create() };
    creating.id.catch(() => (creating = null)); // the next call tries again
  }
  return creating.id;
}

async function create(): Promise<string> {
  const mine = visit;
  const { model } = current.get();
  const info = await api.createConversation(model ? { model } : {});
  madeHere.add(info.id);
  put(info);
  if (mine !== visit) return info.id;
  moveDraft(info.id);
  current.patch({ id: info.id, info, phase: "ready", model: null });
  if (!route.get().conversation) navigate(info.id, { replace: true });
  startFollowing(info.id, info.last_event);
  return info.id;
}

/** Returns whether a message may be sent now; if not, shows why. */
function requireIdle(): boolean {
  if (isBusy(current.get())) showMessage("An answer is being written. Wait for it, or stop it.");
  return !isBusy(current.get());
}

export function ask(message: string, attachments: Attachment[], replaces?: string): Promise<void> {
  return sendOutgoing({ key: crypto.randomUUID(), message, attachments, failed: null, ...(replaces && { replaces }) });
}

/** Keep a message until the running answer has ended. */
export function enqueue(message: string, attachments: Attachment[]): void {
  current.patch({ queue: [...current.get().queue, { key: crypto.randomUUID(), message, attachments }] });
}

/** Remove a message from the queue. Returns it, for the composer. */
export function dequeue(key: string): QueuedMessage | null {
  const { queue } = current.get();
  current.patch({ queue: queue.filter((one) => one.key !== key) });
  return queue.find((one) => one.key === key) ?? null;
}

/** Send the first message of the queue, unless something has to be decided first. */
export function sendQueued(): void {
  const now = current.get();
  const [first, ...queue] = now.queue;
  if (!first || isBusy(now) || now.failure || now.outgoing || now.thread.cut) return;
  current.patch({ queue });
  void sendOutgoing({ ...first, failed: null });
}

/** The model of this conversation, or null for the server's default. */
export const modelOf = (one: CurrentConversation) => one.model ?? one.info?.model ?? null;

/** Choose the model of this conversation, for this answer and later ones. */
export function chooseModel(model: string): void {
  const { info } = current.get();
  if (!info) return current.patch({ model }); // stored when the conversation is there
  const changed = { ...info, model, metadata: withPlaceKept(info) };
  current.patch({ info: changed, model: null });
  void change(changed, { model, metadata: changed.metadata }, "The model was not saved for this conversation.");
}

/** Send the failed message again with the same idempotency key, so that it is stored once. */
export function resend(): Promise<void> {
  const { outgoing } = current.get();
  return outgoing ? sendOutgoing({ ...outgoing, failed: null }) : Promise.resolve();
}

async function sendOutgoing(outgoing: OutgoingMessage): Promise<void> {
  if (!requireIdle()) return;
  const { thread } = current.get();
  const model = modelOf(current.get());
  const replaced = thread.turns.find((one) => one.id === outgoing.replaces);
  const turns = replaced ? thread.turns.filter((one) => one.position < replaced.position) : thread.turns;
  current.patch({ outgoing, failure: null, thinking: "", thread: { ...thread, turns, cut: null } });
  const question = {
    message: outgoing.message,
    ...(outgoing.attachments.length && { attachments: outgoing.attachments.map((one) => one.id) }),
    ...(outgoing.replaces && { replaces: outgoing.replaces }),
    ...(model && { model }),
  };
  await runAnswer(async () => api.generate(await ensureConversation(), question, outgoing.key));
}

/** Request an answer to the thread as it is: after a failure, or if the page was closed before the answer came. */
export async function requestAnswer(): Promise<void> {
  if (!requireIdle()) return;
  const { id } = current.get();
  const model = modelOf(current.get());
  current.patch({ failure: null, thinking: "", thread: { ...current.get().thread, cut: null } });
  return runAnswer(() => api.generate(id!, model ? { model } : {}));
}

export async function regenerate(turn: string): Promise<void> {
  if (!requireIdle()) return;
  const { id, thread } = current.get();
  const model = modelOf(current.get());
  const place = thread.turns.findIndex((one) => one.id === turn);
  const question = thread.turns.slice(0, place + 1).findLastIndex((one) => one.role === "user");
  current.patch({ failure: null, thinking: "", thread: { ...thread, turns: thread.turns.slice(0, question + 1), cut: null } });
  return runAnswer(() => api.regenerate(id!, turn, model ?? undefined), () => void reload(id!));
}

/**
 * Run a request for an answer. The text arrives by the live feed, as in every other tab; this response delivers reasoning,
 * the end and errors.
 * `putBack` restores turns that were hidden for it.
 */
async function runAnswer(request: () => Promise<Response>, putBack?: () => void): Promise<void> {
  const mine = visit;
  const isHere = () => mine === visit;
  current.patch({ busy: true });
  let isStarted = false;
  try {
    for await (const message of messagesOf(await request())) {
      isStarted = true;
      if (isHere()) applyAnswerEvent(message);
    }
    notifyOtherTabs();
  } catch (problem) {
    if (isHere()) fail(problem, isStarted, putBack);
  } finally {
    if (isHere()) current.patch({ busy: false });
  }
}

function applyAnswerEvent(message: Message): void {
  const now = current.get();
  const data = JSON.parse(message.data);
  if (message.event === "reasoning") current.patch({ thinking: now.thinking + data.text });
  if (message.event === "message") current.patch({ outgoing: null, thread: withQuestion(now.thread, data.turn) });
  if (message.event === "done") current.patch({ thread: withTurn(now.thread, data.turn) });
  if (message.event === "error") throw toProblem(data);
}

/** Add the question, unless the live feed has delivered it already. */
const withQuestion = (thread: Thread, turn: Turn) =>
  thread.turns.some((one) => one.id === turn.id) ? thread : withTurn(thread, turn, false, true);

function fail(problem: unknown, isStarted: boolean, putBack?: () => void): void {
  const { outgoing, id } = current.get();
  if (isStarted && !(problem instanceof Problem)) return; // connection lost; the live feed continues
  if (putBack) showError(`No new answer. ${adviceOf(problem)}`);
  else if (outgoing) current.patch({ outgoing: { ...outgoing, failed: adviceOf(problem) } });
  else current.patch({ failure: adviceOf(problem), thinking: "" });
  if (id && outgoing?.replaces) void reload(id);
  putBack?.();
}

/** Take back a message that was not sent. Returns it for the composer; an edit is opened in its own form instead. */
export function takeBack(): OutgoingMessage | null {
  const { outgoing } = current.get();
  const isEdit = outgoing?.replaces !== undefined; // its turn may still be loading
  current.patch({ outgoing: null, unsentEdit: isEdit ? outgoing : null });
  return isEdit ? null : outgoing;
}

export const discardEdit = () => current.patch({ unsentEdit: null });

export async function stopAnswer(): Promise<void> {
  const { id } = current.get();
  if (!id) return;
  try {
    await api.stop(id);
  } catch (problem) {
    showError(`The answer could not be stopped. ${adviceOf(problem)}`);
  }
}

export async function switchTo(turn: string): Promise<void> {
  if (!requireIdle()) return;
  const { id } = current.get();
  try {
    await api.switchBranch(id!, turn);
    await reload(id!);
  } catch (problem) {
    showError(adviceOf(problem));
  }
}
