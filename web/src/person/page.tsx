/** The memory of the person, across all chats: see it, correct it, export it, forget it. */

import { useState } from "react";
import type { PersonItem } from "../api/types";
import { exportPerson, forgetPerson, listPersonItems } from "../api/verbs";
import { save } from "../history/export";
import { AppPage } from "../shell/app-page";
import { AsyncContent } from "../shell/async-content";
import { Dialog } from "../shell/dialog";
import { Icon } from "../shell/icons";
import { useResource } from "../state/resource";
import { session } from "../state/session";
import { useStore } from "../state/store";
import { showMessage } from "../state/toasts";
import { attempt, Item, ItemSection, KINDS } from "./items";

export function PersonPage() {
  const mode = useStore(session, (one) => (one.phase === "ready" ? (one.settings.person ?? "off") : "off"));
  return (
    <AppPage title="Your memory">
      {mode === "off" ? <Off /> : <Memory />}
    </AppPage>
  );
}

function Off() {
  return (
    <p className="hint">
      This server does not remember people across chats. Its operator can turn that on with <code>palaver serve --person read-write</code> or <code>PALAVER_PERSON=read-write</code>.
    </p>
  );
}

function Memory() {
  const resource = useResource(() => listPersonItems("all"), []);
  return (
    <>
      <p className="hint">What Palaver remembers about you from all your chats. It is used in every chat, unless you turn it off there (Memory → Rules). Every entry says where it comes from.</p>
      <AsyncContent resource={resource} what="your memory">
        {(items) => <Sections items={items.filter((one) => !one.ended_at)} onChange={resource.again} />}
      </AsyncContent>
    </>
  );
}

function Sections({ items, onChange }: { items: PersonItem[]; onChange: () => void }) {
  const proposed = items.filter((one) => one.status === "proposed");
  const approved = items.filter((one) => one.status === "approved");
  return (
    <div className="person-sections">
      {proposed.length > 0 && (
        <section aria-labelledby="proposed">
          <h2 id="proposed">Waiting for you <small>Said by someone else, or by an assistant. Not used until you approve it.</small></h2>
          <ul className="cards">{proposed.map((item) => <li key={item.id}><Item item={item} onChange={onChange} /></li>)}</ul>
        </section>
      )}
      {(Object.keys(KINDS) as PersonItem["kind"][]).map((kind) => (
        <ItemSection key={kind} kind={kind} items={approved.filter((one) => one.kind === kind)} onChange={onChange} />
      ))}
      <Everything onChange={onChange} />
    </div>
  );
}

function Everything({ onChange }: { onChange: () => void }) {
  const [isAsking, setAsking] = useState(false);
  const exportAll = () => attempt(async () => save("my-memory.json", JSON.stringify(await exportPerson(), null, 2), "application/json"), () => undefined);
  const forget = async () => {
    setAsking(false);
    if (await attempt(forgetPerson, onChange)) showMessage("Everything was forgotten. Your chats are still there.");
  };
  return (
    <section aria-labelledby="everything">
      <h2 id="everything">Delete everything</h2>
      <div className="row-of-buttons">
        <button type="button" className="button" onClick={() => void exportAll()}><Icon name="export" size={16} /> Export</button>
        <button type="button" className="button is-danger" onClick={() => setAsking(true)}><Icon name="trash" size={16} /> Forget everything</button>
      </div>
      <Dialog title="Forget everything?" isOpen={isAsking} onClose={() => setAsking(false)}>
        <p>Everything that Palaver remembers about you across chats will be deleted permanently. Your chats stay.</p>
        <div className="row-of-buttons">
          <button type="button" className="button is-danger" onClick={() => void forget()}>Forget everything</button>
          <button type="button" className="button" onClick={() => setAsking(false)}>Cancel</button>
        </div>
      </Dialog>
    </section>
  );
}
