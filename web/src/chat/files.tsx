/** The files of a turn: images are shown, other files are listed by name. A click previews them. */

import { useState } from "react";
import type { Attachment } from "../api/types";
import { Icon, IconButton } from "../shell/icons";
import { isPicture, PreviewDialog, sizeOf, useFileUrl } from "./preview";

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

/** A click shows the file, and the part that was sent to the model. */
function StoredFile({ conversation, file }: { conversation: string; file: Attachment }) {
  const [isOpen, setOpen] = useState(false);
  const picture = useFileUrl(conversation, file, isPicture(file.media_type) && file.bytes <= LARGEST);
  return (
    <>
      <button type="button" className={`file ${picture ? "has-picture" : ""}`} onClick={() => setOpen(true)} title={`Show ${file.filename}`}>
        {picture ? <img src={picture} alt={file.filename} /> : <Icon name="file" />}
        <span className="file-name">{file.filename}</span>
        <small>{sizeOf(file.bytes)}</small>
      </button>
      <PreviewDialog conversation={conversation} file={file} isOpen={isOpen} onClose={() => setOpen(false)} />
    </>
  );
}
