/** The current route. */

import { type PageName, pageTo, parseRoute, pathTo, type Route } from "./paths";
import { Store } from "./store";

const here = () => parseRoute(location.pathname, location.hash);
export const route = new Store<Route>(here());

export function navigate(conversation: string | null, options: { replace?: boolean; turn?: string } = {}): void {
  const path = pathTo(conversation, options.turn);
  if (options.replace) history.replaceState(null, "", path);
  else if (path !== location.pathname + location.hash) history.pushState(null, "", path);
  route.set(here());
}

/** Open a page of the app. */
export function navigatePage(page: PageName, section?: string): void {
  const path = pageTo(page, section);
  if (path !== location.pathname + location.hash) history.pushState(null, "", path);
  route.set(here());
}

addEventListener("popstate", () => route.set(here()));

let last: string | null = route.get().conversation; // the conversation that was open before a page of the app
route.subscribe(() => {
  if (!route.get().page) last = route.get().conversation;
});

/** Leave a page of the app: back to the conversation, or to a new chat. */
export const goBack = () => navigate(last);
