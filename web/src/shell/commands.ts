/** Commands of the palette. */

import { current, stopAnswer } from "../state/current-conversation";
import { showMemory, sidebar } from "../state/panel";
import { nextTheme } from "../state/preferences";
import { navigatePage } from "../state/route";
import type { IconName } from "./icons";
import { newChat } from "./shortcuts";

export interface Command {
  name: string;
  /** Further words by which it is found. */
  also?: string;
  icon: IconName;
  run: () => void;
}

export const COMMANDS: Command[] = [
  { name: "New chat", also: "conversation start", icon: "plus", run: newChat },
  { name: "Settings", also: "preferences options", icon: "gear", run: () => navigatePage("settings") },
  { name: "Connect a model", also: "add key provider openai anthropic", icon: "gear", run: () => navigatePage("settings", "models") },
  { name: "Your memory", also: "facts preferences remember", icon: "layers", run: () => navigatePage("memory") },
  { name: "Memory of this conversation", also: "notes summaries recall log", icon: "layers", run: () => void (current.get().id && showMemory()) },
  { name: "Keyboard shortcuts", also: "keys help", icon: "keyboard", run: () => navigatePage("settings", "shortcuts") },
  { name: "Change theme", also: "dark light colours", icon: "halfmoon", run: nextTheme },
  { name: "Open or close the sidebar", icon: "menu", run: () => sidebar.set(!sidebar.get()) },
  { name: "Stop the answer", icon: "stop", run: () => void stopAnswer() },
];
