/** The values that the server sends and accepts, as its OpenAPI document describes them. */

import type { components } from "./schema.ts";

type Schemas = components["schemas"];

export type Role = "user" | "assistant" | "system" | "tool";
export type Turn = Schemas["Turn"];
export type ConversationInfo = Schemas["Conversation"];
export type ConversationPage = Schemas["ConversationPage"];
export type Found = Schemas["FoundList"];
export type Matches = Schemas["Matches"];
export type Hits = Schemas["Hits"];
export type Context = Schemas["Context"];
export type Explanation = Schemas["Explanation"];
export type Summary = Schemas["Summary"];
export type Fact = Schemas["Facts"]["items"][number];
export type WorkingMemory = Schemas["WorkingMemory"];
export type Attachment = Schemas["Attachment"];
export type FileText = Schemas["FileText"];
export type Branch = Schemas["Branches"]["items"][number];
export type Answer = Schemas["Answer"];
export type ModelRequest = Schemas["Requests"]["items"][number];
export type LogEvent = Schemas["Events"]["items"][number];
export type Verified = Schemas["Verified"];
export type PersonItem = Schemas["PersonItem"];
export type Settings = Schemas["Settings"];

/** The content of a turn: text, or a list of parts. */
export type Content = NonNullable<Schemas["NewTurn"]["content"]>;

export interface Page<T> {
  items: T[];
  /** The cursor of the next page; null on the last page. */
  next: string | null;
}

/** A `pending` deletion is logged and takes effect at once; the server removes the last copies in the background. */
export interface Deletion {
  pending: boolean;
}

/** The text of a turn: its text parts, joined by newlines. */
export function textOf(turn: { content: Turn["content"] }): string {
  if (typeof turn.content === "string") return turn.content;
  return turn.content.filter((part) => part["type"] === "text").map((part) => String(part["text"])).join("\n");
}
