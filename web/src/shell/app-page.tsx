import type { ReactNode } from "react";
import { SidebarButtons } from "../chat/chat";
import { goBack } from "../state/route";
import { IconButton } from "./icons";
import { Toasts } from "./toasts";

/** A page of the app in place of the chat: a title, its sections, and the way back. */
export function AppPage({ title, children }: { title: string; children: ReactNode }) {
  return (
    <main className="app-page">
      <header className="chat-head">
        <SidebarButtons />
        <h1 className="chat-title">{title}</h1>
        <IconButton icon="close" label="Close" onClick={goBack} />
      </header>
      <div className="app-page-body" id="page" tabIndex={-1}><div>{children}</div></div>
      <Toasts />
    </main>
  );
}
