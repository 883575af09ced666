/** Dates for the list of conversations and for times on the page. The current time is an argument. */

import type { Conversation } from "../api/types";
import { isPinned, listedAt } from "./placement";

const DAY = 86_400_000;
export const PINNED = "Pinned";

export function groupOf(listed: Date, now: Date): string {
  const days = Math.round((midnight(now) - midnight(listed)) / DAY); // rounded, because a day may have 23 or 25 hours
  if (days <= 0) return "Today";
  if (days === 1) return "Yesterday";
  if (days <= 7) return "Previous 7 days";
  return listed.toLocaleDateString("en", { month: "long", year: "numeric" });
}

const midnight = (date: Date) => new Date(date.getFullYear(), date.getMonth(), date.getDate()).getTime();

export type Row = { kind: "group"; name: string } | { kind: "conversation"; conversation: Conversation };

/** The rows of the list, with a heading before each group. Keeps the order of the conversations. */
export function rowsOf(conversations: Conversation[], now: Date): Row[] {
  const rows: Row[] = [];
  let group = "";
  for (const conversation of conversations) {
    const name = isPinned(conversation) ? PINNED : groupOf(new Date(listedAt(conversation)), now);
    if (name !== group) rows.push({ kind: "group", name: (group = name) });
    rows.push({ kind: "conversation", conversation });
  }
  return rows;
}

// ---- times on the page, in the language that the person chose

let formats = formatsFor("");

function formatsFor(language: string) {
  const locale = language || undefined;
  return {
    clock: new Intl.DateTimeFormat(locale, { hour: "2-digit", minute: "2-digit" }),
    day: new Intl.DateTimeFormat(locale, { dateStyle: "medium" }),
    full: new Intl.DateTimeFormat(locale, { dateStyle: "medium", timeStyle: "short" }),
  };
}

export function setDateLanguage(language: string): void {
  try {
    formats = formatsFor(language);
  } catch {
    formats = formatsFor(""); // not a language tag
  }
}

export const timeOf = (iso: string) => formats.clock.format(new Date(iso));
export const dayOf = (iso: string) => formats.day.format(new Date(iso));
export const momentOf = (iso: string) => formats.full.format(new Date(iso));
