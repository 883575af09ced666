/** The API types that this app uses. The server's OpenAPI document has all of them. */

export type Json = null | boolean | number | string | Json[] | { [name: string]: Json };
export type Fields = { [name: string]: Json };

export interface Conversation {
  id: string;
  tenant: string;
  owner: string;
  key: string | null;
  workspace: string | null;
  agent: string | null;
  model: string | null;
  title: string | null;
  preview: string | null;
  participants: string[];
  metadata: Fields;
  settings: Fields;
  turn_count: number;
  token_count: number;
  next_seq: number;
  last_event: number;
  ttl: number | null;
  expires_at: string | null;
  created: string;
  updated: string;
}

export interface ConversationPage {
  items: Conversation[];
  next: string | null;
}

export type Role = "user" | "assistant" | "system" | "tool";

export interface ToolCall {
  id: string;
  name: string;
  arguments: Json;
}

export interface ToolResult {
  id: string;
  content: Json;
  is_error: boolean;
}

export interface Attachment {
  id: string;
  filename: string;
  media_type: string;
  bytes: number;
  sha256: string;
  turn: string | null;
}

export interface Turn {
  id: string;
  conversation: string;
  seq: number;
  position: number;
  role: Role;
  actor: string;
  content: string | Fields[];
  created: string;
  status: "pending" | "complete" | "aborted" | "forgotten";
  tool_calls: ToolCall[];
  tool_results: ToolResult[];
  attachments: Attachment[];
  sources: Fields[];
  tokens: { prompt: number | null; completion: number | null } | null;
  token_count: number;
  model: string | null;
  adapter: string | null;
  finish_reason: string | null;
  metadata: Fields;
  parent: string | null;
  active: boolean;
  superseded_by: string | null;
  content_hash: string | null;
}

export interface TurnPage {
  items: Turn[];
  older: string | null;
  newer: string | null;
  last_event: number;
}

export interface Branch {
  position: number;
  active: string | null;
  turns: Turn[];
}

export interface Match {
  turn: Turn;
  terms: string[];
  /** Offsets in the text, counted in code points, as Python counts them. */
  spans: [number, number][];
}

export interface Found {
  conversation: Conversation;
  in_title: boolean;
  matches: Match[];
}

export interface LogEvent {
  n: number;
  conversation: string;
  kind: string;
  actor: string;
  at: string;
  turn: string | null;
  payload: Fields;
  content_hash: string | null;
  hash: string;
}

export interface Settings {
  version: string;
  caller: { tenant: string; user: string | null; rights: string[]; visibility: string; workspace: string | null };
  auth: { required: boolean; jwt: boolean };
  limits: { content_bytes: number; file_bytes: number; [name: string]: number };
  models: { default: string; names: string[]; manageable?: boolean };
  /** Whether people are remembered across conversations. */
  person?: "off" | "read" | "read-write";
  policies: string[];
  agents: string[];
}

/** An item of a person's memory. */
export interface PersonItem {
  id: string;
  kind: "fact" | "preference" | "instruction" | "goal";
  text: string;
  subject: string | null;
  status: "approved" | "proposed";
  origin: string;
  said_by: string | null;
  learnt_at: string;
  ended_at: string | null;
  sources: { conversation: string; turn: string; said: string; title: string | null }[];
}

export interface BudgetLine {
  kind: string;
  name: string | null;
  measure: string;
  period: string;
  limit: number;
  used: number;
  left: number;
  resets_at: string | null;
}

export interface ManagedModel {
  name: string;
  model: string | null;
  base_url: string | null;
  has_key: boolean;
  /** Added in the web app, and not in the server's configuration. */
  managed: boolean;
  is_default: boolean;
}

export interface ManagedModels {
  items: ManagedModel[];
  default: string;
  hosts: string[];
}

export interface UsageLine {
  day: string;
  user: string;
  model: string;
  calls: number;
  prompt: number;
  completion: number;
}

// ---- requests and contexts

export interface Block {
  kind: string;
  reason: string;
  tokens: number;
  turn_ids: string[];
  from_seq: number | null;
  through_seq: number | null;
  scores: Fields[] | number[];
  [name: string]: Json;
}

/** A file of the message to answer: whether the model gets it, and why or why not. */
export interface ContextFile {
  name: string;
  attachment: string;
  state: "in full" | "in part" | "not sent";
  reason: string;
  tokens: number;
}

export interface Explanation {
  blocks: Block[];
  /** Missing in records of earlier versions. */
  files?: ContextFile[];
  budget: number;
  tokens: number;
  unit: string;
  policy: string;
  counter: string;
  recall: string | null;
  identical_prefix: number | null;
  /** How many turns are in the prompt, and in which form; missing in records of older versions. */
  coverage?: { verbatim: number; shortened: number; summarised: number; not_covered: number };
  left_out: Fields[];
  notes: string[];
  turns: { total: number; verbatim: number; [name: string]: number };
  tools_and_history_tokens?: number;
  [name: string]: unknown;
}

export interface Context {
  messages: Json;
  tokens: number;
  turn_ids: string[];
  explanation: Explanation;
}

export interface ModelRequest {
  id: string;
  conversation: string;
  at: string;
  model: string;
  adapter: string;
  turn: string | null;
  purpose: string;
  body: Fields | null;
  explanation: Explanation | null;
  response: Fields | null;
  previous_response_id: string | null;
}

// ---- memory

export interface Fact {
  id: string;
  subject: string;
  predicate: string;
  object: string;
  source_turn: string | null;
  confidence: number;
  valid_from: string;
  invalidated_at: string | null;
  invalidated_by: string | null;
  by: string;
  created: string | null;
}

export interface Hit {
  score: number;
  parts: { [name: string]: number };
  turn: Turn | null;
  fact: Fact | null;
}

export interface Summary {
  id: string;
  level: number;
  from_seq: number;
  through_seq: number;
  text: string;
  model: string;
  token_count: number;
  turns: number;
  created: string;
}

export interface Note {
  text: string;
  turn: string | null;
  by: string;
}

export const NOTE_LISTS = [
  "goals", "requirements", "constraints", "decisions", "assumptions", "open_questions", "glossary", "stakeholders",
  "instructions",
] as const;
export type NoteList = (typeof NOTE_LISTS)[number];
export type WorkingMemory = { summary: string; through_seq: number; extractor_failure: string | null }
  & { [list in NoteList]: Note[] };

export interface Verified {
  ok: boolean;
  conversation: string;
  events?: number | null;
  turns?: number | null;
  attachments?: number | null;
  tip?: string | null;
  seals?: number | null;
  row?: string | null;
  problem?: string | null;
}
