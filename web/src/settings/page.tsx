/** Settings: appearance, models, instructions, usage, data, shortcuts. */

import { useEffect } from "react";
import { AppPage } from "../shell/app-page";
import { Shortcuts } from "../shell/help";
import { route } from "../state/route";
import { session } from "../state/session";
import { useStore } from "../state/store";
import { Appearance } from "./appearance";
import { Data } from "./data";
import { Instructions } from "../person/instructions";
import { Models } from "./models";
import { Usage } from "./usage";

export function SettingsPage() {
  const section = useStore(route, (one) => one.section);
  const settings = useStore(session, (one) => (one.phase === "ready" ? one.settings : null));
  useEffect(() => {
    if (section) document.getElementById(section)?.scrollIntoView();
  }, [section]);
  if (!settings) return null;
  return (
    <AppPage title="Settings">
      <Appearance />
      <Models settings={settings} />
      <Instructions settings={settings} />
      <Usage />
      <Data />
      <section id="shortcuts" aria-labelledby="shortcuts-title">
        <h2 id="shortcuts-title">Keyboard shortcuts</h2>
        <Shortcuts />
      </section>
      <p className="hint">Palaver {settings.version}</p>
    </AppPage>
  );
}
