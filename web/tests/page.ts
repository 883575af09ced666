/** The browser APIs that the page's state needs, and a fake server with scripted responses. Import it first. */

import { vi } from "vitest";

class Kept {
  [name: string]: unknown;
  getItem = (key: string) => (this[key] as string | undefined) ?? null;
  setItem = (key: string, value: string) => void (this[key] = value);
  removeItem = (key: string) => void delete this[key];
}

export const asked: { method: string; path: string; key: string | null }[] = [];
type Answer = (path: string) => unknown;
const answers: [string, RegExp, Answer][] = [];

/** Script the response to a request: the value returned, or the status thrown. */
export function on(method: string, path: RegExp, answer: Answer): void {
  answers.unshift([method, path, answer]);
}

async function reply(path: string, options: RequestInit = {}): Promise<Response> {
  const method = options.method ?? "GET";
  const key = (options.headers as Record<string, string> | undefined)?.Authorization ?? null;
  asked.push({ method, path, key });
  const answer = answers.find((one) => one[0] === method && one[1].test(path))?.[2];
  if (!answer) return new Response(JSON.stringify({ title: "Not found", detail: path }), { status: 404 });
  try {
    const value = await answer(path);
    return value === undefined ? new Response(null, { status: 204 }) : new Response(JSON.stringify(value));
  } catch (status) {
    return new Response(JSON.stringify({ title: "Refused", detail: "" }), { status: Number(status) });
  }
}

const page = new EventTarget();
vi.stubGlobal("window", globalThis);
vi.stubGlobal("document", Object.assign(new EventTarget(), { hidden: false }));
vi.stubGlobal("addEventListener", page.addEventListener.bind(page));
vi.stubGlobal("dispatchEvent", page.dispatchEvent.bind(page));
vi.stubGlobal("requestAnimationFrame", (run: () => void) => setTimeout(run, 0));
vi.stubGlobal("matchMedia", () => Object.assign(new EventTarget(), { matches: true }));
vi.stubGlobal("sessionStorage", new Kept());
vi.stubGlobal("localStorage", new Kept());
vi.stubGlobal("location", { pathname: "/", hash: "", assign: vi.fn(), reload: vi.fn() });
vi.stubGlobal("history", { pushState: vi.fn(), replaceState: vi.fn() });
vi.stubGlobal("BroadcastChannel", class extends EventTarget { postMessage() {} });
vi.stubGlobal("fetch", vi.fn(reply));
