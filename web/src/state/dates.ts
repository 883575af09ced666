/** Dates for the list of conversations. Pure: the current time is an argument. */

import type { Conversation } from "../api/types";

const DAY = 86_400_000;

export function groupOf(updated: Date, now: Date): string {
  const days = Math.round((midnight(now) - midnight(updated)) / DAY); // rounded, because a day may have 23 or 25 hours
  if (days <= 0) return "Today";
  if (days === 1) return "Yesterday";
  if (days <= 7) return "Previous 7 days";
  return updated.toLocaleDateString("en", { month: "long", year: "numeric" });
}

const midnight = (date: Date) => new Date(date.getFullYear(), date.getMonth(), date.getDate()).getTime();

export type Row = { kind: "group"; name: string } | { kind: "conversation"; conversation: Conversation };

/** The rows of the list, with a heading before each group. Keeps the order of the conversations. */
export function rowsOf(conversations: Conversation[], now: Date): Row[] {
  const rows: Row[] = [];
  let group = "";
  for (const conversation of conversations) {
    const name = groupOf(new Date(conversation.updated), now);
    if (name !== group) rows.push({ kind: "group", name: (group = name) });
    rows.push({ kind: "conversation", conversation });
  }
  return rows;
}

const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const full = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

export const timeOf = (iso: string) => clock.format(new Date(iso));
export const momentOf = (iso: string) => full.format(new Date(iso));
