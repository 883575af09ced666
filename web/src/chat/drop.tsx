import { type DragEvent, useRef, useState } from "react";

/** Accept files dropped anywhere on the chat. Enters and leaves are counted, because they fire for child elements too. */
export function useDrop(onFiles: (files: FileList) => void) {
  const [isOver, setOver] = useState(false);
  const depth = useRef(0);
  const hasFiles = (event: DragEvent) => event.dataTransfer.types.includes("Files");
  const move = (event: DragEvent, by: number) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    depth.current = Math.max(0, depth.current + by);
    setOver(depth.current > 0);
  };
  return {
    isOver,
    handlers: {
      onDragEnter: (event: DragEvent) => move(event, 1),
      onDragOver: (event: DragEvent) => hasFiles(event) && event.preventDefault(),
      onDragLeave: (event: DragEvent) => move(event, -1),
      onDrop: (event: DragEvent) => {
        move(event, -depth.current);
        if (event.dataTransfer.files.length) onFiles(event.dataTransfer.files);
      },
    },
  };
}
