/** The files of a turn: images are shown, other files are listed by name; all can be saved. */

import { useEffect, useState } from "react";
import { adviceOf } from "../api/client";
import type { Attachment } from "../api/types";
import { download } from "../api/verbs";
import { save } from "../history/export";
import { Icon, IconButton } from "../shell/icons";
import { showError } from "../state/toasts";

/** Image types that are safe to display. SVG is excluded, because it may contain scripts. */
export const isPicture = (type: string) => /^image\/(png|jpeg|gif|webp|avif)$/.test(type);
const LARGEST = 10_000_000; // bytes; larger images are not shown automatically

export function Files({ conversation, files }: { conversation: string; files: Attachment[] }) {
  if (!files.length) return null;
  return (
    <ul className="files" aria-label="Files">
      {files.map((file) => <li key={file.id}><StoredFile conversation={conversation} file={file} /></li>)}
    </ul>
  );
}

/** The files of a message that is being edited. */
export function RemovableFiles({ files, onRemove }: { files: Attachment[]; onRemove: (id: string) => void }) {
  if (!files.length) return null;
  return (
    <ul className="uploads" aria-label="Attached files">
      {files.map((file) => (
        <li key={file.id} className="upload">
          <Icon name="file" />
          <span className="file-name">{file.filename}</span>
          <small>{sizeOf(file.bytes)}</small>
          <IconButton icon="close" size={14} label={`Remove ${file.filename}`} onClick={() => onRemove(file.id)} />
        </li>
      ))}
    </ul>
  );
}

function StoredFile({ conversation, file }: { conversation: string; file: Attachment }) {
  const picture = usePicture(conversation, file);
  const keep = async () => {
    try {
      save(file.filename, await download(conversation, file.id));
    } catch (problem) {
      showError(`The file cannot be had. ${adviceOf(problem)}`);
    }
  };
  return (
    <button type="button" className={`file ${picture ? "has-picture" : ""}`} onClick={() => void keep()} title={`Save ${file.filename}`}>
      {picture ? <img src={picture} alt={file.filename} /> : <Icon name="file" />}
      <span className="file-name">{file.filename}</span>
      <small>{sizeOf(file.bytes)}</small>
    </button>
  );
}

/** Fetch the image with the caller's key, which an img URL could not carry. */
function usePicture(conversation: string, file: Attachment): string | null {
  const [url, setUrl] = useState<string | null>(null);
  const isShown = isPicture(file.media_type) && file.bytes <= LARGEST;
  useEffect(() => {
    if (!isShown) return;
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
  }, [conversation, file.id, file.media_type, isShown]);
  return url;
}

export function sizeOf(bytes: number): string {
  if (bytes < 1_000) return `${bytes} B`;
  if (bytes < 1_000_000) return `${Math.round(bytes / 1_000)} kB`;
  return `${(bytes / 1_000_000).toFixed(1)} MB`;
}
