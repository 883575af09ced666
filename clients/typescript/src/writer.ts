/** A turn that is written while its text arrives. Readers see it grow, and text that was sent survives a crash. */

import { PalaverError } from "./errors.ts";
import type { Transport } from "./transport.ts";
import type { components } from "./schema.ts";
import type { Turn } from "./types.ts";

const FLUSH = 250; // milliseconds until text is sent
const RENEW = 10_000; // milliseconds of silence after which the lease is renewed; it ends after 30 seconds
const WAITING = 64_000; // unsent characters above which `write` waits

export type StreamEnd = components["schemas"]["StreamEnd"];

/** Writes one turn. End it with `commit` or `abort`; `await using` aborts one that was not committed. */
export class TurnWriter implements AsyncDisposable {
  /** The turn as it was opened: its id is known before its text. */
  readonly turn: Turn;
  private readonly transport: Transport;
  private readonly path: { conversation: string; turn: string };
  private waiting = "";
  private number = 0;
  private sending: Promise<void> = Promise.resolve();
  private timer: ReturnType<typeof setTimeout> | undefined;
  private problem: unknown;
  private isOpen = true;

  constructor(transport: Transport, turn: Turn) {
    this.transport = transport;
    this.turn = turn;
    this.path = { conversation: turn.conversation, turn: turn.id };
    this.schedule();
  }

  /** Add text. It is sent within a quarter of a second. Throws if sending earlier text failed. */
  async write(text: string): Promise<void> {
    if (this.problem) throw this.problem;
    this.waiting += text;
    this.schedule();
    if (this.waiting.length > WAITING) await this.flush();
  }

  /** Send all text, and wait until it is stored. */
  async flush(): Promise<void> {
    this.sending = this.sending.then(() => this.sendWaiting());
    await this.sending;
    if (this.problem) throw this.problem;
  }

  private schedule(): void {
    clearTimeout(this.timer);
    if (!this.isOpen) return;
    const work = this.waiting ? () => this.flush() : () => this.renew();
    this.timer = setTimeout(() => void work().catch(() => undefined).finally(() => this.schedule()), this.waiting ? FLUSH : RENEW);
  }

  private async sendWaiting(): Promise<void> {
    const text = withoutHalf(this.waiting, !this.isOpen);
    if (!text || this.problem) return;
    this.waiting = this.waiting.slice(text.length);
    const body = { n: this.number++, text };
    const path = "/api/conversations/{conversation}/streams/{turn}/chunks";
    try {
      await this.transport.call("post", path, { path: this.path, body, repeatable: true });
    } catch (problem) {
      this.problem = problem;
    }
  }

  private async renew(): Promise<void> {
    await this.transport.call("post", "/api/conversations/{conversation}/streams/{turn}/renew", { path: this.path, repeatable: true });
  }

  /** Seal the turn as complete, and return it. */
  async commit(end: StreamEnd = {}): Promise<Turn> {
    await this.finish();
    const path = "/api/conversations/{conversation}/streams/{turn}/commit";
    try {
      return await this.transport.call("post", path, { path: this.path, body: end, repeatable: true });
    } catch (problem) {
      if (!(problem instanceof PalaverError) || problem.kind !== "StreamSealed") throw problem;
      const stored = await this.transport.call("get", "/api/conversations/{conversation}/turns/{turn}", { path: this.path });
      if (stored.status !== "complete") throw problem;
      return stored; // the reply to an earlier attempt was lost
    }
  }

  /** Seal the turn as aborted. It leaves the active branch, and its text is kept. */
  async abort(): Promise<Turn> {
    await this.finish().catch(() => undefined);
    return this.transport.call("post", "/api/conversations/{conversation}/streams/{turn}/abort", { path: this.path, repeatable: true });
  }

  private async finish(): Promise<void> {
    this.isOpen = false;
    clearTimeout(this.timer);
    await this.flush();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.isOpen) await this.abort();
  }
}

/** The text without half a character at its end: the other half is still to come. */
function withoutHalf(text: string, isLast: boolean): string {
  const last = text.charCodeAt(text.length - 1);
  return !isLast && last >= 0xd800 && last <= 0xdbff ? text.slice(0, -1) : text;
}
