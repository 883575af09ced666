/** What is open beside the chat. */

import { Store } from "./store";

export type Panel = { kind: "memory" } | { kind: "saw"; turn: string } | null;

export const panel = new Store<Panel>(null);

const wide = matchMedia("(min-width: 60rem)");
export const sidebar = new Store<boolean>(wide.matches);
wide.addEventListener("change", () => sidebar.set(wide.matches));

/** Where the list lies over the chat, it makes way for what was chosen in it. */
export const leaveList = () => wide.matches || sidebar.set(false);

export const showMemory = () => panel.set(panel.get()?.kind === "memory" ? null : { kind: "memory" });
export const showSaw = (turn: string) => panel.set({ kind: "saw", turn });
export const closePanel = () => panel.set(null);
