/** Views of memory: positions of notes, the tree of summaries, entries of the log. Pure. */

import type { LogEvent, Note, Summary } from "../api/types";

/** The index of a note in a list that may have changed, or -1. */
export const placeOf = (note: Note, notes: Note[]) => notes.findIndex((one) => isSame(one, note));

/** A stable React key for a note, so that editing continues when other notes come and go. */
export function keyOf(notes: Note[], at: number): string {
  const note = notes[at]!;
  return JSON.stringify([note.text, note.turn, note.by, placesOf(note, notes).indexOf(at)]);
}

const placesOf = (note: Note, notes: Note[]) => [...notes.keys()].filter((at) => isSame(notes[at]!, note));
const isSame = (one: Note, other: Note) => one.text === other.text && one.turn === other.turn && one.by === other.by;

// ---- summaries

export interface Branch {
  summary: Summary;
  /** The summaries it was made from. */
  under: Branch[];
}

/** Nest summaries by span: a higher-level summary contains those inside its span. Oldest first. */
export function treeOf(summaries: Summary[]): Branch[] {
  const ordered = [...summaries].sort((a, b) => a.from_seq - b.from_seq || b.level - a.level || b.through_seq - a.through_seq);
  const roots: Branch[] = [];
  const open: Branch[] = [];
  for (const summary of ordered) {
    while (open.length && !holds(open.at(-1)!.summary, summary)) open.pop();
    const branch = { summary, under: [] };
    (open.at(-1)?.under ?? roots).push(branch);
    open.push(branch);
  }
  return roots;
}

const holds = (outer: Summary, inner: Summary) =>
  outer.level > inner.level && outer.from_seq <= inner.from_seq && inner.through_seq <= outer.through_seq;

/** The rows of the strip, the highest level first. */
export function levelsOf(summaries: Summary[]): [level: number, summaries: Summary[]][] {
  const levels = [...new Set(summaries.map((one) => one.level))].sort((a, b) => b - a);
  return levels.map((level) => [level, summaries.filter((one) => one.level === level)]);
}

/** The position up to which the thread is summarised. */
export const coveredTo = (summaries: Summary[]) => Math.max(0, ...summaries.map((one) => one.through_seq));

// ---- the log

export interface Entry {
  event: LogEvent;
  /** How many events this entry stands for. */
  count: number;
}

/** The start and the pieces of a streamed answer are left out; its end is listed. */
const NOISE = new Set(["open", "chunk"]);

/** Entries, newest first; the same of the same person in a row is one. */
export function entriesOf(events: LogEvent[]): Entry[] {
  const entries: Entry[] = [];
  for (const event of events.filter((one) => !NOISE.has(one.kind))) {
    const last = entries.at(-1);
    const isRepeated = last && event.kind === "prove" && last.event.kind === "prove";
    if (isRepeated) entries[entries.length - 1] = { event, count: last.count + 1 };
    else entries.push({ event, count: 1 });
  }
  return entries.reverse();
}

const SAID: { [kind: string]: string } = {
  create: "opened the conversation",
  append: "sent a message",
  prove: "recorded fingerprints",
  archive: "archived older entries",
  commit: "wrote an answer",
  abort: "was interrupted",
  update: "changed the conversation",
  attach: "attached a file",
  switch: "went to another version",
  forget: "deleted something permanently",
  retire: "deleted text that was summarised",
  reset: "emptied the thread",
  stop: "stopped the answer",
  summarize: "summarised messages",
  remember: "changed the notes",
  extract_facts: "extracted facts",
  forget_fact: "deleted a fact",
  expire: "deleted the expired conversation",
  seal: "sealed the log",
};

export function sentenceOf({ event, count }: Entry): string {
  const what = SAID[event.kind] ?? event.kind;
  const fields = event.payload.fields;
  if (event.kind === "update" && Array.isArray(fields)) return `changed ${fields.join(", ")}`;
  return count > 1 ? `${what}, ${count} times` : what;
}
