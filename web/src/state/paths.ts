/** URLs: a new chat at `/`, a conversation at `/c/ID`, one of its turns at `#TURN`. Pure. */

export interface Route {
  conversation: string | null;
  turn: string | null;
}

export function parseRoute(path: string, hash: string): Route {
  const match = /^\/c\/([^/]+)\/?$/.exec(path);
  return { conversation: match ? decodeOrKeep(match[1]!) : null, turn: hash.slice(1) || null };
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
