import { useState } from "react";
import { IconButton } from "../shell/icons";
import { showError } from "../state/toasts";

export function CopyButton({ text, label }: { text: string | (() => string); label: string }) {
  const [isDone, setDone] = useState(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(typeof text === "string" ? text : text());
      setDone(true);
      setTimeout(() => setDone(false), 1_500);
    } catch {
      showError("This browser does not let the page copy. Select the text instead.");
    }
  };
  return <IconButton icon={isDone ? "check" : "copy"} size={16} label={isDone ? "Copied" : label} onClick={() => void copy()} />;
}
