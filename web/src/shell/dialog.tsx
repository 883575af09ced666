import { type ReactNode, useEffect, useId, useRef } from "react";
import { IconButton } from "./icons";

/** A native dialog element: traps the focus, closes on Escape, and restores the focus. */
export function Dialog({
  title, isOpen, onClose, children, isWide = false,
}: { title: string; isOpen: boolean; onClose: () => void; children: ReactNode; isWide?: boolean }) {
  const element = useRef<HTMLDialogElement>(null);
  const name = useId();
  useEffect(() => {
    if (isOpen) element.current?.showModal();
    else element.current?.close();
  }, [isOpen]);
  return (
    <dialog
      ref={element} className={isWide ? "dialog is-wide" : "dialog"} aria-labelledby={name} onClose={onClose}
      onClick={(event) => event.target === element.current && onClose()}
    >
      {isOpen && (
        <div className="dialog-body">
          <header className="panel-head">
            <h2 id={name} dir="auto">{title}</h2>
            <IconButton icon="close" label="Close" onClick={onClose} />
          </header>
          {children}
        </div>
      )}
    </dialog>
  );
}
