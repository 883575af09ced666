/** Working memory: short lists of notes, edited by people and by rules. Part of every prompt. */

import { type FormEvent, useState } from "react";
import { adviceOf } from "../api/client";
import { type Note, NOTE_LISTS, type NoteList, type WorkingMemory } from "../api/types";
import { addNote, correctNote, dropNote, getMemory } from "../api/verbs";
import { Icon, IconButton } from "../shell/icons";
import { AsyncContent } from "../shell/async-content";
import { useResource } from "../state/resource";
import { useStore } from "../state/store";
import { current } from "../state/current-conversation";
import { showError, showMessage } from "../state/toasts";
import type { TabProps } from "./panel";
import { keyOf, placeOf } from "./views";
import { EmptyState } from "./empty-state";

const NAMES: { [list in NoteList]: [title: string, about: string] } = {
  instructions: ["Standing instructions", "Instructions for every answer. Taken only from your own messages."],
  goals: ["Goals", "What this conversation is for."],
  decisions: ["Decisions", "What was decided."],
  requirements: ["Requirements", "What the result must have or do."],
  constraints: ["Constraints", "Limits and things to avoid."],
  open_questions: ["Open questions", "Asked but not answered yet."],
  assumptions: ["Assumptions", "Assumed, not confirmed."],
  stakeholders: ["People", "Who is involved."],
  glossary: ["Glossary", "What names and abbreviations mean."],
};
const ORDER = Object.keys(NAMES) as NoteList[];

export function Notes({ conversation, onTurn }: TabProps) {
  const memoryVersion = useStore(current, (one) => one.memoryVersion);
  const resource = useResource(() => getMemory(conversation), [conversation, memoryVersion]);
  return (
    <AsyncContent resource={resource} what="the notes">
      {(memory) => (
        <>
          <p className="hint">The model reads these notes with every message. Correct anything that is wrong. Your version stays until you change it.</p>
          {isEmpty(memory) && <EmptyState conversation={conversation} what="notes" />}
          {memory.extractor_failure && <p className="hint">The model that writes notes failed ({memory.extractor_failure}). These notes were found by simple rules.</p>}
          {memory.summary && <blockquote className="gist">{memory.summary}</blockquote>}
          <Lists memory={memory} conversation={conversation} onTurn={onTurn} onChange={(after) => (after ? resource.put(after) : resource.again())} />
        </>
      )}
    </AsyncContent>
  );
}

/** Called with the memory after a change, or with null if it failed and must be reloaded. */
type OnChange = (after: WorkingMemory | null) => void;

const isEmpty = (memory: WorkingMemory) => !memory.summary && NOTE_LISTS.every((list) => memory[list].length === 0);

/** Empty lists are only offered as buttons, so that lists with notes stand out. */
function Lists({ memory, ...rest }: TabProps & { memory: WorkingMemory; onChange: OnChange }) {
  const [adding, setAdding] = useState<NoteList | null>(null);
  const empty = ORDER.filter((list) => memory[list].length === 0 && list !== adding);
  return (
    <>
      {ORDER.filter((list) => !empty.includes(list)).map((list) => (
        <List key={list} list={list} notes={memory[list]} isAdding={list === adding} onAdding={(isOn) => setAdding(isOn ? list : null)} {...rest} />
      ))}
      {empty.length > 0 && (
        <div className="row-of-buttons" role="group" aria-label="Lists without a note">
          {empty.map((list) => (
            <button key={list} id={`add-${list}`} type="button" className="button chip" title={NAMES[list][1]} onClick={() => setAdding(list)}><Icon name="plus" size={14} /> {NAMES[list][0]}</button>
          ))}
        </div>
      )}
    </>
  );
}

type ListProps = TabProps & { list: NoteList; notes: Note[]; isAdding: boolean; onAdding: (isOn: boolean) => void; onChange: OnChange };

