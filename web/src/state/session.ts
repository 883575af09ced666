/** Who is signed in, and what the server can do. */

import { adviceOf, dropToken, keepToken, onRefused, Problem, token } from "../api/client";
import type { Settings } from "../api/types";
import { getSettings } from "../api/verbs";
import { removeNow } from "./conversations";
import { dropDrafts } from "./drafts";
import { Store } from "./store";

export type Session =
  | { phase: "loading" }
  | { phase: "signed-out"; jwt: boolean; message: string }
  | { phase: "unreachable"; message: string }
  | { phase: "ready"; settings: Settings };

export const session = new Store<Session>({ phase: "loading" });

export async function begin(): Promise<void> {
  try {
    session.set({ phase: "ready", settings: await getSettings() });
  } catch (problem) {
    if (problem instanceof Problem && (problem.status === 401 || problem.status === 403)) signedOut(problem);
    else session.set({ phase: "unreachable", message: adviceOf(problem) });
  }
}

function signedOut(problem: Problem | null): void {
  const message = token() && problem ? problem.advice : "";
  dropToken();
  session.set({ phase: "signed-out", jwt: true, message });
}

/** Nothing that somebody else has read in this page is left in it. */
export async function signIn(value: string, onDevice: boolean): Promise<void> {
  keepToken(value.trim(), onDevice);
  await begin();
  if (wasRefused && session.get().phase === "ready") location.reload();
}
let wasRefused = false;

export function signOut(): void {
  removeNow(); // with the key that it needs
  dropDrafts();
  dropToken();
  location.assign("/");
}

export const isOffline = (settings: Settings) => settings.models.default === "offline";

// A key that is revoked while the page is open.
onRefused(() => {
  if (session.get().phase !== "ready") return;
  wasRefused = true;
  signedOut(new Problem(401, "", "This key or token is no longer accepted"));
});
