/** The conversation on the page: read once, then followed; questions go out here. */

import { adviceOf, Problem, toProblem } from "../api/client";
import type { Attachment, Branch, Conversation, Turn } from "../api/types";
import * as api from "../api/verbs";
import { follow } from "../sse/follow";
import { type Message, messagesOf } from "../sse/parser";
import { put, tellOthers } from "./conversations";
import { keepDraft, moveDraft, readDraft } from "./drafts";
import { afterFrames, type Need, NO_THREAD, type Thread, threadOf, withTurn } from "./frames";
import { navigate, route } from "./route";
import { Store } from "./store";
import { textOf } from "./text";
import { complain, say } from "./toasts";
import { isInTheMaking } from "./views";

const PAGE = 30;
const MOST = 1_000;

/** A question that is on its way: shown at once, replaced by the stored turn when the log tells of it. */
export interface Asking {
  key: string;
  message: string;
  attachments: Attachment[];
  replaces?: string;
  failed: string | null;
}

export interface Talk {
  /** Changes when another conversation is opened; not when a new chat becomes one. */
  visit: number;
  id: string | null;
  phase: "new" | "loading" | "ready" | "failed" | "gone";
  problem: string;
  info: Conversation | null;
  thread: Thread;
  older: string | null;
  branches: Branch[];
  asking: Asking | null;
  /** An edit that could not be sent and is open in its form again. */
  unsentEdit: Asking | null;
  /** An answer that was asked for here is being made. */
  busy: boolean;
  thinking: string;
  /** Why there is no answer. */
  failure: string | null;
  live: boolean;
  /** How often memory changed since it was opened: whoever shows it reads it again. */
  remembered: number;
}

const REMEMBERED = new Set(["remember", "summarize", "extract_facts", "forget_fact", "forget", "retire", "reset"]);

const NEW: Talk = {
  visit: 0, id: null, phase: "new", problem: "", info: null, thread: NO_THREAD, older: null, branches: [], asking: null, unsentEdit: null,
  busy: false, thinking: "", failure: null, live: true,
  remembered: 0,
};
export const talk = new Store<Talk>(NEW);

/** While an answer is made, here or by another tab, nothing else is asked. */
export const isBusy = (one: Talk) => one.busy || isInTheMaking(one.thread.turns);

let unfollow: () => void = () => undefined;
let visit = 0; // which conversation is open: what was asked in another one is not for this one
let round = 0; // which reading of it: what comes late is not shown

const isNow = (mine: number) => mine === round;

// ---- opening

export function open(id: string | null): void {
  if (id === talk.get().id) return;
  keepUnsent(talk.get());
  visit++;
  round++;
  unfollow();
  talk.set({ ...NEW, visit, id, phase: id ? "loading" : "new" });
  if (id) void read(id, PAGE);
}

/** What could not be sent is there again when its conversation is opened again. */
function keepUnsent({ id, asking }: Talk): void {
  if (asking?.failed && !asking.replaces && !readDraft(id)) keepDraft(id, asking.message);
}

/** Read the turns, then follow from the event number that came with them: nothing is missed in between. */
async function read(id: string, limit: number): Promise<void> {
  const mine = round;
  try {
    const [page, info, branches] = await Promise.all([
      api.listTurns(id, Math.min(limit, MOST)), api.getConversation(id), api.listBranches(id),
    ]);
    if (!isNow(mine)) return;
    talk.patch({ phase: "ready", thread: threadOf(page.items), older: page.older, info, branches, live: true });
    put(info);
    begin(id, page.last_event);
  } catch (problem) {
    if (!isNow(mine)) return;
    const isGone = problem instanceof Problem && (problem.status === 404 || problem.status === 410);
    talk.patch({ phase: isGone ? "gone" : "failed", problem: adviceOf(problem) });
  }
}

export function reopen(): void {
  const { id } = talk.get();
  if (!id) return;
  round++;
  unfollow();
  talk.patch({ phase: "loading", problem: "" });
  void read(id, PAGE);
}

/** One page back. Answers whether there was one. */
export async function loadOlder(): Promise<boolean> {
  const { older } = talk.get();
  if (!older || waiting === round) return false;
  const mine = (waiting = round);
  try {
    const page = await api.listTurnsAt(older);
    if (!isNow(mine)) return false;
    const { thread } = talk.get();
    const here = new Set(thread.turns.map((one) => one.id));
    const turns = [...page.items.filter((one) => !here.has(one.id)), ...thread.turns];
    talk.patch({ thread: { ...thread, turns }, older: page.older });
    return true;
  } catch (problem) {
    if (isNow(mine)) complain(adviceOf(problem));
    return false;
  } finally {
    if (waiting === mine) waiting = -1;
  }
}
let waiting = -1; // the reading whose page before is on its way