function List({ list, notes, isAdding, onAdding, conversation, onTurn, onChange }: ListProps) {
  const [title, about] = NAMES[list];
  const add = (text: string) => applyChange(() => addNote(conversation, list, text), onChange);
  return (
    <section aria-labelledby={`list-${list}`} className="notes">
      <div className="notes-head">
        <h3 id={`list-${list}`} title={about}>{title}</h3>
        <IconButton id={`add-${list}`} icon="plus" size={16} label={`Add to ${title.toLowerCase()}`} onClick={() => onAdding(true)} />
      </div>
      {notes.length > 0 && (
        <ul>
          {notes.map((note, at) => (
            <OneNote key={keyOf(notes, at)} note={note} list={list} conversation={conversation} onTurn={onTurn} onChange={onChange} />
          ))}
        </ul>
      )}
      {isAdding && <NoteForm label={about} onDone={() => (onAdding(false), focusList(list))} onSave={add} />}
    </section>
  );
}

function OneNote({ note, list, conversation, onTurn, onChange }: TabProps & { note: Note; list: NoteList; onChange: OnChange }) {
  const [isOpen, setOpen] = useState(false);
  /** Find the note again before changing it, because rules and other people edit the list too. */
  const place = async () => {
    const at = placeOf(note, (await getMemory(conversation))[list]);
    if (at < 0) throw new NoteMoved();
    return at;
  };
  const correct = (text: string) => applyChange(async () => correctNote(conversation, list, await place(), text), onChange);
  const drop = async () => {
    const isDone = await applyChange(async () => dropNote(conversation, list, await place()), onChange);
    focusList(list);
    if (isDone) showMessage("Note removed.", { action: { label: "Undo", run: () => void applyChange(() => addNote(conversation, list, note.text), onChange) } });
  };
  if (isOpen) return <li><NoteForm label="Edit the note" text={note.text} onDone={() => (setOpen(false), focusList(list))} onSave={correct} /></li>;
  return (
    <li className="note">
      <p>{note.text}<small>{writtenBy(note)}{note.turn && <button type="button" className="link" onClick={() => onTurn(note.turn!)}>source</button>}</small></p>
      <IconButton icon="pencil" size={15} label={`Edit: ${note.text}`} onClick={() => setOpen(true)} />
      <IconButton icon="trash" size={15} label={`Remove: ${note.text}`} onClick={() => void drop()} />
    </li>
  );
}

/** Move the focus to the list when the pressed button has disappeared, for keyboard users. */
function focusList(list: NoteList, frames = 20): void {
  requestAnimationFrame(() => {
    // On a busy machine the list may re-render some frames later and lose the focus again.
    if (frames === 20 || document.activeElement === document.body) document.getElementById(`add-${list}`)?.focus();
    if (frames > 0) focusList(list, frames - 1);
  });
}

class NoteMoved extends Error {}

const writtenBy = (note: Note) => (note.by === "rules" ? "added automatically" : note.by.startsWith("model") ? "added by a model" : `by ${note.by}`);

/** Returns whether the change succeeded; shows the error if not. */
async function applyChange(change: () => Promise<WorkingMemory>, onChange: OnChange): Promise<boolean> {
  try {
    onChange(await change());
    return true;
  } catch (problem) {
    onChange(null);
    showError(problem instanceof NoteMoved ? "Someone else changed this note. Check it and try again." : `Not saved. ${adviceOf(problem)}`);
    return false;
  }
}

function NoteForm({ label, text = "", onSave, onDone }: { label: string; text?: string; onSave: (text: string) => Promise<boolean>; onDone: () => void }) {
  const [value, setValue] = useState(text);
  const save = async (event: FormEvent) => {
    event.preventDefault();
    if (value.trim() === "" || value.trim() === text) return onDone();
    if (await onSave(value.trim())) onDone();
  };
  return (
    <form className="writing" onSubmit={(event) => void save(event)}>
      <input
        type="text" aria-label={label} placeholder={label} autoFocus value={value} maxLength={500} onChange={(event) => setValue(event.target.value)}
        onKeyDown={(event) => {
          if (event.key !== "Escape" || event.nativeEvent.isComposing) return;
          event.preventDefault();
          onDone();
        }}
      />
      <button type="submit" className="button is-main">Save</button>
      <button type="button" className="button" onClick={onDone}>Cancel</button>
    </form>
  );
}
