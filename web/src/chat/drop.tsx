import { useEffect, useRef, useState } from "react";

/** Accept files that are dropped anywhere on the page: elsewhere the browser would leave the app and open the file. */
export function useDrop(onFiles: (files: FileList) => void): boolean {
  const [isOver, setOver] = useState(false);
  const receive = useRef(onFiles);
  receive.current = onFiles;
  useEffect(() => {
    let depth = 0; // enters minus leaves: both fire for child elements too
    const end = new AbortController();
    const listen = (kind: "dragenter" | "dragover" | "dragleave" | "drop", run: (event: DragEvent) => void) =>
      addEventListener(kind, (event) => {
        if (!event.dataTransfer?.types.includes("Files")) return;
        event.preventDefault();
        run(event);
        setOver(depth > 0);
      }, { signal: end.signal });
    listen("dragenter", () => void depth++);
    listen("dragover", () => undefined);
    listen("dragleave", () => void (depth = Math.max(0, depth - 1)));
    listen("drop", (event) => {
      depth = 0;
      if (event.dataTransfer!.files.length) receive.current(event.dataTransfer!.files);
    });
    return () => end.abort();
  }, []);
  return isOver;
}
