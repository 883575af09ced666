import { useState } from "react";
import { Dialog } from "../shell/dialog";
import { Icon } from "../shell/icons";
import { isOffline, session } from "../state/session";
import { useStore } from "../state/store";

/** A notice for servers without a model, with instructions to add one. */
export function OfflineNotice() {
  const offline = useStore(session, (one) => one.phase === "ready" && isOffline(one.settings));
  const [isOpen, setOpen] = useState(false);
  if (!offline) return null;
  return (
    <p className="offline">
      <Icon name="offline" size={16} />
      <span>Offline: no model is set up. Answers quote what was said before.</span>
      <button type="button" className="link" onClick={() => setOpen(true)}>Add a model</button>
      <Dialog title="Add a model" isOpen={isOpen} onClose={() => setOpen(false)}>
        <p>Everything here works without one: your words are kept, found again and quoted. For answers in a model's own words, stop the server and start it with a key:</p>
        <pre className="command" tabIndex={0}>{`export OPENAI_API_KEY=…
palaver serve --model openai:gpt-5-mini`}</pre>
        <pre className="command" tabIndex={0}>{`export ANTHROPIC_API_KEY=…
palaver serve --model anthropic:claude-sonnet-5`}</pre>
        <p>A model on this machine, through any server that speaks OpenAI's format:</p>
        <pre className="command" tabIndex={0}>{`export OPENAI_BASE_URL=http://localhost:11434/v1 OPENAI_API_KEY=none
palaver serve --model openai:llama3.2`}</pre>
        <p className="hint">Keys are read from the environment. They are never stored, and never sent to this page.</p>
      </Dialog>
    </p>
  );
}
