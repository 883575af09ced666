/** The current route. */

import { parseRoute, pathTo, type Route } from "./paths";
import { Store } from "./store";

const here = () => parseRoute(location.pathname, location.hash);
export const route = new Store<Route>(here());

export function navigate(conversation: string | null, options: { replace?: boolean; turn?: string } = {}): void {
  const path = pathTo(conversation, options.turn);
  if (options.replace) history.replaceState(null, "", path);
  else if (path !== location.pathname + location.hash) history.pushState(null, "", path);
  route.set(here());
}

addEventListener("popstate", () => route.set(here()));
