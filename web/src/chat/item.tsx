/** One question or one answer on the page. */

import { memo, useState } from "react";
import type { Attachment, Turn } from "../api/types";
import { nameOf as modelName } from "../api/advice";
import { Icon, IconButton } from "../shell/icons";
import { momentOf, timeOf } from "../state/dates";
import { showInspector } from "../state/panel";
import { useStore } from "../state/store";
import { ask, discardEdit, isBusy, type OutgoingMessage, regenerate, current } from "../state/current-conversation";
import { textOf } from "../state/text";
import { isSameVersion, type Item, stepsOf, type Versions } from "../state/views";
import { hueOf, isNamed, nameOf } from "./actors";
import { Thumbs } from "./thumbs";
import { typedParts } from "./blocks";
import { CodeBlock } from "./code";
import { CopyButton } from "./copy";
import { Files, RemovableFiles } from "./files";
import { Markdown } from "./markdown";
import { Remembered } from "./remembered";
import { Sources } from "./sources";
import { Steps } from "./tools";
import { VersionPicker } from "./versions";

export interface ItemProps {
  item: Item;
  versions: Versions | null;
  me: string | null;
  thinking: string;
  /** The end of the thread: its actions are always visible. */
  isLast: boolean;
  /** A question that was never answered, with another one after it. */
  isUnanswered: boolean;
  /** An edit of this question that could not be sent. */
  unsent: OutgoingMessage | null;
}

export const ItemView = memo(function ItemView(props: ItemProps) {
  const turn = props.item.turns[0]!;
  const isQuestion = props.item.role === "user";
  return (
    <article className={`item is-${props.item.role} ${props.isLast ? "is-last" : ""}`} aria-label={`${nameOf(turn)}, ${momentOf(turn.created)}`}>
      {props.item.turns.map((one) => <span key={one.id} id={`turn-${one.id}`} className="anchor" />)}
      {isNamed(turn, props.me) && <Name turn={turn} />}
      {isQuestion ? <Question {...props} turn={turn} /> : props.item.role === "system" ? <System turn={turn} /> : <Answer {...props} />}
    </article>
  );
}, isUnchanged);

/** Re-render only items that have changed: a thread may be long while text streams into it. */
function isUnchanged(before: ItemProps, after: ItemProps): boolean {
  return (
    before.item === after.item && before.me === after.me && before.isUnanswered === after.isUnanswered && before.unsent === after.unsent &&
    before.thinking === after.thinking && before.isLast === after.isLast && isSameVersion(before.versions, after.versions)
  );
}

function Name({ turn }: { turn: Turn }) {
  return (
    <p className="actor" style={{ "--hue": hueOf(turn.actor) } as React.CSSProperties}>
      <i aria-hidden="true">{[...turn.actor][0]?.toUpperCase()}</i> <bdi>{turn.actor}</bdi>
    </p>
  );
}

function System({ turn }: { turn: Turn }) {
  return <details className="system"><summary>System message</summary><Markdown text={textOf(turn.content)} /></details>;
}

// ---- questions

function Question({ turn, versions, isUnanswered, unsent }: ItemProps & { turn: Turn }) {
  const [isEditing, setEditing] = useState(false);
  const text = textOf(turn.content);
  const close = () => {
    setEditing(false);
    if (unsent) discardEdit();
  };
  /** Back to where the keyboard was before. */
  const cancel = () => {
    close();
    requestAnimationFrame(() => document.getElementById(`edit-${turn.id}`)?.focus());
  };
  if (isEditing || unsent)
    return (
      <Edit
        key={unsent?.key} text={unsent?.message ?? text} files={unsent?.attachments ?? turn.attachments} onCancel={cancel}
        onSave={(changed, files) => {
          close();
          void ask(changed, files, turn.id);
        }}
      />
    );
  return (
    <>
      <Files conversation={turn.conversation} files={turn.attachments} />
      <div className="question">
        {turn.status === "forgotten" ? <p className="forgotten">This message was deleted.</p> : text && <div className="bubble" dir="auto"><Typed text={text} /></div>}
        <div className="actions">
          <time dateTime={turn.created} title={momentOf(turn.created)}>{timeOf(turn.created)}</time>
          <CopyButton text={text} label="Copy message" />
          <IconButton id={`edit-${turn.id}`} icon="pencil" size={16} label="Edit" className="edit" onClick={() => setEditing(true)} />
          {versions && <VersionPicker versions={versions} what="message" />}
        </div>
      </div>
      {isUnanswered && <p className="no-reply">No reply.</p>}
    </>
  );
}

/** A person's own message as it was typed, line by line. Only code between fences is set apart. */
export function Typed({ text }: { text: string }) {
  return <>{typedParts(text).map((part, at) => (part.isCode ? <CodeBlock key={at} text={part.text} language={part.language} /> : part.text))}</>;
}

