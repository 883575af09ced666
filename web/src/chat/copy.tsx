import { useState } from "react";
import { Icon, IconButton } from "../shell/icons";
import { showError } from "../state/toasts";

/** Copy text. With `words`, the button shows them next to its icon. */
export function CopyButton({ text, label, words }: { text: string | (() => string); label: string; words?: string }) {
  const [isDone, setDone] = useState(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(typeof text === "string" ? text : text());
      setDone(true);
      setTimeout(() => setDone(false), 1_500);
    } catch {
      showError("This browser doesn't let the page copy. Select the text instead.");
    }
  };
  const icon = isDone ? "check" : "copy";
  const name = isDone ? "Copied" : label;
  if (!words) return <IconButton icon={icon} size={16} label={name} onClick={() => void copy()} />;
  return (
    <button type="button" className="text-button" aria-label={name} title={name} onClick={() => void copy()}>
      <Icon name={icon} size={16} /> {isDone ? "Copied" : words}
    </button>
  );
}