// ---- following

function begin(id: string, after: number): void {
  const mine = round;
  let queue: Message[] = [];
  const flush = () => {
    const messages = queue;
    queue = [];
    if (isNow(mine)) hear(id, messages);
  };
  unfollow = follow(api.eventsPath(id), after, {
    onMessage: (message) => {
      if (message.event === "reset" && !JSON.parse(message.data).kind) return void reread(id); // the point is lost
      if (queue.push(message) === 1) nextFrame(flush); // drawn once per frame, however fast it comes
    },
    onState: (live) => isNow(mine) && talk.patch({ live }),
    onEnd: (problem) => {
      if (!isNow(mine) || !problem) return;
      if (problem.status === 404 || problem.status === 410) return talk.patch({ phase: "gone" });
      talk.patch({ live: false });
      complain(adviceOf(problem)); // else the page would only fall silent
    },
  });
}

function nextFrame(run: () => void): void {
  if (document.hidden) setTimeout(run, 50);
  else requestAnimationFrame(run);
}

function hear(id: string, messages: Message[]): void {
  const now = talk.get();
  const { thread, needs } = afterFrames(now.thread, messages);
  const isAnswered = thread.turns.at(-1)?.role === "assistant";
  talk.set({
    ...now,
    thread,
    asking: now.asking && isStored(now.asking, now.thread, thread) ? null : now.asking,
    failure: isAnswered ? null : now.failure,
    remembered: now.remembered + (messages.some((one) => REMEMBERED.has(one.event)) ? 1 : 0),
  });
  if (needs.size) void fetchAll(id, needs);
}

/** Whether the log has told of a question: a user turn with its words that was not there before. */
function isStored(asking: Asking, before: Thread, after: Thread): boolean {
  const known = new Set(before.turns.map((one) => one.id));
  return after.turns.some((one) => one.role === "user" && !known.has(one.id) && textOf(one.content) === asking.message);
}

async function fetchAll(id: string, needs: Set<Need>): Promise<void> {
  if (needs.has("gone")) {
    unfollow();
    return talk.patch({ phase: "gone" });
  }
  if (needs.has("turns")) return void reread(id);
  const mine = round;
  try {
    const [info, branches] = await Promise.all([
      needs.has("info") ? api.getConversation(id) : null,
      needs.has("branches") ? api.listBranches(id) : null,
    ]);
    if (info) {
      put(info);
      if (info.title !== talk.get().info?.title) tellOthers();
    }
    if (isNow(mine)) talk.patch({ ...(info && { info }), ...(branches && { branches }) });
  } catch {
    // what is shown stays; the next event tries again
  }
}

/** From the start, without an empty page in between. */
function reread(id: string): Promise<void> {
  round++;
  unfollow();
  return read(id, Math.max(PAGE, talk.get().thread.turns.length));
}

// ---- asking

let creating: { visit: number; id: Promise<string> } | null = null;

/** The conversation on the page; a new chat becomes one, once, however many files and messages ask for it. */
export function ensureConversation(): Promise<string> {
  const { id } = talk.get();
  if (id) return Promise.resolve(id);
  if (creating?.visit !== visit) {
    creating = { visit, id: create() };
    creating.id.catch(() => (creating = null)); // the next one tries again
  }
  return creating.id;
}

async function create(): Promise<string> {
  const mine = visit;
  const info = await api.createConversation();
  put(info);
  if (mine !== visit) return info.id;
  moveDraft(info.id);
  talk.patch({ id: info.id, info, phase: "ready" });
  if (!route.get().conversation) navigate(info.id, { replace: true });
  begin(info.id, info.last_event);
  return info.id;
}

/** Whether something may be asked now; if not, that is said. */
function isFree(): boolean {
  if (isBusy(talk.get())) say("There is an answer in the making. Wait for it, or stop it.");
  return !isBusy(talk.get());
}

export function ask(message: string, attachments: Attachment[], model?: string, replaces?: string): Promise<void> {
  const asking: Asking = { key: crypto.randomUUID(), message, attachments, failed: null, ...(replaces && { replaces }) };
  return askAs(asking, model);
}

/** The same question once more: the same key, so that it is stored once. */
export function askAgain(model?: string): Promise<void> {
  const { asking } = talk.get();
  return asking ? askAs({ ...asking, failed: null }, model) : Promise.resolve();
}

