/** Preferences of this device: colours, text size, the language of dates. */

import { setDateLanguage } from "./dates";
import { Store } from "./store";

export const THEMES = ["system", "light", "dark"] as const;
export const TEXT_SIZES = ["small", "normal", "large"] as const;
export type Theme = (typeof THEMES)[number];
export type TextSize = (typeof TEXT_SIZES)[number];

export interface Preferences {
  theme: Theme;
  text: TextSize;
  /** A language tag, or "" for the language of the browser. */
  dates: string;
  wrapCode: boolean;
}

const KEY = "palaver.preferences";
const DEFAULTS: Preferences = { theme: "system", text: "normal", dates: "", wrapCode: false };

export const preferences = new Store<Preferences>(kept());

function kept(): Preferences {
  try {
    return clean(JSON.parse(localStorage.getItem(KEY) ?? "{}"));
  } catch {
    return DEFAULTS;
  }
}

/** Ignore values that this version does not know. */
function clean(found: Partial<Preferences>): Preferences {
  return {
    theme: THEMES.find((one) => one === found.theme) ?? DEFAULTS.theme,
    text: TEXT_SIZES.find((one) => one === found.text) ?? DEFAULTS.text,
    dates: typeof found.dates === "string" ? found.dates : "",
    wrapCode: found.wrapCode === true,
  };
}

export function prefer(change: Partial<Preferences>): void {
  preferences.patch(change);
  localStorage.setItem(KEY, JSON.stringify(preferences.get()));
  apply();
}

export const nextTheme = () => prefer({ theme: THEMES[(THEMES.indexOf(preferences.get().theme) + 1) % THEMES.length]! });

function apply(): void {
  const { theme, text, dates } = preferences.get();
  const { dataset } = document.documentElement;
  if (theme === "system") delete dataset.theme;
  else dataset.theme = theme;
  if (text === "normal") delete dataset.text;
  else dataset.text = text;
  setDateLanguage(dates);
}

apply();
