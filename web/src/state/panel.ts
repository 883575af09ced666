/** What is open beside the chat. */

import { Store } from "./store";

export type Panel = { kind: "memory" } | { kind: "saw"; turn: string } | null;

export const panel = new Store<Panel>(null);
export const sidebar = new Store<boolean>(matchMedia("(min-width: 60rem)").matches);

export const showMemory = () => panel.set(panel.get()?.kind === "memory" ? null : { kind: "memory" });
export const showSaw = (turn: string) => panel.set({ kind: "saw", turn });
export const closePanel = () => panel.set(null);
