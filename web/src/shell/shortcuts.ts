/** Keyboard shortcuts for the whole page. */

import { useEffect } from "react";
import { conversations } from "../state/conversations";
import { openPalette } from "../state/palette";
import { closePanel, leaveList, panel, showMemory, sidebar } from "../state/panel";
import { navigate, route } from "../state/route";
import { isBusy, stopAnswer, current } from "../state/current-conversation";

const isMac = /Mac|iPhone|iPad/.test(navigator.userAgent);
export const MOD = isMac ? "⌘" : "Ctrl";

/** The keys, and what they do. "or" and "in an empty message" are words between keys. */
export const SHORTCUTS: [string[], string][] = [
  [[MOD, "Shift", "O"], "New chat"],
  [[MOD, "K"], "Search chats, messages and commands"],
  [["Alt", "↑", "or", "Alt", "↓"], "Previous or next conversation"],
  [[MOD, "B"], "Open or close the sidebar"],
  [["Alt", "M"], "Memory of this conversation"],
  [["Esc"], "Stop the answer, or close what is open"],
  [["Enter"], "Send"],
  [["Shift", "Enter"], "New line"],
  [["↑", "in an empty message"], "Edit your last message"],
  [["F2"], "Rename the conversation in the list"],
  [[MOD, "/"], "This list"],
];

export function focusMessage(): void {
  requestAnimationFrame(() => document.getElementById("message")?.focus());
}

export function newChat(): void {
  navigate(null);
  leaveList();
  focusMessage();
}

/** Open the next or previous conversation in the list; from a new chat, the first one. */
function step(by: number): void {
  const { items } = conversations.get();
  const here = items.findIndex((one) => one.id === route.get().conversation);
  const next = items[here < 0 ? 0 : here + by];
  if (!next) return;
  navigate(next.id);
  focusMessage();
}

function escape(): boolean {
  if (isBusy(current.get())) void stopAnswer();
  else if (panel.get()) closePanel();
  else return false;
  return true;
}

export function useShortcuts({ help }: { help: () => void }): void {
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (event.defaultPrevented || event.isComposing) return;
      if (actionOf(event, help)?.() !== undefined) event.preventDefault();
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, [help]);
}

/** The action for a key, or undefined if there is none. An action returns undefined when it did nothing. */
function actionOf(event: KeyboardEvent, help: () => void): (() => unknown) | undefined {
  const key = event.key.toLowerCase();
  const done = (run: () => void) => () => (run(), true);
  if (event.altKey && !event.ctrlKey && !event.metaKey) {
    if (key === "arrowup") return done(() => step(-1));
    if (key === "arrowdown") return done(() => step(1));
    if (event.code === "KeyM") return done(() => current.get().id && showMemory());
    return undefined;
  }
  if (key === "escape" && !document.querySelector("dialog[open], [popover]:popover-open"))
    return () => escape() || undefined;
  if (!(isMac ? event.metaKey : event.ctrlKey)) return undefined;
  if (event.shiftKey) return key === "o" ? done(newChat) : undefined;
  if (key === "k") return done(openPalette);
  if (key === "b") return done(() => sidebar.set(!sidebar.get()));
  if (key === "/") return done(help);
  return undefined;
}
