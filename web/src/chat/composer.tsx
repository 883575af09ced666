/** The message box: text, files, queued messages, model picker, Send and Stop. */

import {
  type ClipboardEvent, type FormEvent, type KeyboardEvent, useEffect, useImperativeHandle, useLayoutEffect, useRef,
  useState,
} from "react";
import { nameOf } from "../api/advice";
import { Icon, IconButton } from "../shell/icons";
import { focusMessage } from "../shell/shortcuts";
import { keepDraft, readDraft } from "../state/drafts";
import { session } from "../state/session";
import { useStore } from "../state/store";
import { ask, chooseModel, dequeue, enqueue, isBusy, modelOf, sendQueued, stopAnswer, current } from "../state/current-conversation";
import { sizeOf } from "./preview";
import type { Upload, useUploads } from "./uploads";

export interface ComposerHandle {
  put: (text: string) => void;
}

export function Composer({ handle, files }: { handle: React.Ref<ComposerHandle>; files: ReturnType<typeof useUploads> }) {
  const id = useStore(current, (one) => one.id);
  const busy = useStore(current, isBusy);
  const [text, setText] = useDraft(id);
  const area = useAutoHeight(text);
  const chooser = useRef<HTMLInputElement>(null);
  useImperativeHandle(handle, () => ({ put: (more) => (setText(more), focusMessage()) }), [setText]);
  const isWaiting = files.uploads.some((one) => !one.stored && !one.problem);
  const stored = files.uploads.flatMap((one) => (one.stored ? [one.stored] : []));
  const canSend = text.trim() !== "" || stored.length > 0 || isWaiting;
  const visit = useStore(current, (one) => one.visit);
  const [held, setHeld] = useState<number | null>(null); // the visit in which Send was pressed
  const isHeld = held === visit;

  const submit = (event?: FormEvent) => {
    event?.preventDefault();
    if (!canSend) return;
    if (isWaiting) return setHeld(visit); // sent when its files are uploaded
    setText("");
    files.clear();
    if (busy) enqueue(text.trim(), stored);
    else void ask(text.trim(), stored);
    focusMessage();
  };
  useEffect(() => {
    if (held === null || (isHeld && isWaiting)) return;
    setHeld(null);
    // Do not send from another conversation, or without a file whose upload failed: the user has to decide that.
    if (isHeld && !files.uploads.some((one) => one.problem)) submit();
  }, [held, isHeld, isWaiting]);
  const onKey = (event: KeyboardEvent) => {
    if (event.nativeEvent.isComposing) return;
    if (event.key === "Enter" && !event.shiftKey) submit(event);
    if (event.key === "ArrowUp" && !text && !event.altKey) editLast(event);
  };
  const onPaste = (event: ClipboardEvent) => {
    const pasted = [...event.clipboardData.files];
    if (!pasted.length) return;
    event.preventDefault();
    files.add(pasted);
  };
  return (
    <form className="composer" onSubmit={submit}>
      <Queue onEdit={(message) => setText(text ? `${message}\n\n${text}` : message)} onFiles={files.restore} />
      <UploadList uploads={files.uploads} onRemove={files.remove} />
      <textarea
        id="message" ref={area} rows={1} value={text} placeholder="Message Palaver…" aria-label="Message" autoFocus dir="auto"
        onChange={(event) => setText(event.target.value)} onKeyDown={onKey} onPaste={onPaste}
      />
      <div className="composer-tools">
        <IconButton icon="clip" label="Attach files" onClick={() => chooser.current?.click()} />
        <input
          ref={chooser} type="file" multiple hidden aria-hidden="true" tabIndex={-1}
          onChange={(event) => {
            files.add(event.target.files ?? []);
            event.target.value = "";
          }}
        />
        <ModelPicker />
        {busy && <button type="button" className="send is-stop" onClick={() => void stopAnswer()} aria-label="Stop" title="Stop (Esc)"><Icon name="stop" /></button>}
        {(!busy || canSend) && (
          <button type="submit" className="send" disabled={!canSend || isHeld} aria-label={busy ? "Send next" : "Send"} title={busy ? "Send when the answer is complete (Enter)" : "Send (Enter)"}>
            {isHeld ? <i className="spinner" /> : <Icon name="send" />}
          </button>
        )}
      </div>
    </form>
  );
}

