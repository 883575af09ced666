/** Palaver from TypeScript: `const store = await open({ url, key })`. */

export { open, Store } from "./store.ts";
export type { Caller, ConversationFields, ListOptions, SearchOptions } from "./store.ts";
export { Conversation } from "./conversation.ts";
export type {
  AppendOptions, AuditOptions, ContextOptions, ConversationChanges, EditOptions, GenerateOptions, HistoryOptions, NoteList, RecallOptions,
  RegenerateOptions, StreamOptions, TurnRef,
} from "./conversation.ts";
export { Person } from "./person.ts";
export { TurnWriter } from "./writer.ts";
export type { StreamEnd } from "./writer.ts";
export { PalaverError } from "./errors.ts";
export type { Problem } from "./errors.ts";
export type { AnswerEvent, ToolCall } from "./answer.ts";
export type { DeltaEvent, GoneEvent, LiveEvent, OtherEvent, ResetEvent, SubscribeOptions, TurnEvent } from "./live.ts";
export type { Call, Cancellable, Method, OpenOptions, Path, Reply } from "./transport.ts";
export { textOf } from "./types.ts";
export type * from "./types.ts";
export type { components, paths } from "./schema.ts";
