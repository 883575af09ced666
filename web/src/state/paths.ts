/** URLs: a new chat at `/`, a conversation at `/c/ID`, one of its turns at `#TURN`, and the pages of the app. Pure. */

export const PAGES = ["settings", "memory"] as const;
export type PageName = (typeof PAGES)[number];

export interface Route {
  conversation: string | null;
  turn: string | null;
  /** A page of the app instead of a chat; "unknown" for any other address. */
  page: PageName | "unknown" | null;
  /** The part of a page. */
  section: string | null;
}

export function parseRoute(path: string, hash: string): Route {
  const match = /^\/c\/([^/]+)\/?$/.exec(path);
  if (match) return { conversation: decodeOrKeep(match[1]!), turn: hash.slice(1) || null, page: null, section: null };
  const name = path.replace(/^\/|\/$/g, "");
  const page = name === "" ? null : (PAGES.find((one) => one === name) ?? "unknown");
  return { conversation: null, turn: null, page, section: hash.slice(1) || null };
}

/** Decode a path segment; return it unchanged if its encoding is invalid. */
function decodeOrKeep(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export const pathTo = (conversation: string | null, turn?: string | null) =>
  (conversation ? `/c/${encodeURIComponent(conversation)}` : "/") + (turn ? `#${turn}` : "");
export const pageTo = (page: PageName, section?: string) => `/${page}${section ? `#${section}` : ""}`;
