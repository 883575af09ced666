/** The list of conversations. Changes are shown at once and undone with a message if the server rejects them. */

import { adviceOf, Problem } from "../api/client";
import type { Conversation, Fields } from "../api/types";
import * as api from "../api/verbs";
import { inListOrder, isArchived, isPinned, withPlaceKept } from "./placement";
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
  /** It was open when it was deleted: undoing opens it again. */
  wasOpen: boolean;
  /** The request was sent: too late to undo. */
  isSent: boolean;
}

// ---- loading

export async function load(): Promise<void> {
  try {
    const page = await api.listConversations(PAGE);
    conversations.set({ phase: "ready", problem: "", items: mergeConversations([], page.items), next: page.next });
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
  return withoutDeleted([...all.values()]).sort(inListOrder);
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
  return change({ ...before, title }, { title: title.trim(), metadata: withPlaceKept(before) }, "The title was not changed.");
}

export function pin(conversation: Conversation): Promise<boolean> {
  return changeMetadata(conversation, { pinned: !isPinned(conversation) });
}

/** Take a conversation out of the list, or put it back. Archiving the open one leads to a new chat. */
export async function archive(conversation: Conversation): Promise<void> {
  const isBack = isArchived(conversation);
  if (!(await changeMetadata(conversation, { archived: !isBack, pinned: false })) || isBack) return;
  const wasOpen = route.get().conversation === conversation.id;
  if (wasOpen) navigate(null);
  const undo = () => {
    const now = conversations.get().items.find((one) => one.id === conversation.id);
    if (now) void changeMetadata(now, { archived: false });
    if (wasOpen) navigate(conversation.id);
  };
  showMessage(`Archived “${titleOf(conversation)}”.`, { action: { label: "Undo", run: undo } });
}

/** Change metadata of a conversation without moving it in the list. */
export function changeMetadata(conversation: Conversation, changes: Fields): Promise<boolean> {
  const metadata = withPlaceKept(conversation, changes);
  return change({ ...conversation, metadata }, { metadata }, "The change was not saved.");
}

/** Show a change at once, send it, and take it back if the server rejects it. Returns whether it was stored. */
export async function change(changed: Conversation, fields: Fields, failure: string): Promise<boolean> {
  const before = conversations.get().items.find((one) => one.id === changed.id);
  put(changed);
  try {
    put(await api.updateConversation(changed.id, fields));
    notifyOtherTabs();
    return true;
  } catch (problem) {
    if (before) put(before);
    showError(`${failure} ${adviceOf(problem)}`);
    return false;
  }
}

/** Remove a conversation from the list now, and delete it on the server after five seconds unless undone. */
export function remove(conversation: Conversation): void {
  const { id } = conversation;
  const toast = showMessage(`Deleted “${titleOf(conversation)}”.`, {
    seconds: UNDO_SECONDS,
    action: { label: "Undo", run: () => deletions.get(id)?.isSent || undoDeletion(id) },
  });
  const timer = setTimeout(() => void deleteNow(id), UNDO_SECONDS * 1_000);
  const wasOpen = route.get().conversation === id;
  deletions.set(id, { conversation, toast, timer, wasOpen, isSent: false });
  conversations.patch({ items: withoutDeleted(conversations.get().items) });
  if (wasOpen) navigate(null);
}

function undoDeletion(id: string): void {
  const entry = deletions.get(id);
  if (!entry) return;
  clearTimeout(entry.timer);
  dismiss(entry.toast);
  deletions.delete(id);
  put(entry.conversation);
  if (entry.wasOpen && !route.get().conversation) navigate(id);
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

/** Delete an empty conversation, without a message about it. */
export function discard(id: string): void {
  conversations.patch({ items: conversations.get().items.filter((one) => one.id !== id) });
  api.deleteConversation(id).catch(() => undefined); // it stays out of the list in any case
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
