import { useState } from "react";
import { adviceOf } from "../api/client";
import { summarize } from "../api/verbs";
import { useStore } from "../state/store";
import { current } from "../state/current-conversation";
import { showError, showMessage } from "../state/toasts";
import { compactionOf } from "./settings";

/** The empty state of notes and summaries: why there are none yet, and a button to summarise now. */
export function EmptyState({ conversation, what }: { conversation: string; what: string }) {
  const info = useStore(current, (one) => one.info);
  const { trigger_turns: turns, trigger_tokens: tokens, strategy } = compactionOf(info?.settings ?? {});
  const when = strategy === "never" ? "This conversation is never summarised: see Rules." : `This happens automatically after ${turns} messages or ${tokens.toLocaleString("en")} tokens.`;
  return (
    <div className="panel-empty">
      <p>No {what} yet. They are written when older messages are summarised. Until then, the model reads those messages in full. {when}</p>
      {strategy !== "never" && (info?.turn_count ?? 0) > 1 && <SummariseButton conversation={conversation} />}
    </div>
  );
}

export function SummariseButton({ conversation }: { conversation: string }) {
  const [isBusy, setBusy] = useState(false);
  const run = async () => {
    setBusy(true);
    try {
      const before = current.get().memoryVersion;
      await summarize(conversation);
      if (current.get().memoryVersion === before) current.patch({ memoryVersion: before + 1 });
      showMessage("Older messages summarised.");
    } catch (problem) {
      showError(`Not summarised. ${adviceOf(problem)}`);
    } finally {
      setBusy(false);
    }
  };
  return <button type="button" className="button" disabled={isBusy} onClick={() => void run()}>{isBusy ? "Summarising…" : "Summarise now"}</button>;
}
