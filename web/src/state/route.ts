/** Where we are: a new chat at `/`, a conversation at `/c/ID`, a turn of it at `#TURN`. */

import { Store } from "./store";

export interface Route {
  conversation: string | null;
  turn: string | null;
}

export function parseRoute(path: string, hash: string): Route {
  const match = /^\/c\/([^/]+)\/?$/.exec(path);
  return { conversation: match ? decodeURIComponent(match[1]!) : null, turn: hash.slice(1) || null };
}

export const pathTo = (conversation: string | null, turn?: string | null) =>
  (conversation ? `/c/${encodeURIComponent(conversation)}` : "/") + (turn ? `#${turn}` : "");

const here = () => parseRoute(location.pathname, location.hash);
export const route = new Store<Route>(here());

export function navigate(conversation: string | null, options: { replace?: boolean; turn?: string } = {}): void {
  const path = pathTo(conversation, options.turn);
  if (options.replace) history.replaceState(null, "", path);
  else if (path !== location.pathname + location.hash) history.pushState(null, "", path);
  route.set(here());
}

addEventListener("popstate", () => route.set(here()));
