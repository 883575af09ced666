import { useState } from "react";
import { adviceOf } from "../api/client";
import { summarize } from "../api/verbs";
import { useStore } from "../state/store";
import { talk } from "../state/talk";
import { complain, say } from "../state/toasts";
import { compactionOf } from "./settings";

/** Nothing is there yet: why, and how to have it now. */
export function Waiting({ conversation, what }: { conversation: string; what: string }) {
  const info = useStore(talk, (one) => one.info);
  const { trigger_turns: turns, trigger_tokens: tokens, strategy } = compactionOf(info?.settings ?? {});
  const when = strategy === "never" ? "This conversation is never summarised: see Rules." : `That happens by itself after ${turns} turns or ${tokens.toLocaleString("en")} tokens.`;
  return (
    <div className="panel-empty">
      <p>No {what} yet. They are written when older turns are summarised; until then the model reads those turns word for word. {when}</p>
      {strategy !== "never" && (info?.turn_count ?? 0) > 1 && <SummariseNow conversation={conversation} />}
    </div>
  );
}

export function SummariseNow({ conversation }: { conversation: string }) {
  const [isBusy, setBusy] = useState(false);
  const run = async () => {
    setBusy(true);
    try {
      const before = talk.get().remembered;
      await summarize(conversation);
      if (talk.get().remembered === before) talk.patch({ remembered: before + 1 });
      say("The older half of what was not summarised yet is now.");
    } catch (problem) {
      complain(`Not summarised. ${adviceOf(problem)}`);
    } finally {
      setBusy(false);
    }
  };
  return <button type="button" className="button" disabled={isBusy} onClick={() => void run()}>{isBusy ? "Summarising…" : "Summarise now"}</button>;
}
