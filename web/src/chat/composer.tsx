/** The message box: text, files, model picker, Send and Stop. */

import {
  type ClipboardEvent, type FormEvent, type KeyboardEvent, useEffect, useImperativeHandle, useLayoutEffect, useRef,
  useState,
} from "react";
import { Icon, IconButton } from "../shell/icons";
import { focusMessage } from "../shell/shortcuts";
import { keepDraft, readDraft } from "../state/drafts";
import { session } from "../state/session";
import { useStore } from "../state/store";
import { ask, isBusy, stopAnswer, current } from "../state/current-conversation";
import { sizeOf } from "./files";
import type { Upload, useUploads } from "./uploads";

export interface ComposerHandle {
  put: (text: string) => void;
}

export function Composer({
  handle, files, model, onModel,
}: {
  handle: React.Ref<ComposerHandle>;
  files: ReturnType<typeof useUploads>;
  model: string | undefined;
  onModel: (name: string) => void;
}) {
  const id = useStore(current, (one) => one.id);
  const busy = useStore(current, isBusy);
  const [text, setText] = useDraft(id);
  const area = useAutoHeight(text);
  const chooser = useRef<HTMLInputElement>(null);
  useImperativeHandle(handle, () => ({ put: (more) => (setText(more), focusMessage()) }), [setText]);
  const isWaiting = files.uploads.some((one) => !one.stored && !one.problem);
  const stored = files.uploads.flatMap((one) => (one.stored ? [one.stored] : []));
  const canSend = !busy && (text.trim() !== "" || stored.length > 0 || isWaiting);
  const visit = useStore(current, (one) => one.visit);
  const [queued, setQueued] = useState<number | null>(null); // the visit in which Send was pressed
  const isQueued = queued === visit;

  const submit = (event?: FormEvent) => {
    event?.preventDefault();
    if (!canSend) return;
    if (isWaiting) return setQueued(visit); // sent when its files are uploaded
    setText("");
    files.clear();
    void ask(text.trim(), stored, model);
    focusMessage();
  };
  useEffect(() => {
    if (queued === null || (isQueued && isWaiting)) return;
    setQueued(null);
    // Do not send from another conversation, or without a file whose upload failed: the user has to decide that.
    if (isQueued && !files.uploads.some((one) => one.problem)) submit();
  }, [queued, isQueued, isWaiting]);
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
      <UploadList uploads={files.uploads} onRemove={files.remove} />
      <textarea
        id="message" ref={area} rows={1} value={text} placeholder="Write a message" aria-label="Message" autoFocus
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
        <ModelPicker model={model} onModel={onModel} />
        {busy ? (
          <button type="button" className="send is-stop" onClick={() => void stopAnswer()} aria-label="Stop" title="Stop (Esc)"><Icon name="stop" /></button>
        ) : (
          <button type="submit" className="send" disabled={!canSend || isQueued} aria-label="Send" title="Send (Enter)">
            {isQueued ? <i className="spinner" /> : <Icon name="send" />}
          </button>
        )}
      </div>
    </form>
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

function ModelPicker({ model, onModel }: { model: string | undefined; onModel: (name: string) => void }) {
  const models = useStore(session, (one) => (one.phase === "ready" ? one.settings.models : null));
  if (!models || models.names.length < 2) return <span className="model-name">{models?.default}</span>;
  return (
    <select className="model" aria-label="Model" value={model ?? models.default} onChange={(event) => onModel(event.target.value)}>
      {models.names.map((name) => <option key={name}>{name}</option>)}
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
