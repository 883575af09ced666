/** The signed-in user and the server's settings. */

import { adviceOf, dropToken, keepToken, onUnauthorized, Problem, token } from "../api/client";
import type { Settings } from "../api/types";
import { getSettings } from "../api/verbs";
import { flushDeletions } from "./conversations";
import { dropDrafts } from "./drafts";
import { Store } from "./store";

export type Session =
  | { phase: "loading" }
  | { phase: "signed-out"; jwt: boolean; message: string }
  | { phase: "unreachable"; message: string }
  | { phase: "ready"; settings: Settings };

export const session = new Store<Session>({ phase: "loading" });

export async function loadSession(): Promise<void> {
  try {
    session.set({ phase: "ready", settings: await getSettings() });
  } catch (problem) {
    if (problem instanceof Problem && (problem.status === 401 || problem.status === 403)) showSignIn(problem);
    else session.set({ phase: "unreachable", message: adviceOf(problem) });
  }
}

function showSignIn(problem: Problem | null): void {
  const message = token() && problem ? problem.advice : "";
  dropToken();
  session.set({ phase: "signed-out", jwt: true, message });
}

/** Sign in. After a rejected key the page is reloaded, so that it keeps nothing of another user. */
export async function signIn(value: string, onDevice: boolean): Promise<void> {
  keepToken(value.trim(), onDevice);
  await loadSession();
  if (wasUnauthorized && session.get().phase === "ready") location.reload();
}
let wasUnauthorized = false;

export function signOut(): void {
  flushDeletions(); // needs the key, so it comes first
  dropDrafts();
  dropToken();
  location.assign("/");
}

/** Whether the caller may manage models here: an administrator, on a server that keeps them. */
export const canManage = (settings: Settings) => settings.caller.rights.includes("admin") && settings.models.manageable === true;
export const isOffline = (settings: Settings) => settings.models.default === "offline";

// The key was revoked while the page was open.
onUnauthorized(() => {
  if (session.get().phase !== "ready") return;
  wasUnauthorized = true;
  showSignIn(new Problem(401, "", "This key is no longer accepted"));
});
