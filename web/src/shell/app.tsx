/** The page: sidebar on the left, chat or a page of the app in the middle, memory panel or inspector on the right. */

import { lazy, Suspense, useEffect, useState } from "react";
import { Chat } from "../chat/chat";
import { History } from "../history/history";
import * as conversations from "../state/conversations";
import { Palette } from "../palette/palette";
import { palette } from "../state/palette";
import { closePanel, panel, sidebar } from "../state/panel";
import type { PageName } from "../state/paths";
import { navigate, route } from "../state/route";
import { loadSession, session } from "../state/session";
import { useStore } from "../state/store";
import { open, current } from "../state/current-conversation";
import { titleOf } from "../state/titles";
import { Boundary } from "./boundary";
import { HelpDialog } from "./help";
import { useShortcuts } from "./shortcuts";
import { SignIn } from "./sign-in";
import { ErrorBanner } from "./error-banner";

const SettingsPage = lazy(() => import("../settings/page").then((module) => ({ default: module.SettingsPage })));
const PersonPage = lazy(() => import("../person/page").then((module) => ({ default: module.PersonPage })));
const MemoryPanel = lazy(() => import("../memory/panel").then((module) => ({ default: module.MemoryPanel })));
const Inspector = lazy(() => import("../inspector/inspector").then((module) => ({ default: module.Inspector })));

export function App() {
  const state = useStore(session, (one) => one);
  useEffect(() => void loadSession(), []);
  if (state.phase === "loading") return <div className="whole-page" role="status" aria-label="Loading" />;
  if (state.phase === "unreachable")
    return <ErrorBanner title="Can't reach the server" text={state.message} action="Try again" onAction={() => void loadSession()} />;
  if (state.phase === "signed-out") return <SignIn message={state.message} />;
  return <Page />;
}

function Page() {
  const isListShown = useStore(sidebar, (one) => one);
  const where = useStore(route, (one) => one.conversation);
  const page = useStore(route, (one) => one.page);
  const isSearching = useStore(palette, (one) => one);
  const title = useStore(current, (one) => (one.info ? titleOf(one.info) : null));
  const [help, setHelp] = useState(false);
  useEffect(conversations.startSync, []);
  useEffect(() => {
    if (!page) open(where); // a page of the app leaves the conversation as it is, so that going back is quick
  }, [where, page]);
  const name = page === "settings" ? "Settings" : page === "memory" ? "Your memory" : title;
  useEffect(() => void (document.title = name ? `${name} · Palaver` : "Palaver"), [name]);
  useShortcuts({ help: () => setHelp(true) });
  return (
    <div className={`page ${isListShown ? "with-list" : ""}`}>
      <SkipLink to={page ? "page" : "message"}>{page ? "Skip to the page" : "Skip to the message box"}</SkipLink>
      <History />
      {isListShown && <button type="button" className="veil" aria-label="Close sidebar" onClick={() => sidebar.set(false)} />}
      {page ? <AppPage page={page} /> : <><Chat /><SidePanel /></>}
      {isSearching && <Palette />}
      <HelpDialog isOpen={help} onClose={() => setHelp(false)} />
    </div>
  );
}

/** Moves the focus itself: the part after # in an address names a message. */
function SkipLink({ to, children }: { to: string; children: string }) {
  return (
    <a
      className="skip" href={`#${to}`}
      onClick={(event) => {
        event.preventDefault();
        document.getElementById(to)?.focus();
      }}
    >
      {children}
    </a>
  );
}

function AppPage({ page }: { page: PageName | "unknown" }) {
  if (page === "unknown")
    return <main className="chat"><ErrorBanner isWhole={false} icon="search" title="Page not found" text="There is nothing at this address." action="New chat" onAction={() => navigate(null)} /></main>;
  return (
    <Boundary key={page}>
      <Suspense fallback={<main className="app-page"><p className="panel-wait" role="status">Loading…</p></main>}>
        {page === "settings" ? <SettingsPage /> : <PersonPage />}
      </Suspense>
    </Boundary>
  );
}

function SidePanel() {
  const shown = useStore(panel, (one) => one);
  const id = useStore(current, (one) => one.id);
  useEffect(() => closePanel, [id]);
  if (!shown || !id) return null;
  const onTurn = (turn: string) => {
    if (!matchMedia("(min-width: 60rem)").matches) closePanel(); // on narrow screens it covers the chat
    navigate(id, { turn });
  };
  return (
    <aside className="panel" aria-label={shown.kind === "memory" ? "Memory" : "What the model saw"}>
      <Boundary key={shown.kind}>
        <Suspense fallback={<p className="panel-wait" role="status">Loading…</p>}>
          {shown.kind === "memory" ? (
            <MemoryPanel key={id} conversation={id} onClose={closePanel} onTurn={onTurn} />
          ) : (
            <Inspector key={shown.turn} conversation={id} turn={shown.turn} onClose={closePanel} onTurn={onTurn} />
          )}
        </Suspense>
      </Boundary>
    </aside>
  );
}
