/** The panel next to the chat, and the sidebar. */

import { Store } from "./store";

export type Panel = { kind: "memory" } | { kind: "inspector"; turn: string } | null;

export const panel = new Store<Panel>(null);

const wide = matchMedia("(min-width: 60rem)");
export const sidebar = new Store<boolean>(wide.matches);
wide.addEventListener("change", () => sidebar.set(wide.matches));

/** Close the sidebar on narrow screens, where it covers the chat. */
export const leaveList = () => wide.matches || sidebar.set(false);

export const showMemory = () => panel.set(panel.get()?.kind === "memory" ? null : { kind: "memory" });
export const showInspector = (turn: string) => panel.set({ kind: "inspector", turn });
export const closePanel = () => panel.set(null);
