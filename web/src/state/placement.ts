/**
 * Where a conversation stands in the list: pinned, archived, or by the time of its last message.
 * All of it is metadata of the conversation, so that it is the same on every device. Pure.
 */

import type { Conversation, Fields } from "../api/types";

export const isPinned = ({ metadata }: Conversation) => metadata.pinned === true;
export const isArchived = ({ metadata }: Conversation) => metadata.archived === true;
/** A chat in which nothing was said: one that was opened for a file that was not sent. */
export const isEmpty = ({ turn_count, title, preview }: Conversation) => turn_count === 0 && !title && !preview;

/**
 * The time by which it is listed. The server's `updated` also changes with the title; then the place that it had is kept in
 * the metadata, and counts until the next message.
 */
export function listedAt({ metadata, updated, next_seq: seq }: Conversation): string {
  const place = metadata.place as { at?: unknown; seq?: unknown } | undefined;
  return place && place.seq === seq && typeof place.at === "string" ? place.at : updated;
}

/** The metadata with changes, such that the conversation stays where it is in the list. */
export function withPlaceKept(conversation: Conversation, changes: Fields = {}): Fields {
  return { ...conversation.metadata, ...changes, place: { at: listedAt(conversation), seq: conversation.next_seq } };
}

export function inListOrder(one: Conversation, other: Conversation): number {
  if (isPinned(one) !== isPinned(other)) return isPinned(one) ? -1 : 1;
  const [a, b] = [listedAt(one), listedAt(other)];
  return a < b ? 1 : a > b ? -1 : 0;
}
