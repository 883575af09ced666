/** Live events of conversations. The stream resumes at the exact character after a lost connection. */

import { failure } from "./errors.ts";
import { type Cancellable, isPassing, pause, type Transport, waitBefore } from "./transport.ts";
import type { LogEvent, Turn } from "./types.ts";

interface Common {
  /** The position after this event, to resume with `subscribe({ after: position })`. */
  position: string;
  /** The conversation, if several are followed. */
  conversation?: string;
}

/** A turn was appended, opened, committed or aborted. An open turn is empty; its text follows in deltas. */
export interface TurnEvent extends Common {
  kind: "append" | "open" | "commit" | "abort";
  data: Omit<LogEvent, "turn"> & { turn: Turn };
}

/** Text of a pending turn. `from` counts characters (code points) of the whole text. */
export interface DeltaEvent extends Common {
  kind: "delta";
  data: { turn: string; from: number; text: string };
}

/** The position is not in the log of this conversation: read the turns again. The stream continues after `last_event`. */
export interface ResetEvent extends Common {
  kind: "reset";
  data: { last_event: number };
}

/** The conversation was deleted: the last event of its stream. */
export interface GoneEvent extends Common {
  kind: "gone";
  data: Partial<LogEvent>;
}

/** Any other event of the log, such as `update`, `forget` or `summary`. */
export interface OtherEvent extends Common {
  kind: "other";
  data: LogEvent;
}

export type LiveEvent = TurnEvent | DeltaEvent | ResetEvent | GoneEvent | OtherEvent;

export interface SubscribeOptions extends Cancellable {
  /** An event number or a `position`; 0: from the start of the log. Default: from now on. */
  after?: number | string;
  /** Called with true when the connection is established, and with false when it is lost. */
  onConnection?: (connected: boolean) => void;
}

const NAMED = ["append", "open", "commit", "abort", "delta", "reset", "gone"];

/**
 * Follow an event stream until its last event, and reconnect whenever the connection is lost. Each event is yielded once: after a
 * lost connection the stream resumes at the position of the last event that was yielded.
 */
export async function* follow(transport: Transport, path: string, query: object, options: SubscribeOptions): AsyncGenerator<LiveEvent, void> {
  let position = options.after === undefined ? undefined : String(options.after);
  for (let attempt = 0; ; attempt++) {
    try {
      const raw = { query: { ...query, after: position }, ...(options.signal && { signal: options.signal }) };
      for await (const message of transport.events("GET", path, raw)) {
        if (attempt || position === undefined) options.onConnection?.(true);
        attempt = 0;
        position = message.id ?? position;
        if (message.event === "closing") break; // the server restarts
        if (message.event === "denied") throw failure("PermissionDenied", "the conversation may no longer be read");
        yield liveEvent(message.event, JSON.parse(message.data), position ?? "");
        if (message.event === "gone" && !("conversation" in query)) return;
      }
    } catch (problem) {
      if (!isPassing(problem)) throw problem;
    }
    options.onConnection?.(false);
    await pause(waitBefore(attempt), options.signal);
  }
}

function liveEvent(name: string, data: any, position: string): LiveEvent {
  const kind = NAMED.includes(name) ? name : "other";
  const conversation = kind === "delta" || "conversation" in data ? data.conversation : undefined;
  return { kind, position, ...(conversation && { conversation }), data } as LiveEvent;
}
