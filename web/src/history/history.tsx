/** The sidebar: new chat, search, the list of conversations, the pages of the app, and the signed-in user. */

import { Icon, IconButton, type IconName } from "../shell/icons";
import { MOD, newChat } from "../shell/shortcuts";
import { openPalette } from "../state/palette";
import { leaveList, sidebar } from "../state/panel";
import type { PageName } from "../state/paths";
import { nextTheme, preferences } from "../state/preferences";
import { navigatePage, route } from "../state/route";
import { session, signOut } from "../state/session";
import { useStore } from "../state/store";
import { List } from "./list";

export function History() {
  const isShown = useStore(sidebar, (one) => one);
  return (
    <nav className="history" aria-label="Conversations" inert={!isShown}>
      <header className="history-head">
        <span className="brand"><img src="/favicon.svg" alt="" width="24" height="24" /> Palaver</span>
        <IconButton icon="menu" label="Close sidebar" onClick={() => sidebar.set(false)} />
      </header>
      <button type="button" className="button is-main new-chat" onClick={newChat}><Icon name="plus" /> New chat</button>
      <button type="button" className="search-button" onClick={openPalette}><Icon name="search" size={16} /> <span>Search</span> <kbd aria-hidden="true">{MOD} K</kbd></button>
      <List />
      <div className="history-pages">
        <PageButton page="memory" icon="layers" label="Your memory" />
        <PageButton page="settings" icon="gear" label="Settings" />
      </div>
      <Account />
    </nav>
  );
}

function PageButton({ page, icon, label }: { page: PageName; icon: IconName; label: string }) {
  const isHere = useStore(route, (one) => one.page === page);
  return (
    <button type="button" className="page-button" aria-current={isHere ? "page" : undefined} onClick={() => (navigatePage(page), leaveList())}>
      <Icon name={icon} size={16} /> {label}
    </button>
  );
}

function Account() {
  const state = useStore(session, (one) => one);
  if (state.phase !== "ready") return null;
  const { caller, auth } = state.settings;
  const name = caller.user ?? (auth.required ? "Everyone" : "You (local)");
  return (
    <footer className="account">
      <Icon name="user" />
      <span className="account-name"><strong>{name}</strong>{caller.tenant !== "default" && <small>{caller.tenant}</small>}</span>
      <ThemeButton />
      {auth.required && <IconButton icon="out" label="Sign out" onClick={signOut} />}
    </footer>
  );
}

function ThemeButton() {
  const now = useStore(preferences, (one) => one.theme);
  const icon = { system: "halfmoon", light: "sun", dark: "moon" }[now] as IconName;
  return <IconButton icon={icon} label={`Theme: ${now}`} onClick={nextTheme} />;
}
