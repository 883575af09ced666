/** A live feed that reconnects by itself and resumes at the exact character. */

import { Problem, query, send } from "../api/client";
import { type Message, messagesOf } from "./parser";

const LAST = new Set(["gone", "denied"]);
const PAUSES = [250, 1_000, 2_000, 5_000, 10_000]; // milliseconds between attempts

export interface Follower {
  onMessage: (message: Message) => void;
  /** False while there is no connection. */
  onState?: (live: boolean) => void;
  /** The feed has ended permanently, with the server's reason. */
  onEnd?: (problem: Problem | null) => void;
}

/** Follow `path` after an event number. Returns a function that stops it. */
export function follow(path: string, after: number | string, follower: Follower): () => void {
  const whole = new AbortController();
  void keepFollowing(path, String(after), follower, whole.signal);
  return () => whole.abort();
}

async function keepFollowing(path: string, after: string, follower: Follower, signal: AbortSignal): Promise<void> {
  let point = after;
  let tries = 0;
  while (!signal.aborted) {
    await becomesVisible(signal);
    const over = new AbortController();
    const round = AbortSignal.any([signal, whenHidden(over.signal)]);
    try {
      const response = await send("GET", `${path}${query({ after: point })}`, { signal: round });
      follower.onState?.(true);
      for await (const message of messagesOf(response)) {
        if (signal.aborted) return;
        tries = 0;
        point = message.id ?? point;
        follower.onMessage(message);
        if (LAST.has(message.event)) return follower.onEnd?.(null);
      }
    } catch (problem) {
      if (signal.aborted) return;
      if (problem instanceof Problem && isFinal(problem)) return follower.onEnd?.(problem);
    } finally {
      over.abort();
    }
    if (signal.aborted) return;
    if (document.hidden) continue; // disconnected on purpose
    follower.onState?.(false);
    await pause(PAUSES[Math.min(tries++, PAUSES.length - 1)] ?? 0, signal);
  }
}

const isFinal = (problem: Problem) => problem.status >= 400 && problem.status < 500 && problem.status !== 429;

/** A browser allows six connections per server, so a hidden tab closes its own. */
function whenHidden(over: AbortSignal): AbortSignal {
  const controller = new AbortController();
  const check = () => document.hidden && controller.abort();
  document.addEventListener("visibilitychange", check, { signal: over });
  return controller.signal;
}

function becomesVisible(signal: AbortSignal): Promise<void> {
  if (!document.hidden) return Promise.resolve();
  return once((done, over) => {
    document.addEventListener("visibilitychange", () => document.hidden || done(), { signal: over });
    signal.addEventListener("abort", done, { signal: over });
  });
}

function pause(milliseconds: number, signal: AbortSignal): Promise<void> {
  return once((done, over) => {
    const timer = setTimeout(done, milliseconds);
    over.addEventListener("abort", () => clearTimeout(timer));
    signal.addEventListener("abort", done, { signal: over });
    window.addEventListener("online", done, { signal: over });
  });
}

/** Wait for one of several events, then remove all listeners: a tab may keep reconnecting for days. */
function once(listen: (done: () => void, over: AbortSignal) => void): Promise<void> {
  const over = new AbortController();
  return new Promise<void>((resolve) => listen(resolve, over.signal)).finally(() => over.abort());
}
