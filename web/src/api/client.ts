/** The HTTP client: authentication, JSON in and out, error responses as exceptions. */

import { explain } from "./advice";

export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly title: string,
    readonly detail: string,
    readonly fields: Record<string, unknown> = {},
  ) {
    super(detail || title);
  }

  /** The text shown to the user: what happened, and what to do. */
  get advice(): string {
    return explain(this);
  }
}

export function adviceOf(problem: unknown): string {
  return problem instanceof Problem ? problem.advice : "Something went wrong on this page. Reload it and try again.";
}

// ---- authentication

const TOKEN = "palaver.token";
const unauthorizedListeners = new Set<() => void>();

export function token(): string | null {
  return sessionStorage.getItem(TOKEN) ?? localStorage.getItem(TOKEN);
}

/** Keep the token for this tab, or on this device. */
export function keepToken(value: string, onDevice: boolean): void {
  dropToken();
  (onDevice ? localStorage : sessionStorage).setItem(TOKEN, value);
}

export function dropToken(): void {
  sessionStorage.removeItem(TOKEN);
  localStorage.removeItem(TOKEN);
}

/** Register a listener for responses with status 401. */
export function onUnauthorized(listener: () => void): () => void {
  unauthorizedListeners.add(listener);
  return () => unauthorizedListeners.delete(listener);
}

export function headers(more: Record<string, string> = {}): Record<string, string> {
  const known = token();
  return known ? { Authorization: `Bearer ${known}`, ...more } : more;
}

// ---- requests

export interface Options {
  body?: unknown;
  headers?: Record<string, string>;
  signal?: AbortSignal;
  keepalive?: boolean;
}

/** Return a successful response; throw anything else as a Problem. */
export async function send(method: string, path: string, options: Options = {}): Promise<Response> {
  const json: Record<string, string> = options.body === undefined ? {} : { "Content-Type": "application/json" };
  let response: Response;
  try {
    response = await fetch(path, {
      method,
      headers: headers({ ...json, ...options.headers }),
      body: options.body === undefined ? undefined : JSON.stringify(options.body),
      signal: options.signal,
      keepalive: options.keepalive,
    });
  } catch (problem) {
    if (options.signal?.aborted) throw problem;
    throw new Problem(0, "No connection", "");
  }
  if (response.ok) return response;
  const found = await problemOf(response);
  if (found.status === 401) unauthorizedListeners.forEach((listener) => listener());
  throw found;
}

export async function call<T>(method: string, path: string, options: Options = {}): Promise<T> {
  const response = await send(method, path, options);
  return (response.status === 204 || response.headers.get("content-length") === "0"
    ? undefined
    : await response.json()) as T;
}

async function problemOf(response: Response): Promise<Problem> {
  try {
    return toProblem(await response.json(), response.status);
  } catch {
    return new Problem(response.status, response.statusText || "Refused", "");
  }
}

export function toProblem(body: Record<string, unknown>, status = Number(body.status ?? 500)): Problem {
  return new Problem(status, String(body.title ?? "Refused"), String(body.detail ?? ""), body);
}

export const query = (fields: Record<string, string | number | boolean | undefined | null>): string => {
  const parts = Object.entries(fields).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return parts.length ? `?${new URLSearchParams(parts.map(([name, value]) => [name, String(value)]))}` : "";
};
