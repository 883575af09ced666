/** Ctrl K: commands, chats and messages in one list, driven by the keyboard. */

import { type KeyboardEvent, type ReactNode, useEffect, useId, useMemo, useRef, useState } from "react";
import { Icon, IconButton, type IconName } from "../shell/icons";
import { COMMANDS } from "../shell/commands";
import { focusMessage } from "../shell/shortcuts";
import { conversations } from "../state/conversations";
import { closePalette } from "../state/palette";
import { leaveList } from "../state/panel";
import { useResource } from "../state/resource";
import { navigate } from "../state/route";
import { useStore } from "../state/store";
import { titleParts } from "../state/text";
import { titleOf } from "../state/titles";
import { chatsWith, messagesWith } from "./search";
import { rank, wordsOf } from "./spelling";
import "./palette.css";

interface Option {
  key: string;
  group: string;
  icon: IconName;
  body: ReactNode;
  run: () => void;
}

const PAUSE = 150; // milliseconds without a keystroke before messages are searched

export function Palette() {
  const dialog = useRef<HTMLDialogElement>(null);
  const list = useId();
  const [words, setWords] = useState("");
  const [at, setAt] = useState(0);
  const { options, isBusy, problem } = useOptions(words.trim());
  const chosen = Math.min(at, options.length - 1);
  useEffect(() => dialog.current?.showModal(), []);
  useEffect(() => setAt(0), [words]);
  useEffect(() => {
    document.getElementById(`${list}-${chosen}`)?.scrollIntoView({ block: "nearest" });
  }, [chosen, list]);
  const run = (option: Option | undefined) => {
    if (!option) return;
    closePalette();
    option.run();
  };
  const onKey = (event: KeyboardEvent) => {
    if (event.nativeEvent.isComposing) return;
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (by) setAt((chosen + by + options.length) % Math.max(1, options.length));
    else if (event.key === "Enter") run(options[chosen]);
    else return;
    event.preventDefault();
  };
  return (
    <dialog ref={dialog} className="dialog palette" aria-label="Search" onClose={closePalette} onClick={(event) => event.target === dialog.current && closePalette()}>
      <div className="palette-field">
        <Icon name="search" size={16} />
        <input
          type="text" role="combobox" aria-expanded="true" aria-controls={list} aria-activedescendant={options.length ? `${list}-${chosen}` : undefined}
          aria-label="Search conversations" placeholder="Search chats and messages, or type a command" autoFocus value={words} dir="auto"
          onChange={(event) => setWords(event.target.value)} onKeyDown={onKey}
        />
        <kbd>Esc</kbd>
        <IconButton icon="close" size={16} label="Close" className="for-touch" onClick={closePalette} />
      </div>
      <ul className="palette-list" role="listbox" id={list} aria-label="Results" aria-busy={isBusy}>
        {options.map((option, place) => (
          <li
            key={option.key} id={`${list}-${place}`} role="option" aria-selected={place === chosen} data-group={option.group === options[place - 1]?.group ? undefined : option.group}
            onPointerMove={() => setAt(place)} onClick={() => run(option)}
          >
            <Icon name={option.icon} size={16} /> <span className="palette-body">{option.body}</span>
          </li>
        ))}
      </ul>
      <p className="palette-note" role="status">{noteOf(options.length, isBusy, problem)}</p>
    </dialog>
  );
}

function noteOf(count: number, isBusy: boolean, problem: string): string {
  if (problem) return problem;
  if (isBusy) return "Searching…";
  return count ? "" : "No results. Try different words.";
}

function useOptions(words: string): { options: Option[]; isBusy: boolean; problem: string } {
  const items = useStore(conversations, (one) => one.items);
  const { data, isBusy, problem } = useResource(async (signal) => (words ? { words, found: await messagesWith(words, signal) } : null), [words], words ? PAUSE : 0);
  const options = useMemo(() => {
    const typed = wordsOf(words);
    const commands = COMMANDS.filter((one) => typed.length > 0 && rank(typed, `${one.name} ${one.also ?? ""}`) > 0);
    const messages = data?.words === words ? data.found : [];
    return [
      ...chatsWith(words, items).map((one): Option => ({
        key: one.id, group: words ? "Chats" : "Recent chats", icon: "file", body: <span className="result" dir="auto"><Marked parts={titleParts(titleOf(one), words)} /></span>,
        run: () => go(one.id),
      })),
      ...messages.map((one): Option => ({
        key: one.turn, group: "Messages", icon: "search",
        body: <><span className="passage" dir="auto"><Marked parts={one.parts} /></span><small dir="auto">{titleOf(one.conversation)}</small></>,
        run: () => go(one.conversation.id, one.turn),
      })),
      ...commands.map((one): Option => ({ key: one.name, group: "Commands", icon: one.icon, body: one.name, run: one.run })),
    ];
  }, [words, items, data]);
  return { options, isBusy: words !== "" && isBusy, problem: words ? problem : "" };
}

function go(conversation: string, turn?: string): void {
  navigate(conversation, turn ? { turn } : {});
  leaveList();
  focusMessage();
}

function Marked({ parts }: { parts: { text: string; isMatch: boolean }[] }) {
  return <>{parts.map((part, place) => (part.isMatch ? <mark key={place}>{part.text}</mark> : part.text))}</>;
}
