/** Streamed answers. After a lost connection, the server continues and the stream resumes: no text is lost or repeated. */

import { failure, PalaverError, type Problem } from "./errors.ts";
import { follow, type LiveEvent } from "./live.ts";
import type { Message } from "./sse.ts";
import { type Cancellable, isPassing, pause, type Transport, waitBefore } from "./transport.ts";
import { type Answer, textOf, type Turn } from "./types.ts";

export interface ToolCall {
  id: string;
  name: string;
  arguments: Record<string, unknown>;
}

export type AnswerEvent =
  /** The message is stored. */
  | { kind: "message"; turn: Turn }
  | { kind: "delta"; text: string }
  /** Not repeated after a lost connection. */
  | { kind: "reasoning"; text: string }
  /** The model calls tools of the server. */
  | { kind: "tool_calls"; turn: string; calls: ToolCall[] }
  | { kind: "tool_result"; id: string; name: string; content: unknown; is_error: boolean }
  /** The answer was interrupted and is being generated again: discard the text since the last tool call. */
  | { kind: "restart" }
  /** The answer is stored: `turn` is the last event. */
  | ({ kind: "done" } & Answer);

interface Asked extends Cancellable {
  conversation: string;
  /** The path of the request. */
  path: string;
  body: object;
  /** Whether the body has an idempotency key, with which it can be sent again. */
  repeatable: boolean;
}

/** Request an answer, and yield its events. Ending the iteration or the signal does not stop the answer on the server. */
export async function* answerEvents(transport: Transport, asked: Asked): AsyncGenerator<AnswerEvent, void> {
  const progress = new Progress();
  const deadline = Date.now() + transport.timeout;
  for (let attempt = 0; ; attempt++) {
    try {
      for await (const message of request(transport, asked)) yield* progress.read(message);
      if (progress.isDone) return;
    } catch (problem) {
      if (!isPassing(problem) || !asked.repeatable) throw problem;
      if (!progress.question && Date.now() > deadline) throw problem;
    }
    if (progress.question && asked.repeatable) return yield* resume(transport, asked, progress);
    if (!asked.repeatable) throw failure("ConnectionLost", "the connection was lost: read the conversation, or subscribe to it");
    await pause(waitBefore(attempt), asked.signal);
  }
}

const request = (transport: Transport, asked: Asked, signal = asked.signal) =>
  transport.events("POST", asked.path, {
    body: JSON.stringify({ ...asked.body, stream: true }),
    headers: { "Content-Type": "application/json" },
    ...(signal && { signal }),
  });

/**
 * Resume after a lost connection. The text comes from the log of the conversation. The end comes from a second request
 * with the same key: it waits for the running answer, or starts it again if it failed.
 */
async function* resume(transport: Transport, asked: Asked, progress: Progress): AsyncGenerator<AnswerEvent, void> {
  const over = new AbortController();
  const signal = asked.signal ? AbortSignal.any([asked.signal, over.signal]) : over.signal;
  const path = `/api/conversations/${asked.conversation}/events`;
  const live = follow(transport, path, {}, { after: progress.after, signal });
  let final: Answer | undefined;
  let end: Promise<void> | null = askAgain(transport, asked, signal).then((answer) => void (final = answer));
  let next = live.next();
  try {
    while (!final || !progress.has(final.turn)) {
      const first = await Promise.race(end ? [next, end] : [next]);
      if (first === undefined) {
        end = null;
        continue;
      }
      if (first.done) throw failure("ConversationGone", "the conversation was deleted");
      next = live.next();
      yield* progress.readLive(first.value);
    }
    yield { kind: "done", ...final };
  } finally {
    over.abort();
    await Promise.allSettled([next, end]);
  }
}

/** Send the request again with the same key, and return the end of the answer. */
async function askAgain(transport: Transport, asked: Asked, signal: AbortSignal): Promise<Answer> {
  const deadline = Date.now() + transport.timeout;
  for (let attempt = 0; ; attempt++) {
    try {
      for await (const message of request(transport, asked, signal)) {
        if (message.event === "error") throw new PalaverError(JSON.parse(message.data) as Problem);
        if (message.event === "done") return JSON.parse(message.data) as Answer;
      }
    } catch (problem) {
      if (!isPassing(problem) || Date.now() > deadline) throw problem;
    }
    await pause(waitBefore(attempt), signal);
  }
}

