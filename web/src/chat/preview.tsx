/** Previews of the files of a message, and the parts that were sent to the model. */

import { useEffect, useState } from "react";
import { adviceOf } from "../api/client";
import type { Attachment, ContextFile } from "../api/types";
import { attachmentText, download, listRequests } from "../api/verbs";
import { save } from "../history/export";
import { AsyncContent } from "../shell/async-content";
import { Dialog } from "../shell/dialog";
import { Icon } from "../shell/icons";
import { useResource } from "../state/resource";
import { showError } from "../state/toasts";

/** Image types that are safe to display. SVG is excluded, because it may contain scripts. */
export const isPicture = (type: string) => /^image\/(png|jpeg|gif|webp|avif)$/.test(type);
const LARGEST = 20_000_000; // bytes; larger files are only saved
const isText = (type: string) => /^text\/|json|xml|yaml|csv/.test(type);

export function PreviewDialog({ conversation, file, isOpen, onClose }: { conversation: string; file: Attachment; isOpen: boolean; onClose: () => void }) {
  return (
    <Dialog title={file.filename} isOpen={isOpen} onClose={onClose} isWide>
      <Preview conversation={conversation} file={file} />
      <Sent conversation={conversation} file={file} />
      <div className="row-of-buttons"><button type="button" className="button" onClick={() => void keep(conversation, file)}><Icon name="download" size={16} /> Save {file.filename}</button></div>
    </Dialog>
  );
}

export async function keep(conversation: string, file: Attachment): Promise<void> {
  try {
    save(file.filename, await download(conversation, file.id));
  } catch (problem) {
    showError(`The file could not be loaded. ${adviceOf(problem)}`);
  }
}

/** Pictures and PDFs as they are, text as text. Everything else can be saved. */
function Preview({ conversation, file }: { conversation: string; file: Attachment }) {
  const isShown = file.bytes <= LARGEST;
  if (isShown && isPicture(file.media_type)) return <Picture conversation={conversation} file={file} />;
  if (isShown && file.media_type === "application/pdf") return <Pdf conversation={conversation} file={file} />;
  if (isShown && isText(file.media_type)) return <Text conversation={conversation} file={file} />;
  return <p className="hint">There is no preview of {file.media_type} files ({sizeOf(file.bytes)}).</p>;
}

/** Shown by the browser's own viewer. */
function Pdf({ conversation, file }: { conversation: string; file: Attachment }) {
  const url = useFileUrl(conversation, file);
  return url ? <iframe className="pdf" title={file.filename} src={url} /> : <p role="status" className="hint">Loading…</p>;
}

function Picture({ conversation, file }: { conversation: string; file: Attachment }) {
  const url = useFileUrl(conversation, file);
  return url ? <img className="picture" src={url} alt={file.filename} /> : <p role="status" className="hint">Loading…</p>;
}

function Text({ conversation, file }: { conversation: string; file: Attachment }) {
  const resource = useResource(async () => (await download(conversation, file.id)).text(), [conversation, file.id]);
  return <AsyncContent resource={resource} what="the file">{(text) => <pre className="words" tabIndex={0} dir="auto">{text.slice(0, 100_000)}</pre>}</AsyncContent>;
}

/** Fetch a file with the caller's key, which an address could not carry. */
export function useFileUrl(conversation: string, file: Attachment, isWanted = true): string | null {
  const [url, setUrl] = useState<string | null>(null);
  useEffect(() => {
    if (!isWanted) return;
    let made: string | null = null;
    let isCurrent = true;
    download(conversation, file.id)
      .then((blob) => {
        if (isCurrent) setUrl((made = URL.createObjectURL(blob.slice(0, blob.size, file.media_type))));
      })
      .catch(() => undefined); // the file can still be saved by its name
    return () => {
      isCurrent = false;
      if (made) URL.revokeObjectURL(made);
    };
  }, [conversation, file.id, file.media_type, isWanted]);
  return url;
}

// ---- what was sent

const STATES: { [state: string]: string } = {
  "in full": "Sent to the model in full", "in part": "Sent to the model in part", "not sent": "Not sent to the model",
};

/** Whether the file was sent to the model, and the text that was extracted from it. */
function Sent({ conversation, file }: { conversation: string; file: Attachment }) {
  const resource = useResource(() => sentOf(conversation, file), [conversation, file.id]);
  return (
    <AsyncContent resource={resource} what="what was sent">
      {({ found, words }) => (
        <section className="sent-file" aria-label="What was sent to the model">
          <h3>{found ? STATES[found.state] : "Not sent to a model yet"}</h3>
          {found && <p className="hint">{found.reason}{found.tokens > 0 && ` (${found.tokens.toLocaleString("en")} tokens)`}</p>}
          {words && <pre className="words" tabIndex={0} dir="auto">{words}</pre>}
        </section>
      )}
    </AsyncContent>
  );
}

async function sentOf(conversation: string, file: Attachment): Promise<{ found: ContextFile | null; words: string }> {
  const calls = await listRequests(conversation, undefined, 100).catch(() => []);
  const call = calls.findLast((one) => one.explanation?.files?.some((each) => each.attachment === file.id));
  const found = call?.explanation?.files?.find((one) => one.attachment === file.id) ?? null;
  if (!found || found.state === "not sent") return { found, words: "" };
  const whole = await attachmentText(conversation, file.id).catch(() => "");
  return { found, words: wordsSent(whole, JSON.stringify(call?.body ?? "")) };
}

/** The longest beginning of a file's text that is in the request, line by line. */
export function wordsSent(text: string, request: string): string {
  const lines = text.split("\n");
  const isSent = (line: string) => line.trim() === "" || request.includes(JSON.stringify(line.trim()).slice(1, -1));
  const end = lines.findIndex((line) => !isSent(line));
  return (end < 0 ? lines : lines.slice(0, end)).join("\n").trim();
}

export function sizeOf(bytes: number): string {
  if (bytes < 1_000) return `${bytes} B`;
  if (bytes < 1_000_000) return `${Math.round(bytes / 1_000)} kB`;
  return `${(bytes / 1_000_000).toFixed(1)} MB`;
}
