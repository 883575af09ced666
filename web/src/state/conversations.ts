/** The list of conversations: changed at once, put back with a message when the server says no. */

import { adviceOf, Problem } from "../api/client";
import type { Conversation } from "../api/types";
import * as api from "../api/verbs";
import { navigate, route } from "./route";
import { Store } from "./store";
import { titleOf } from "./titles";
import { complain, dismiss, say } from "./toasts";

const PAGE = 200;
export const UNDO_SECONDS = 5;

export interface Conversations {
  phase: "loading" | "ready" | "failed";
  problem: string;
  items: Conversation[];
  next: string | null;
}

export const conversations = new Store<Conversations>({ phase: "loading", problem: "", items: [], next: null });
const others = "BroadcastChannel" in globalThis ? new BroadcastChannel("palaver") : null;
const leaving = new Map<string, Leaving>();

interface Leaving {
  conversation: Conversation;
  timer: ReturnType<typeof setTimeout>;
  toast: number;
  /** The server was told: it is too late to undo. */
  isSent: boolean;
}

// ---- reading

export async function load(): Promise<void> {
  try {
    const page = await api.listConversations(PAGE);
    conversations.set({ phase: "ready", problem: "", items: shown(page.items), next: page.next });
  } catch (problem) {
    conversations.patch({ phase: "failed", problem: adviceOf(problem) });
  }
}

let more: Promise<void> | null = null;

export function loadMore(): Promise<void> {
  const { next } = conversations.get();
  if (!next) return Promise.resolve();
  more ??= api
    .listConversations(PAGE, next)
    .then((page) => {
      const now = conversations.get();
      conversations.patch({ items: merged(now.items, page.items), next: page.next });
    })
    .catch((problem) => void complain(adviceOf(problem)))
    .finally(() => (more = null));
  return more;
}

/** What changed elsewhere: the newest page again, put over what is here. */
export async function refresh(): Promise<void> {
  const now = conversations.get();
  if (now.phase !== "ready") return load();
  try {
    const page = await api.listConversations(PAGE);
    const oldest = page.items.at(-1)?.updated ?? "";
    const ids = new Set(page.items.map((one) => one.id));
    // Of those that the page should hold, what it does not hold is gone.
    const kept = conversations.get().items.filter((one) => ids.has(one.id) || (page.next !== null && one.updated < oldest));
    conversations.patch({ items: merged(kept, page.items), next: now.next ?? page.next });
  } catch {
    // the list stays as it is; the next look tries again
  }
}

const shown = (items: Conversation[]) => items.filter((one) => !leaving.has(one.id));

function merged(items: Conversation[], news: Conversation[]): Conversation[] {
  const all = new Map(items.map((one) => [one.id, one]));
  for (const one of news) all.set(one.id, one);
  return shown([...all.values()]).sort((a, b) => (a.updated < b.updated ? 1 : a.updated > b.updated ? -1 : 0));
}

/** Put one in, or a newer state of it. */
export function put(conversation: Conversation): void {
  conversations.patch({ items: merged(conversations.get().items, [conversation]) });
}

/** The other tabs look for themselves: they may be signed in as somebody else. */
export function tellOthers(): void {
  others?.postMessage("changed");
}

// ---- changing

/** Answers whether it has the new title. */
export async function rename(id: string, title: string): Promise<boolean> {
  const before = conversations.get().items.find((one) => one.id === id);
  if (!before || !title.trim() || title === before.title) return true;
  replace({ ...before, title });
  try {
    put(await api.updateConversation(id, { title: title.trim() }));
    tellOthers();
    return true;
  } catch (problem) {
    replace(before);
    complain(`The title was not changed. ${adviceOf(problem)}`);
    return false;
  }
}

function replace(conversation: Conversation): void {
  const { items } = conversations.get();
  conversations.patch({ items: items.map((one) => (one.id === conversation.id ? conversation : one)) });
}

/** Gone from the list now, from the server in five seconds: until then it can be had back. */
export function remove(conversation: Conversation): void {
  const { id } = conversation;
  const toast = say(`Deleted “${titleOf(conversation)}”.`, {
    seconds: UNDO_SECONDS,
    action: { label: "Undo", run: () => leaving.get(id)?.isSent || putBack(id) },
  });
  const timer = setTimeout(() => void reallyRemove(id), UNDO_SECONDS * 1_000);
  leaving.set(id, { conversation, toast, timer, isSent: false });
  conversations.patch({ items: shown(conversations.get().items) });
  if (route.get().conversation === id) navigate(null);
}

function putBack(id: string): void {
  const entry = leaving.get(id);
  if (!entry) return;
  clearTimeout(entry.timer);
  dismiss(entry.toast);
  leaving.delete(id);
  put(entry.conversation);
}

async function reallyRemove(id: string): Promise<void> {
  const entry = leaving.get(id);
  if (!entry) return;
  entry.isSent = true;
  dismiss(entry.toast);
  try {
    await api.deleteConversation(id);
    leaving.delete(id);
    tellOthers();
  } catch (problem) {
    if (problem instanceof Problem && (problem.status === 404 || problem.status === 410)) return void leaving.delete(id);
    putBack(id);
    complain(`“${titleOf(entry.conversation)}” was not deleted. ${adviceOf(problem)}`);
  }
}

/** Whoever leaves cannot undo: what waits for its five seconds is deleted now, while we may. */
export function removeNow(): void {
  for (const [id, entry] of leaving) {
    clearTimeout(entry.timer);
    if (!entry.isSent) api.deleteConversation(id).catch(() => undefined); // nobody is left to tell
  }
  leaving.clear();
}

/** Read the list, and keep it true. Answers how to end that. */
export function begin(): () => void {
  void load();
  const end = new AbortController();
  const { signal } = end;
  others?.addEventListener("message", () => void refresh(), { signal });
  document.addEventListener("visibilitychange", () => document.hidden || void refresh(), { signal });
  addEventListener("pagehide", removeNow, { signal });
  return () => end.abort();
}
