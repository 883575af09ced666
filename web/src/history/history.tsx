/** The sidebar: the list of conversations, search, and the signed-in user. */

import { useState } from "react";
import { Icon, IconButton, type IconName } from "../shell/icons";
import { newChat } from "../shell/shortcuts";
import { sidebar } from "../state/panel";
import { session, signOut } from "../state/session";
import { useStore } from "../state/store";
import { nextTheme, theme } from "../state/theme";
import { List } from "./list";
import { Results } from "./results";

export function History({ onHelp }: { onHelp: () => void }) {
  const [words, setWords] = useState("");
  const isShown = useStore(sidebar, (one) => one);
  return (
    <nav className="history" aria-label="Conversations" inert={!isShown}>
      <header className="history-head">
        <span className="brand"><img src="/favicon.svg" alt="" width="24" height="24" /> Palaver</span>
        <IconButton icon="menu" label="Hide the list" onClick={() => sidebar.set(false)} />
      </header>
      <button type="button" className="button new-chat" onClick={newChat}><Icon name="plus" /> New chat</button>
      <div className="search" role="search">
        <Icon name="search" size={16} />
        <input
          id="search" type="search" placeholder="Search" aria-label="Search conversations" value={words}
          onChange={(event) => setWords(event.target.value)}
          onKeyDown={(event) => {
            if (event.key !== "Escape") return;
            event.preventDefault();
            setWords("");
          }}
        />
      </div>
      {words.trim() ? <Results words={words.trim()} /> : <List />}
      <Account onHelp={onHelp} />
    </nav>
  );
}

function Account({ onHelp }: { onHelp: () => void }) {
  const state = useStore(session, (one) => one);
  if (state.phase !== "ready") return null;
  const { caller, auth } = state.settings;
  const name = caller.user ?? (auth.required ? "Everyone" : "This machine");
  return (
    <footer className="account">
      <Icon name="user" />
      <span className="account-name"><strong>{name}</strong><small>{caller.tenant}</small></span>
      <ThemeButton />
      <IconButton icon="keyboard" label="Keys" onClick={onHelp} />
      {auth.required && <IconButton icon="out" label="Sign out" onClick={signOut} />}
    </footer>
  );
}

function ThemeButton() {
  const now = useStore(theme, (one) => one);
  const icon = { system: "halfmoon", light: "sun", dark: "moon" }[now] as IconName;
  return <IconButton icon={icon} label={`Colours: ${now}`} onClick={nextTheme} />;
}
