/** The memory of a person: one section per kind, each item with its sources, to be corrected or deleted. */

import { type FormEvent, useState } from "react";
import { adviceOf } from "../api/client";
import type { PersonItem } from "../api/types";
import { approvePersonItem, correctPersonItem, dropPersonItem, rememberOfPerson } from "../api/verbs";
import { onLinkClick } from "../history/row";
import { Icon, IconButton } from "../shell/icons";
import { dayOf } from "../state/dates";
import { pathTo } from "../state/paths";
import { statementOf } from "./statement";
import { showError, showMessage } from "../state/toasts";

export const KINDS: { [kind in PersonItem["kind"]]: { title: string; about: string; example: string } } = {
  instruction: { title: "Custom instructions", about: "Followed in every chat.", example: "Answer in short sentences." },
  preference: { title: "Preferences", about: "Likes and dislikes.", example: "I prefer window seats." },
  fact: { title: "Facts", about: "Home, work, family, health and so on.", example: "I live in Lisbon." },
  goal: { title: "Goals", about: "Open plans across chats.", example: "Finish the novel by June." },
};

export function ItemSection({ kind, items, onChange }: { kind: PersonItem["kind"]; items: PersonItem[]; onChange: () => void }) {
  const { title, about, example } = KINDS[kind];
  const [isAdding, setAdding] = useState(false);
  return (
    <section aria-labelledby={`kind-${kind}`}>
      <h2 id={`kind-${kind}`}>{title} <small>{about}</small></h2>
      {items.length > 0 && <ul className="cards">{items.map((item) => <li key={item.id}><Item item={item} onChange={onChange} /></li>)}</ul>}
      {isAdding ? (
        <ItemForm label={`Add to ${title.toLowerCase()}`} example={example} onDone={() => setAdding(false)} onSave={(text) => attempt(() => rememberOfPerson(kind, text), onChange)} />
      ) : (
        <div className="row-of-buttons"><button type="button" className="button" onClick={() => setAdding(true)}><Icon name="plus" size={16} /> Add to {title.toLowerCase()}</button></div>
      )}
    </section>
  );
}

export function Item({ item, onChange }: { item: PersonItem; onChange: () => void }) {
  const [isEditing, setEditing] = useState(false);
  const drop = async () => {
    if (await attempt(() => dropPersonItem(item.id), onChange)) showMessage("Forgotten.");
  };
  if (isEditing)
    return <ItemForm label="Correct it" text={statementOf(item)} onDone={() => setEditing(false)} onSave={(text) => attempt(() => correctPersonItem(item.id, text), onChange)} />;
  return (
    <article className="card person-item">
      <p dir="auto">{statementOf(item)}</p>
      <small><Origin item={item} /></small>
      <span className="person-tools">
        {item.status === "proposed" && <button type="button" className="button" onClick={() => void attempt(() => approvePersonItem(item.id), onChange)}>Approve</button>}
        <IconButton icon="pencil" size={16} label={`Correct: ${statementOf(item)}`} onClick={() => setEditing(true)} />
        <IconButton icon="trash" size={16} label={`Forget: ${statementOf(item)}`} onClick={() => void drop()} />
      </span>
    </article>
  );
}

function Origin({ item }: { item: PersonItem }) {
  if (!item.sources.length) return <>Added by you on {dayOf(item.learnt_at)}</>;
  return (
    <>
      {item.said_by ? `Said by ${item.said_by} in ` : "From "}
      {item.sources.slice(0, 3).map(({ conversation, turn, title }, at) => (
        <span key={turn}>{at > 0 && ", "}<a href={pathTo(conversation, turn)} onClick={(event) => onLinkClick(event, conversation, turn)}>{title ?? "a chat"}</a></span>
      ))}
      , {dayOf(item.learnt_at)}
    </>
  );
}

/** Returns whether it worked; shows the error if not. */
export async function attempt(work: () => Promise<unknown>, onChange: () => void): Promise<boolean> {
  try {
    await work();
    return true;
  } catch (problem) {
    showError(`Not saved. ${adviceOf(problem)}`);
    return false;
  } finally {
    onChange();
  }
}

function ItemForm({ label, text = "", example, onSave, onDone }: { label: string; text?: string; example?: string; onSave: (text: string) => Promise<boolean>; onDone: () => void }) {
  const [value, setValue] = useState(text);
  const save = async (event: FormEvent) => {
    event.preventDefault();
    if (!value.trim() || value.trim() === text) return onDone();
    if (await onSave(value.trim())) onDone();
  };
  return (
    <form className="card" onSubmit={(event) => void save(event)}>
      <input type="text" aria-label={label} placeholder={example} autoFocus value={value} maxLength={500} dir="auto" onChange={(event) => setValue(event.target.value)} />
      <div className="row-of-buttons">
        <button type="submit" className="button is-main">Save</button>
        <button type="button" className="button" onClick={onDone}>Cancel</button>
      </div>
    </form>
  );
}
