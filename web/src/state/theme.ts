/** The colour theme: light, dark, or the system's. */

import { Store } from "./store";

export type Theme = "system" | "light" | "dark";
const KEY = "palaver.theme";
const ORDER: Theme[] = ["system", "light", "dark"];

const kept = localStorage.getItem(KEY);
export const theme = new Store<Theme>(ORDER.find((one) => one === kept) ?? "system");

function show(): void {
  const now = theme.get();
  if (now === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = now;
}

export function nextTheme(): void {
  const next = ORDER[(ORDER.indexOf(theme.get()) + 1) % ORDER.length]!;
  theme.set(next);
  if (next === "system") localStorage.removeItem(KEY);
  else localStorage.setItem(KEY, next);
  show();
}

show();