/** Messages that wait for the running answer. */
function Queue({ onEdit, onFiles }: { onEdit: (message: string) => void; onFiles: ReturnType<typeof useUploads>["restore"] }) {
  const queue = useStore(current, (one) => one.queue);
  const mayGo = useStore(current, (one) => !isBusy(one) && !one.outgoing && !one.failure && !one.thread.cut);
  useEffect(() => {
    if (queue.length && mayGo) sendQueued();
  }, [queue, mayGo]);
  if (!queue.length) return null;
  const edit = (key: string) => {
    const taken = dequeue(key);
    if (!taken) return;
    onEdit(taken.message);
    onFiles(taken.attachments);
    focusMessage();
  };
  return (
    <ol className="queue" aria-label="Messages to send next">
      {queue.map(({ key, message, attachments }) => (
        <li key={key}>
          <small>Next</small>
          <span dir="auto">{message || attachments.map((one) => one.filename).join(", ")}</span>
          <IconButton icon="pencil" size={14} label={`Edit the next message: ${message}`} onClick={() => edit(key)} />
          <IconButton icon="close" size={14} label={`Remove the next message: ${message}`} onClick={() => void dequeue(key)} />
        </li>
      ))}
    </ol>
  );
}

function editLast(event: KeyboardEvent): void {
  const last = [...document.querySelectorAll<HTMLButtonElement>(".item.is-user .edit")].at(-1);
  if (!last || last.disabled) return;
  event.preventDefault();
  last.click();
}

function useDraft(id: string | null): [string, (text: string) => void] {
  const [text, setText] = useState(() => readDraft(id));
  useEffect(() => setText(readDraft(id)), [id]);
  const change = (next: string) => {
    setText(next);
    keepDraft(current.get().id, next);
  };
  return [text, change];
}

/** Make the text area as high as its text, within the limits of the style sheet. */
function useAutoHeight(text: string) {
  const area = useRef<HTMLTextAreaElement>(null);
  useLayoutEffect(() => {
    const element = area.current;
    if (!element || CSS.supports("field-sizing", "content")) return;
    element.style.height = "auto";
    element.style.height = `${element.scrollHeight}px`;
  }, [text]);
  return area;
}

/** The model of this conversation. It is remembered with the conversation. */
function ModelPicker() {
  const models = useStore(session, (one) => (one.phase === "ready" ? one.settings.models : null));
  const chosen = useStore(current, modelOf);
  if (!models) return null;
  const value = chosen && models.names.includes(chosen) ? chosen : models.default;
  if (models.names.length < 2) return <span className="model-name">{nameOf(value)}</span>;
  return (
    <select className="model" aria-label="Model" value={value} onChange={(event) => chooseModel(event.target.value)}>
      {models.names.map((name) => <option key={name} value={name}>{nameOf(name)}</option>)}
    </select>
  );
}

function UploadList({ uploads, onRemove }: { uploads: Upload[]; onRemove: (id: string) => void }) {
  if (!uploads.length) return null;
  return (
    <ul className="uploads" aria-label="Files to send">
      {uploads.map((one) => (
        <li key={one.id} className={`upload ${one.problem ? "is-problem" : ""}`}>
          {one.preview ? <img src={one.preview} alt="" /> : <Icon name={one.problem ? "warn" : "file"} />}
          <span className="file-name">{one.name}</span>
          <small role={one.problem ? "alert" : undefined}>{one.problem || sizeOf(one.size)}</small>
          {!one.stored && !one.problem && <progress value={one.share} max={1} aria-label={`Uploading ${one.name}`} />}
          <IconButton icon="close" size={14} label={`Remove ${one.name}`} onClick={() => onRemove(one.id)} />
        </li>
      ))}
    </ul>
  );
}
