/** Working memory: short lists that people and rules keep together. Part of every prompt. */

import { type FormEvent, useState } from "react";
import { adviceOf } from "../api/client";
import { type Note, NOTE_LISTS, type NoteList, type WorkingMemory } from "../api/types";
import { addNote, correctNote, dropNote, getMemory } from "../api/verbs";
import { Icon, IconButton } from "../shell/icons";
import { Shown } from "../shell/shown";
import { useReading } from "../state/reading";
import { useStore } from "../state/store";
import { talk } from "../state/talk";
import { complain, say } from "../state/toasts";
import type { TabProps } from "./panel";
import { keyOf, placeOf } from "./places";
import { Waiting } from "./waiting";

const NAMES: { [list in NoteList]: [title: string, about: string] } = {
  instructions: ["Standing instructions", "What you want from every answer. Taken from your own messages only."],
  goals: ["Goals", "What this is all about."],
  decisions: ["Decisions", "What was settled."],
  requirements: ["Requirements", "What must be there."],
  constraints: ["Constraints", "What must not be, and what there is too little of."],
  open_questions: ["Open questions", "Asked, and not answered yet."],
  assumptions: ["Assumptions", "Taken for granted."],
  stakeholders: ["People", "Who has a part in it."],
  glossary: ["Words", "What names and abbreviations mean."],
};
const ORDER = Object.keys(NAMES) as NoteList[];

export function Notes({ conversation, onTurn }: TabProps) {
  const remembered = useStore(talk, (one) => one.remembered);
  const reading = useReading(() => getMemory(conversation), [conversation, remembered]);
  return (
    <Shown reading={reading} what="the notes">
      {(memory) => (
        <>
          <p className="hint">The model reads these notes with every message. Change what is wrong: what you write stays until you change it.</p>
          {isEmpty(memory) && <Waiting conversation={conversation} what="notes" />}
          {memory.summary && <blockquote className="gist">{memory.summary}</blockquote>}
          <Lists memory={memory} conversation={conversation} onTurn={onTurn} onChange={(after) => (after ? reading.put(after) : reading.again())} />
        </>
      )}
    </Shown>
  );
}

/** What is there after a change; null when it went wrong, and has to be read again. */
type OnChange = (after: WorkingMemory | null) => void;

const isEmpty = (memory: WorkingMemory) => !memory.summary && NOTE_LISTS.every((list) => memory[list].length === 0);

/** Lists without a note are only offered, so that those with notes are seen. */
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
  const add = (text: string) => changed(() => addNote(conversation, list, text), onChange);
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
      {isAdding && <Writing label={about} onDone={() => (onAdding(false), backTo(list))} onSave={add} />}
    </section>
  );
}

function OneNote({ note, list, conversation, onTurn, onChange }: TabProps & { note: Note; list: NoteList; onChange: OnChange }) {
  const [isOpen, setOpen] = useState(false);
  /** Rules and other people write too: the note is looked for again, so that no other one is changed. */
  const place = async () => {
    const at = placeOf(note, (await getMemory(conversation))[list]);
    if (at < 0) throw new NoteMoved();
    return at;
  };
  const correct = (text: string) => changed(async () => correctNote(conversation, list, await place(), text), onChange);
  const drop = async () => {
    const isDone = await changed(async () => dropNote(conversation, list, await place()), onChange);
    backTo(list);
    if (isDone) say("Note removed.", { action: { label: "Undo", run: () => void changed(() => addNote(conversation, list, note.text), onChange) } });
  };
  if (isOpen) return <li><Writing label="Edit the note" text={note.text} onDone={() => (setOpen(false), backTo(list))} onSave={correct} /></li>;
  return (
    <li className="note">
      <p>{note.text}<small>{writtenBy(note)}{note.turn && <button type="button" className="link" onClick={() => onTurn(note.turn!)}>source turn</button>}</small></p>
      <IconButton icon="pencil" size={15} label={`Edit: ${note.text}`} onClick={() => setOpen(true)} />
      <IconButton icon="trash" size={15} label={`Remove: ${note.text}`} onClick={() => void drop()} />
    </li>
  );
}

/** What was pressed is gone from the page: whoever uses keys goes on at the list. */
function backTo(list: NoteList, frames = 20): void {
  requestAnimationFrame(() => {
    // On a busy machine the list is drawn some frames later, and takes the focus away with what it replaces.
    if (frames === 20 || document.activeElement === document.body) document.getElementById(`add-${list}`)?.focus();
    if (frames > 0) backTo(list, frames - 1);
  });
}

class NoteMoved extends Error {}

const writtenBy = (note: Note) => (note.by === "rules" ? "noted by rules" : note.by.startsWith("model") ? "noted by a model" : `by ${note.by}`);

/** Answers whether it went well; if not, it says why. */
async function changed(change: () => Promise<WorkingMemory>, onChange: OnChange): Promise<boolean> {
  try {
    onChange(await change());
    return true;
  } catch (problem) {
    onChange(null);
    complain(problem instanceof NoteMoved ? "Somebody else changed this note meanwhile. Look again." : `Not saved. ${adviceOf(problem)}`);
    return false;
  }
}

function Writing({ label, text = "", onSave, onDone }: { label: string; text?: string; onSave: (text: string) => Promise<boolean>; onDone: () => void }) {
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
