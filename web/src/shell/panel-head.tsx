import { useEffect, useRef } from "react";
import { IconButton } from "./icons";

/** The header of a panel. Takes the focus when the panel opens and restores it when it closes; Escape closes the panel. */
export function PanelHead({ title, onClose }: { title: string; onClose: () => void }) {
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    const before = document.activeElement;
    heading.current?.focus();
    return () => {
      if (before instanceof HTMLElement) before.focus({ preventScroll: true });
    };
  }, []);
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => event.key === "Escape" && !event.defaultPrevented && onClose();
    const place = heading.current?.closest("aside");
    place?.addEventListener("keydown", onKey);
    return () => place?.removeEventListener("keydown", onKey);
  }, [onClose]);
  return (
    <header className="panel-head">
      <h2 ref={heading} tabIndex={-1}>{title}</h2>
      <IconButton icon="close" label="Close" onClick={onClose} />
    </header>
  );
}
