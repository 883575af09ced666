import { useState } from "react";
import { Dialog } from "../shell/dialog";
import { Icon } from "../shell/icons";
import { navigatePage } from "../state/route";
import { canManage, isOffline, session } from "../state/session";
import { useStore } from "../state/store";

/** A notice for servers without a model. Administrators can connect one in the settings; others see instructions. */
export function OfflineNotice() {
  const settings = useStore(session, (one) => (one.phase === "ready" ? one.settings : null));
  const [isOpen, setOpen] = useState(false);
  if (!settings || !isOffline(settings)) return null;
  return (
    <p className="offline">
      <Icon name="offline" size={16} />
      <span>No model connected. Palaver can only quote earlier messages.</span>
      <button type="button" className="link" onClick={() => (canManage(settings) ? navigatePage("settings", "models") : setOpen(true))}>Connect a model</button>
      <Dialog title="Connect a model" isOpen={isOpen} onClose={() => setOpen(false)}><ModelHelp /></Dialog>
    </p>
  );
}

/** Instructions for operators: how to connect a model. */
export function ModelHelp() {
  return (
    <>
      <p>Your messages are kept and found again without a model. For answers in a model's own words, start the server with a key:</p>
      <pre className="command" tabIndex={0}>{`export OPENAI_API_KEY=…
palaver serve --model openai:gpt-5-mini`}</pre>
      <pre className="command" tabIndex={0}>{`export ANTHROPIC_API_KEY=…
palaver serve --model anthropic:claude-sonnet-5`}</pre>
      <p>Or use a model on this machine, through any server that speaks OpenAI's format:</p>
      <pre className="command" tabIndex={0}>{`export OPENAI_BASE_URL=http://localhost:11434/v1 OPENAI_API_KEY=none
palaver serve --model openai:llama3.2`}</pre>
      <p className="hint">These keys are read from the environment. They are never stored, and never sent to this page.</p>
    </>
  );
}