async function askAs(asking: Asking, model?: string): Promise<void> {
  if (!isFree()) return;
  const { thread } = talk.get();
  const replaced = thread.turns.find((one) => one.id === asking.replaces);
  const turns = replaced ? thread.turns.filter((one) => one.position < replaced.position) : thread.turns;
  talk.patch({ asking, failure: null, thinking: "", thread: { ...thread, turns, cut: null } });
  const question = {
    message: asking.message,
    ...(asking.attachments.length && { attachments: asking.attachments.map((one) => one.id) }),
    ...(asking.replaces && { replaces: asking.replaces }),
    ...(model && { model }),
  };
  await answer(async () => api.generate(await ensureConversation(), question, asking.key));
}

/** Answer the thread as it stands: after a failure, or when the page was closed before there was an answer. */
export async function answerAgain(model?: string): Promise<void> {
  if (!isFree()) return;
  const { id } = talk.get();
  talk.patch({ failure: null, thinking: "", thread: { ...talk.get().thread, cut: null } });
  return answer(() => api.generate(id!, model ? { model } : {}));
}

export async function regenerate(turn: string, model?: string): Promise<void> {
  if (!isFree()) return;
  const { id, thread } = talk.get();
  const place = thread.turns.findIndex((one) => one.id === turn);
  const question = thread.turns.slice(0, place + 1).findLastIndex((one) => one.role === "user");
  talk.patch({ failure: null, thinking: "", thread: { ...thread, turns: thread.turns.slice(0, question + 1), cut: null } });
  return answer(() => api.regenerate(id!, turn, model), () => void reread(id!));
}

/**
 * The text comes by the live feed, as in every other tab; from here come thoughts, the end, and what went wrong.
 * `putBack` shows again what was taken away for it.
 */
async function answer(begin: () => Promise<Response>, putBack?: () => void): Promise<void> {
  const mine = visit;
  const isHere = () => mine === visit;
  talk.patch({ busy: true });
  let isStarted = false;
  try {
    for await (const message of messagesOf(await begin())) {
      isStarted = true;
      if (isHere()) hearAnswer(message);
    }
    tellOthers();
  } catch (problem) {
    if (isHere()) fail(problem, isStarted, putBack);
  } finally {
    if (isHere()) talk.patch({ busy: false });
  }
}

function hearAnswer(message: Message): void {
  const now = talk.get();
  const data = JSON.parse(message.data);
  if (message.event === "reasoning") talk.patch({ thinking: now.thinking + data.text });
  if (message.event === "message") talk.patch({ asking: null, thread: withQuestion(now.thread, data.turn) });
  if (message.event === "done") talk.patch({ thread: withTurn(now.thread, data.turn) });
  if (message.event === "error") throw toProblem(data);
}

/** The live feed may have told of it already, and of what follows. */
const withQuestion = (thread: Thread, turn: Turn) =>
  thread.turns.some((one) => one.id === turn.id) ? thread : withTurn(thread, turn, false, true);

function fail(problem: unknown, isStarted: boolean, putBack?: () => void): void {
  const { asking, id } = talk.get();
  if (isStarted && !(problem instanceof Problem)) return; // the connection broke; the answer goes on, and we follow it
  if (putBack) complain(`There is no new answer. ${adviceOf(problem)}`);
  else if (asking) talk.patch({ asking: { ...asking, failed: adviceOf(problem) } });
  else talk.patch({ failure: adviceOf(problem), thinking: "" });
  if (id && asking?.replaces) void reread(id);
  putBack?.();
}

/** Take back a message that was not sent. Returns it for the composer; an edit is opened in its own form instead. */
export function takeBack(): Asking | null {
  const { asking, thread } = talk.get();
  const isEdit = thread.turns.some((one) => one.id === asking?.replaces);
  talk.patch({ asking: null, unsentEdit: isEdit ? asking : null });
  return isEdit ? null : asking;
}

export const discardEdit = () => talk.patch({ unsentEdit: null });

export async function stopAnswer(): Promise<void> {
  const { id } = talk.get();
  if (!id) return;
  try {
    await api.stop(id);
  } catch (problem) {
    complain(`It could not be stopped. ${adviceOf(problem)}`);
  }
}

export async function switchTo(turn: string): Promise<void> {
  if (!isFree()) return;
  const { id } = talk.get();
  try {
    await api.switchBranch(id!, turn);
    await reread(id!);
  } catch (problem) {
    complain(adviceOf(problem));
  }
}
