/** The list of conversations. Changes are shown at once and undone with a message if the server rejects them. */

import { adviceOf, Problem } from "../api/client";
import type { Conversation } from "../api/types";
import * as api from "../api/verbs";
import { navigate, route } from "./route";
import { Store } from "./store";
import { titleOf } from "./titles";
import { showError, dismiss, showMessage } from "./toasts";

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
const deletions = new Map<string, Deletion>();

interface Deletion {
  conversation: Conversation;
  timer: ReturnType<typeof setTimeout>;
  toast: number;
  /** The request was sent: too late to undo. */
  isSent: boolean;
}

// ---- loading

export async function load(): Promise<void> {
  try {
    const page = await api.listConversations(PAGE);
    conversations.set({ phase: "ready", problem: "", items: withoutDeleted(page.items), next: page.next });
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
      conversations.patch({ items: mergeConversations(now.items, page.items), next: page.next });
    })
    .catch((problem) => void showError(adviceOf(problem)))
    .finally(() => (more = null));
  return more;
}

/** Fetch changes made elsewhere: load the newest page again and merge it. */
export async function refresh(): Promise<void> {
  const now = conversations.get();
  if (now.phase !== "ready") return load();
  try {
    const page = await api.listConversations(PAGE);
    const oldest = page.items.at(-1)?.updated ?? "";
    const ids = new Set(page.items.map((one) => one.id));
    // Conversations that belong in this page's range but are not in it were deleted.
    const kept = conversations.get().items.filter((one) => ids.has(one.id) || (page.next !== null && one.updated < oldest));
    conversations.patch({ items: mergeConversations(kept, page.items), next: now.next ?? page.next });
  } catch {
    // keep the list; the next refresh tries again
  }
}

const withoutDeleted = (items: Conversation[]) => items.filter((one) => !deletions.has(one.id));

function mergeConversations(items: Conversation[], news: Conversation[]): Conversation[] {
  const all = new Map(items.map((one) => [one.id, one]));
  for (const one of news) all.set(one.id, one);
  return withoutDeleted([...all.values()]).sort((a, b) => (a.updated < b.updated ? 1 : a.updated > b.updated ? -1 : 0));
}

/** Add a conversation, or update it. */
export function put(conversation: Conversation): void {
  conversations.patch({ items: mergeConversations(conversations.get().items, [conversation]) });
}

/** Ask other tabs to refresh. They fetch the list themselves, because they may have another user. */
export function notifyOtherTabs(): void {
  others?.postMessage("changed");
}

// ---- changing

/** Returns whether the title was changed. */
export async function rename(id: string, title: string): Promise<boolean> {
  const before = conversations.get().items.find((one) => one.id === id);
  if (!before || !title.trim() || title === before.title) return true;
  replace({ ...before, title });
  try {
    put(await api.updateConversation(id, { title: title.trim() }));
    notifyOtherTabs();
    return true;
  } catch (problem) {
    replace(before);
    showError(`The title was not changed. ${adviceOf(problem)}`);
    return false;
  }
}

function replace(conversation: Conversation): void {
  const { items } = conversations.get();
  conversations.patch({ items: items.map((one) => (one.id === conversation.id ? conversation : one)) });
}

/** Remove a conversation from the list now, and delete it on the server after five seconds unless undone. */
export function remove(conversation: Conversation): void {
  const { id } = conversation;
  const toast = showMessage(`Deleted “${titleOf(conversation)}”.`, {
    seconds: UNDO_SECONDS,
    action: { label: "Undo", run: () => deletions.get(id)?.isSent || undoDeletion(id) },
  });
  const timer = setTimeout(() => void deleteNow(id), UNDO_SECONDS * 1_000);
  deletions.set(id, { conversation, toast, timer, isSent: false });
  conversations.patch({ items: withoutDeleted(conversations.get().items) });
  if (route.get().conversation === id) navigate(null);
}

function undoDeletion(id: string): void {
  const entry = deletions.get(id);
  if (!entry) return;
  clearTimeout(entry.timer);
  dismiss(entry.toast);
  deletions.delete(id);
  put(entry.conversation);
}

async function deleteNow(id: string): Promise<void> {
  const entry = deletions.get(id);
  if (!entry) return;
  entry.isSent = true;
  dismiss(entry.toast);
  try {
    await api.deleteConversation(id);
    deletions.delete(id);
    notifyOtherTabs();
  } catch (problem) {
    if (problem instanceof Problem && (problem.status === 404 || problem.status === 410)) return void deletions.delete(id);
    undoDeletion(id);
    showError(`“${titleOf(entry.conversation)}” was not deleted. ${adviceOf(problem)}`);
  }
}

/** Send pending deletions now, because the page is closing and they can no longer be undone. */
export function flushDeletions(): void {
  for (const [id, entry] of deletions) {
    clearTimeout(entry.timer);
    if (!entry.isSent) api.deleteConversation(id).catch(() => undefined); // nowhere to show an error
  }
  deletions.clear();
}

/** Load the list and keep it up to date. Returns a function that stops it. */
export function startSync(): () => void {
  void load();
  const end = new AbortController();
  const { signal } = end;
  others?.addEventListener("message", () => void refresh(), { signal });
  document.addEventListener("visibilitychange", () => document.hidden || void refresh(), { signal });
  addEventListener("pagehide", flushDeletions, { signal });
  return () => end.abort();
}
