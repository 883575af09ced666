/** Requests to a Palaver server: typed by its OpenAPI document, with retries and server-sent events. */

import { connectionLost, errorOf, PalaverError } from "./errors.ts";
import type { paths } from "./schema.ts";
import { type Message, messagesOf } from "./sse.ts";

export interface OpenOptions {
  /** The address of the server, such as `http://127.0.0.1:8484`. */
  url: string;
  /** A key of `palaver keys create`, a JWT, or a function that returns one and is called for each request. */
  key?: string | (() => string | Promise<string>);
  /** Milliseconds for one request; a stream may be silent for as long. Default: 60,000. */
  timeout?: number;
  /** How often a request is sent again after a lost connection or a 429 or 503. Default: 3. */
  retries?: number;
  /** A function to use instead of the global `fetch`. */
  fetch?: typeof fetch;
}

export interface Cancellable {
  signal?: AbortSignal;
}

export type Path = keyof paths;
export type Method = "get" | "post" | "put" | "patch" | "delete";
type Operation<P extends Path, M extends Method> = NonNullable<paths[P][M]>;
type Parameters<O, In extends string> = O extends { parameters: { [key in In]?: infer V } } ? NonNullable<V> : never;

/** The parameters in the query of an operation. */
export type Query<P extends Path, M extends Method> = Parameters<Operation<P, M>, "query">;
/** The JSON body of a request. */
export type Body<P extends Path, M extends Method> =
  Operation<P, M> extends { requestBody?: infer B }
    ? NonNullable<B> extends { content: { "application/json": infer J } } ? J : never
    : never;
type Replies<O> = O extends { responses: infer R } ? R[keyof R & (200 | 201 | 202)] : never;
/** The JSON body of a reply. */
export type Reply<P extends Path, M extends Method> =
  Replies<Operation<P, M>> extends infer R ? R extends { content: { "application/json": infer J } } ? J : never : never;

export interface Call<P extends Path, M extends Method> extends Cancellable {
  path?: Parameters<Operation<P, M>, "path">;
  query?: Query<P, M>;
  body?: Body<P, M>;
  headers?: Record<string, string>;
  /** Whether the request may be repeated. Default: true for requests that read, replace or delete. */
  repeatable?: boolean;
}

interface Raw extends Cancellable {
  query?: object | undefined;
  body?: BodyInit | undefined;
  headers?: Record<string, string> | undefined;
  repeatable?: boolean | undefined;
}

const REPEATABLE = ["GET", "PUT", "DELETE"];
const BUSY = [429, 503];
const LONGEST_WAIT = 30; // the longest wait in seconds that a server can request; after a longer one, the error is thrown

/** One server, with one key. */
export class Transport {
  readonly url: string;
  readonly timeout: number;
  private readonly key: OpenOptions["key"];
  private readonly retries: number;
  private readonly fetch: typeof fetch;

  constructor(options: OpenOptions) {
    this.url = options.url.replace(/\/+$/, "");
    this.timeout = options.timeout ?? 60_000;
    this.key = options.key;
    this.retries = options.retries ?? 3;
    this.fetch = options.fetch ?? globalThis.fetch;
  }

  /** Call an operation and return its JSON; undefined for a reply without a body. */
  async call<P extends Path, M extends Method>(method: M, path: P, call: Call<P, M> = {}): Promise<Reply<P, M>> {
    const response = await this.send(method.toUpperCase(), filled(path, call.path), {
      query: call.query,
      body: call.body === undefined ? undefined : JSON.stringify(call.body),
      headers: { ...(call.body === undefined ? {} : { "Content-Type": "application/json" }), ...call.headers },
      repeatable: call.repeatable,
      ...(call.signal && { signal: call.signal }),
    });
    const text = await response.text();
    return (text ? JSON.parse(text) : undefined) as Reply<P, M>;
  }

