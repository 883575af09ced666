/** Addresses: a new chat at `/`, a conversation at `/c/ID`, a turn of it at `#TURN`. Pure. */

export interface Route {
  conversation: string | null;
  turn: string | null;
}

export function parseRoute(path: string, hash: string): Route {
  const match = /^\/c\/([^/]+)\/?$/.exec(path);
  return { conversation: match ? decoded(match[1]!) : null, turn: hash.slice(1) || null };
}

/** What is no good encoding is nobody's id, and is looked for as it stands. */
function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export const pathTo = (conversation: string | null, turn?: string | null) =>
  (conversation ? `/c/${encodeURIComponent(conversation)}` : "/") + (turn ? `#${turn}` : "");