interface EditProps {
  text: string;
  files: Attachment[];
  onSave: (text: string, files: Attachment[]) => void;
  onCancel: () => void;
}

function Edit({ text, files, onSave, onCancel }: EditProps) {
  const [value, setValue] = useState(text);
  const [kept, setKept] = useState(files);
  const canSave = value.trim() !== "" || kept.length > 0;
  const save = () => canSave && onSave(value.trim(), kept);
  return (
    <form
      className="edit-form"
      onSubmit={(event) => {
        event.preventDefault();
        save();
      }}
    >
      <RemovableFiles files={kept} onRemove={(id) => setKept(kept.filter((one) => one.id !== id))} />
      <textarea
        aria-label="Edit message" value={value} autoFocus dir="auto" onChange={(event) => setValue(event.target.value)}
        onFocus={(event) => event.target.setSelectionRange(text.length, text.length)}
        onKeyDown={(event) => {
          if (event.nativeEvent.isComposing) return;
          if (event.key === "Escape") {
            event.preventDefault();
            onCancel();
          }
          if (event.key === "Enter" && !event.shiftKey) {
            event.preventDefault();
            save();
          }
        }}
      />
      <div className="edit-actions">
        <button type="button" className="button" onClick={onCancel}>Cancel</button>
        <button type="submit" className="button is-main" disabled={!canSave}>Send</button>
      </div>
    </form>
  );
}

// ---- answers

function Answer({ item, versions, thinking, isLast }: ItemProps) {
  const last = item.turns.findLast((one) => one.role === "assistant") ?? item.turns.at(-1)!;
  const isPending = last.status === "pending";
  const sources = item.turns.flatMap((one) => one.sources);
  return (
    <div aria-busy={isPending}>
      {item.turns.map((turn) => <Part key={turn.id} turn={turn} item={item} thinking={turn === last ? thinking : ""} />)}
      <Sources sources={sources} conversation={last.conversation} />
      {!isPending && isLast && last.adapter && <Remembered turn={last.id} conversation={last.conversation} />}
      {!isPending && last.tool_calls.length === 0 && (
        <>
          {isLast && <ContinueButton turn={last} />}
          <div className="actions">
            <CopyButton text={() => item.turns.map((one) => textOf(one.content)).filter(Boolean).join("\n\n")} label="Copy answer" words="Copy" />
            <IconButton icon="redo" size={16} label="Regenerate" onClick={() => void regenerate(last.id)} />
            <Thumbs turn={last.id} />
            <IconButton icon="eye" size={16} label="What the model saw" className="inspect" onClick={() => showInspector(last.id)} />
            {versions && <VersionPicker versions={versions} what="answer" />}
            <Facts turn={last} />
          </div>
        </>
      )}
    </div>
  );
}

function Part({ turn, item, thinking }: { turn: Turn; item: Item; thinking: string }) {
  const text = textOf(turn.content);
  const isPending = turn.status === "pending";
  return (
    <>
      {thinking && <details className="thoughts" open={isPending && !text}><summary>Thoughts</summary><p>{thinking}</p></details>}
      {isPending && !text && <Thinking />}
      {turn.status === "forgotten" ? <p className="forgotten">This answer was deleted.</p> : text && turn.role !== "tool" && <Markdown text={text} isStreaming={isPending} />}
      {turn.tool_calls.length > 0 && <Steps steps={stepsOf(turn, item)} />}
      {turn.role !== "tool" && <Files conversation={turn.conversation} files={turn.attachments} />}
    </>
  );
}

/** Offered under the last answer, if it ended before its end. */
function ContinueButton({ turn }: { turn: Turn }) {
  const isIdle = useStore(current, (one) => !isBusy(one) && !one.outgoing);
  if (!isIdle || !["stopped", "length", "max_tokens"].includes(turn.finish_reason ?? "")) return null;
  return (
    <button type="button" className="button continue" onClick={() => void ask("Continue where you stopped.", [])}>
      <Icon name="play" size={14} /> Continue
    </button>
  );
}

export function Thinking() {
  return <p className="thinking" role="status">Thinking…</p>;
}

/** Why the answer ended early, the model, the token count and the time. */
function Facts({ turn }: { turn: Turn }) {
  const early = { stopped: "stopped", length: "stopped at the length limit", content_filter: "stopped by the provider's filter" }[turn.finish_reason ?? ""];
  const tokens = turn.tokens && (turn.tokens.prompt ?? 0) + (turn.tokens.completion ?? 0);
  const facts = [early, turn.model && modelName(turn.model), tokens ? `${tokens.toLocaleString("en")} tokens` : null, timeOf(turn.created)];
  return <span className="facts" title={momentOf(turn.created)}>{facts.filter(Boolean).join(" · ")}</span>;
}
