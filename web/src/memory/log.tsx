/** The audit log: who did what, and when. It contains no message text, and its events form a hash chain. */

import { useState } from "react";
import { adviceOf } from "../api/client";
import type { LogEvent, Verified } from "../api/types";
import { audit, verify } from "../api/verbs";
import { counted } from "../inspector/account";
import { Icon } from "../shell/icons";
import { AsyncContent } from "../shell/async-content";
import { momentOf } from "../state/dates";
import { useResource } from "../state/resource";
import { useStore } from "../state/store";
import { current } from "../state/current-conversation";
import type { TabProps } from "./panel";
import { entriesOf, sentenceOf, type Entry } from "./views";

const PAGE = 200; // events

export function Log({ conversation, onTurn }: TabProps) {
  const [pages, setPages] = useState(1);
  const last = useStore(current, (one) => one.info?.last_event ?? 0);
  const memoryVersion = useStore(current, (one) => one.memoryVersion);
  const after = Math.max(0, last - pages * PAGE);
  const resource = useResource(() => readLog(conversation, after), [conversation, after, last, memoryVersion]);
  return (
    <>
      <Verify conversation={conversation} />
      <AsyncContent resource={resource} what="the log">
        {(events) => (
          <>
            <ol className="log">{entriesOf(events).map((entry) => <li key={entry.event.n}><Line entry={entry} onTurn={onTurn} /></li>)}</ol>
            {after > 0 && <button type="button" className="button" onClick={() => setPages(pages + 1)}>Earlier</button>}
          </>
        )}
      </AsyncContent>
    </>
  );
}

async function readLog(conversation: string, after: number): Promise<LogEvent[]> {
  const events: LogEvent[] = [];
  for (let from = after; ; from = events.at(-1)!.n) {
    const page = await audit(conversation, from, 1_000);
    events.push(...page.items);
    if (!page.next) return events;
  }
}

function Line({ entry, onTurn }: { entry: Entry; onTurn: (turn: string) => void }) {
  const { n, actor, at, turn, hash } = entry.event;
  return (
    <div className="log-line">
      <small className="figure" title={hash}>{n}</small>
      <p><strong>{actor || "Palaver"}</strong> {turn ? <button type="button" className="link" title="Show it in the chat" onClick={() => onTurn(turn)}>{sentenceOf(entry)}</button> : sentenceOf(entry)}</p>
      <time dateTime={at} title={at}>{momentOf(at)}</time>
    </div>
  );
}

function Verify({ conversation }: { conversation: string }) {
  const [state, setState] = useState<{ isBusy: boolean; found: Verified | null; problem: string }>({ isBusy: false, found: null, problem: "" });
  const run = async () => {
    setState({ isBusy: true, found: null, problem: "" });
    try {
      setState({ isBusy: false, found: await verify(conversation), problem: "" });
    } catch (problem) {
      setState({ isBusy: false, found: null, problem: adviceOf(problem) });
    }
  };
  return (
    <section>
      <p className="hint">Every entry has a fingerprint of its content and of the entry before it. Verify recomputes every fingerprint and reports anything changed, moved or removed.</p>
      <button type="button" className="button" disabled={state.isBusy} onClick={() => void run()}><Icon name="check" size={16} /> {state.isBusy ? "Verifying…" : "Verify"}</button>
      <div role="status">
        {state.problem && <p className="form-problem">{state.problem}</p>}
        {state.found && <Verdict found={state.found} />}
      </div>
    </section>
  );
}

function Verdict({ found }: { found: Verified }) {
  if (!found.ok)
    return <p className="verdict is-bad"><Icon name="warn" /><span><strong>Not intact.</strong> {found.row}: {found.problem}.</span></p>;
  const parts = [counted(found.events ?? 0, "event"), counted(found.turns ?? 0, "turn"), counted(found.attachments ?? 0, "file")];
  if (found.seals) parts.push(counted(found.seals, "seal"));
  return (
    <p className="verdict">
      <Icon name="check" />
      <span><strong>Intact.</strong> {parts.join(", ")}. The last fingerprint is <code title={found.tip ?? ""}>{found.tip?.slice(0, 12)}…</code></span>
    </p>
  );
}
