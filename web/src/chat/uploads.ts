/** Uploads of files for the message that is being written. */

import { useCallback, useEffect, useRef, useState } from "react";
import { adviceOf } from "../api/client";
import type { Attachment } from "../api/types";
import { upload } from "../api/verbs";
import { session } from "../state/session";
import { useStore } from "../state/store";
import { ensureConversation, current } from "../state/current-conversation";
import { showError } from "../state/toasts";
import { isPicture, sizeOf } from "./preview";

export interface Upload {
  id: string;
  name: string;
  size: number;
  preview: string | null;
  share: number;
  stored: Attachment | null;
  problem: string;
}

export function useUploads() {
  const [uploads, setUploads] = useState<Upload[]>([]);
  const running = useRef(new Map<string, AbortController>());
  const change = useCallback((id: string, fields: Partial<Upload>) => {
    setUploads((all) => all.map((one) => (one.id === id ? { ...one, ...fields } : one)));
  }, []);

  const start = useCallback(async (file: File) => {
    const id = crypto.randomUUID();
    const name = nameOf(file);
    const control = new AbortController();
    running.current.set(id, control);
    const preview = isPicture(file.type) ? URL.createObjectURL(file) : null;
    setUploads((all) => [...all, { id, name, size: file.size, preview, share: 0, stored: null, problem: "" }]);
    try {
      const place = await ensureConversation();
      const stored = await upload(place, file, name, (share) => change(id, { share }), control.signal);
      change(id, { stored, share: 1 });
    } catch (problem) {
      if (!control.signal.aborted) change(id, { problem: adviceOf(problem) });
    } finally {
      running.current.delete(id);
    }
  }, [change]);

  const count = uploads.length;
  const add = useCallback((files: Iterable<File>) => {
    const chosen = [...files];
    chosen.map(refusalOf).filter(Boolean).forEach(showError);
    const good = chosen.filter((file) => !refusalOf(file));
    const most = limitOf("files_per_turn", 10);
    const room = Math.max(0, most - count);
    if (good.length > room) showError(`At most ${most} files in one message.`);
    good.slice(0, room).forEach((file) => void start(file));
  }, [start, count]);

  const remove = useCallback((id: string) => {
    running.current.get(id)?.abort();
    setUploads((all) => all.filter((one) => one.id !== id || forget(one)));
  }, []);

  /** List files again that are stored already: those of a message that could not be sent. */
  const restore = useCallback((stored: Attachment[]) => setUploads((all) => [...all, ...stored.map(uploadOf)]), []);

  const clear = useCallback(() => setUploads((all) => (all.forEach(forget), [])), []);
  const visit = useStore(current, (one) => one.visit);
  useEffect(() => {
    const started = running.current;
    return () => {
      started.forEach((control) => control.abort());
      clear(); // an upload belongs to the conversation it was made in
    };
  }, [visit, clear]);
  return { uploads, add, remove, restore, clear };
}

const uploadOf = (stored: Attachment): Upload =>
  ({ id: stored.id, name: stored.filename, size: stored.bytes, preview: null, share: 1, stored, problem: "" });

/** Release the preview image. */
function forget(upload: Upload): void {
  if (upload.preview) URL.revokeObjectURL(upload.preview);
}

function limitOf(name: string, otherwise: number): number {
  const now = session.get();
  return (now.phase === "ready" ? now.settings.limits[name] : undefined) ?? otherwise;
}

/** The file name, with a default for pasted images, which have none. */
const nameOf = (file: File) => (file.name || `pasted.${file.type.split("/")[1] ?? "bin"}`).slice(0, 255);

function refusalOf(file: File): string {
  const limit = limitOf("file_bytes", 50_000_000);
  if (file.size > limit) return `“${nameOf(file)}” is too large: ${sizeOf(file.size)}. The limit is ${sizeOf(limit)}.`;
  if (file.size === 0) return `“${nameOf(file)}” is empty.`;
  return "";
}