/** The part of an answer that was yielded so far. */
class Progress {
  question: string | undefined;
  isDone = false;
  /** The event number after which the answer's events are in the log. */
  after = 0;
  private sent = 0; // characters (code points) of the turn that is being written
  private current: string | undefined; // its id, if known: the first connection does not send it
  private readonly ended = new Set<string>(); // turns of this answer
  private readonly calls = new Map<string, ToolCall>();
  private readonly results = new Set<string>(); // calls whose results were yielded

  has(turn: Turn): boolean {
    return this.ended.has(turn.id);
  }

  /** Read a message of the request itself. */
  *read(message: Message): Generator<AnswerEvent, void> {
    const data = JSON.parse(message.data);
    if (message.event === "start") this.after = Number(new URL(data.events, "http://server").searchParams.get("after"));
    else if (message.event === "message") yield this.readQuestion(data.turn);
    else if (message.event === "delta") yield* this.readText(data.text);
    else if (message.event === "reasoning") yield { kind: "reasoning", text: data.text };
    else if (message.event === "tool_calls") yield* this.readCalls(data.turn, data.calls);
    else if (message.event === "tool_result") yield* this.readResult(data);
    else if (message.event === "done") yield* this.readEnd(data);
    else if (message.event === "error") throw new PalaverError(data as Problem);
  }

  private readQuestion(turn: Turn): AnswerEvent {
    this.question = turn.id;
    return { kind: "message", turn };
  }

  private *readText(text: string): Generator<AnswerEvent, void> {
    this.sent += [...text].length;
    if (text) yield { kind: "delta", text };
  }

  private *readCalls(turn: string, calls: ToolCall[]): Generator<AnswerEvent, void> {
    this.endTurn(turn);
    for (const call of calls) this.calls.set(call.id, call);
    yield { kind: "tool_calls", turn, calls };
  }

  private *readResult(result: { id: string; name: string; content: unknown; is_error: boolean }): Generator<AnswerEvent, void> {
    if (this.results.has(result.id)) return;
    this.results.add(result.id);
    yield { kind: "tool_result", ...result };
  }

  private *readEnd(answer: Answer): Generator<AnswerEvent, void> {
    this.isDone = true;
    if (!this.sent) yield* this.readText(textOf(answer.turn)); // an answer that was stored already
    yield { kind: "done", ...answer };
  }

  private endTurn(turn: string): void {
    this.ended.add(turn);
    this.current = undefined;
    this.sent = 0;
  }

  /** Read an event of the log, and return what it adds to the events yielded before. */
  *readLive(event: LiveEvent): Generator<AnswerEvent, void> {
    if (event.kind === "delta") yield* this.readDelta(event.data);
    else if (event.kind === "reset") throw failure("ConnectionLost", "the place in the conversation was lost: read it again");
    else if (event.kind === "gone" || event.kind === "other") return;
    else if (event.data.turn.role === "tool") yield* this.readToolTurn(event.data.turn);
    else if (event.data.turn.metadata?.["answers"] === this.question) yield* this.readTurn(event.kind, event.data.turn);
  }

  private *readDelta(data: { turn: string; from: number; text: string }): Generator<AnswerEvent, void> {
    if (data.turn !== this.current) return;
    const fresh = [...data.text].slice(Math.max(0, this.sent - data.from)).join("");
    yield* this.readText(fresh);
  }

  private *readToolTurn(turn: Turn): Generator<AnswerEvent, void> {
    for (const result of turn.tool_results) {
      const call = this.calls.get(result.id);
      if (call) yield* this.readResult({ id: call.id, name: call.name, content: result.content, is_error: result.is_error });
    }
  }

  private *readTurn(kind: "append" | "open" | "commit" | "abort", turn: Turn): Generator<AnswerEvent, void> {
    if (this.ended.has(turn.id) || kind === "abort") return;
    if (this.current !== turn.id) yield* this.beginTurn(turn.id);
    if (kind === "open") return;
    if (kind === "append") yield* this.readDelta({ turn: turn.id, from: 0, text: textOf(turn) });
    if (turn.tool_calls.length) yield* this.readCalls(turn.id, turn.tool_calls as ToolCall[]);
    else this.endTurn(turn.id);
  }

  /** Begin a turn. An earlier turn that has not ended was interrupted. */
  private *beginTurn(turn: string): Generator<AnswerEvent, void> {
    const isAgain = this.current !== undefined && this.sent > 0;
    this.current = turn;
    if (!isAgain) return;
    this.sent = 0;
    yield { kind: "restart" };
  }
}