  /** Send a request. If it may be repeated, retry after a connection failure or when the server is busy. */
  async send(method: string, path: string, raw: Raw = {}): Promise<Response> {
    const again = (raw.repeatable ?? REPEATABLE.includes(method)) ? this.retries : 0;
    for (let attempt = 0; ; attempt++) {
      try {
        return await this.sendOnce(method, path, raw, withTimeout(raw.signal, this.timeout));
      } catch (problem) {
        if (raw.signal?.aborted) throw raw.signal.reason;
        if (attempt >= again || !isPassing(problem)) throw problem;
        await pause(waitBefore(attempt, problem), raw.signal);
      }
    }
  }

  /** Send one request. Throws any reply that is not a success. */
  async sendOnce(method: string, path: string, raw: Raw, signal: AbortSignal | undefined): Promise<Response> {
    const url = this.url + path + queryString(raw.query);
    let response: Response;
    try {
      const headers = { ...(await this.authorization()), ...raw.headers };
      response = await this.fetch(url, { method, headers, body: raw.body ?? null, signal: signal ?? null });
    } catch (problem) {
      throw problem instanceof PalaverError ? problem : connectionLost(this.url, problem);
    }
    if (!response.ok) throw await errorOf(response);
    return response;
  }

  private async authorization(): Promise<Record<string, string>> {
    const key = typeof this.key === "function" ? await this.key() : this.key;
    return key ? { Authorization: `Bearer ${key}` } : {};
  }

  /**
   * Yield the events of one stream, until the server ends it or the connection is lost, which throws. The server sends
   * comments while there are no events, so a connection without a byte for `timeout` is dead.
   */
  async *events(method: string, path: string, raw: Raw = {}): AsyncGenerator<Message, void> {
    const silence = new AbortController();
    const signal = raw.signal ? AbortSignal.any([raw.signal, silence.signal]) : silence.signal;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const alive = () => {
      clearTimeout(timer);
      timer = setTimeout(() => silence.abort(), this.timeout);
    };
    try {
      alive();
      const headers = { Accept: "text/event-stream", ...raw.headers };
      yield* messagesOf(await this.sendOnce(method, path, { ...raw, headers }, signal), alive);
    } catch (problem) {
      if (raw.signal?.aborted) throw raw.signal.reason;
      throw problem instanceof PalaverError ? problem : connectionLost(this.url, problem);
    } finally {
      clearTimeout(timer);
    }
  }
}

/** Whether a retry may help: after a lost connection, or if the server is busy. */
export function isPassing(problem: unknown): problem is PalaverError {
  if (!(problem instanceof PalaverError)) return false;
  return problem.kind === "ConnectionLost" || (BUSY.includes(problem.status) && (problem.retryAfter ?? 0) <= LONGEST_WAIT);
}

/** Milliseconds to wait before the next attempt: as the server says, or longer each time, with some jitter. */
export function waitBefore(attempt: number, problem?: PalaverError): number {
  if (problem?.retryAfter != null) return problem.retryAfter * 1_000;
  return Math.min(10_000, 100 * 2 ** attempt) * (0.75 + Math.random() / 2);
}

export function pause(milliseconds: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = () => (clearTimeout(timer), reject(signal?.reason));
    const timer = setTimeout(() => (signal?.removeEventListener("abort", stop), resolve()), milliseconds);
    if (signal?.aborted) stop();
    signal?.addEventListener("abort", stop, { once: true });
  });
}

function withTimeout(signal: AbortSignal | undefined, milliseconds: number): AbortSignal {
  const timeout = AbortSignal.timeout(milliseconds);
  return signal ? AbortSignal.any([signal, timeout]) : timeout;
}

/** Put the parameters into a path. */
export function filled(path: string, parameters: object = {}): string {
  const values = parameters as Record<string, unknown>;
  return path.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(String(values[name])));
}

function queryString(query: object = {}): string {
  const found = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const one of Array.isArray(value) ? value : [value]) if (one != null) found.append(name, String(one));
  }
  return found.size ? `?${found}` : "";
}
