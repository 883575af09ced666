/** Summaries along the thread: which turns each one covers, and which turns are not summarised. */

import { useRef } from "react";
import type { Summary } from "../api/types";
import { listSummaries } from "../api/verbs";
import { counted, spanOf } from "../inspector/account";
import { AsyncContent } from "../shell/async-content";
import { momentOf } from "../state/dates";
import { useResource } from "../state/resource";
import { useStore } from "../state/store";
import { current } from "../state/current-conversation";
import { showError } from "../state/toasts";
import type { TabProps } from "./panel";
import { type Branch, coveredTo, levelsOf, treeOf } from "./views";
import { turnAt } from "./turns";
import { SummariseButton, EmptyState } from "./empty-state";

export function Summaries({ conversation, onTurn }: TabProps) {
  const memoryVersion = useStore(current, (one) => one.memoryVersion);
  const total = useStore(current, (one) => one.info?.turn_count ?? 0);
  const list = useRef<HTMLOListElement>(null);
  const resource = useResource(() => listSummaries(conversation), [conversation, memoryVersion]);
  const show = (id: string) => {
    const found = list.current?.querySelector<HTMLElement>(`#summary-${id}`);
    for (let box = found?.closest("details"); box; box = box.parentElement?.closest("details")) box.open = true;
    found?.scrollIntoView({ block: "center" });
    found?.focus({ preventScroll: true });
  };
  return (
    <AsyncContent resource={resource} what="the summaries">
      {(summaries) => summaries.length === 0 ? <EmptyState conversation={conversation} what="summaries" /> : (
        <>
          <Strip summaries={summaries} total={Math.max(total, coveredTo(summaries))} onPick={show} />
          <ol className="timeline" ref={list}>
            {treeOf(summaries).map((branch) => <li key={branch.summary.id}><OneSummary branch={branch} onTurn={onTurn} /></li>)}
            <Rest from={coveredTo(summaries)} total={total} />
          </ol>
          <div className="row-of-buttons"><SummariseButton conversation={conversation} /></div>
        </>
      )}
    </AsyncContent>
  );
}

const levelName = (level: number) => (level === 0 ? "of messages" : level === 1 ? "of summaries" : `of summaries, level ${level}`);

/** The whole thread from left to right, with a row for each level. */
function Strip({ summaries, total, onPick }: { summaries: Summary[]; total: number; onPick: (id: string) => void }) {
  const place = (from: number, through: number) => ({ left: `${(100 * from) / total}%`, width: `${(100 * (through - from)) / total}%` });
  return (
    <div className="strip" role="group" aria-label="The conversation from its first to its last message">
      {levelsOf(summaries).map(([level, row]) => (
        <div key={level} className="strip-row">
          {row.map((one) => (
            <button
              key={one.id} type="button" className={`strip-piece level-${Math.min(level, 2)}`} style={place(one.from_seq, one.through_seq)}
              aria-label={`Summary ${levelName(level)}, ${spanOf(one.from_seq, one.through_seq)}`} title={spanOf(one.from_seq, one.through_seq)} onClick={() => onPick(one.id)}
            />
          ))}
          {level === 0 && <i className="strip-piece is-verbatim" title="word for word" style={place(coveredTo(row), total)} />}
        </div>
      ))}
      <p className="strip-ends"><small>first message</small><small>now</small></p>
    </div>
  );
}

function OneSummary({ branch: { summary, under }, onTurn }: { branch: Branch; onTurn: (turn: string) => void }) {
  const toTurns = async () => {
    const turn = await turnAt(summary.from_seq);
    if (turn) onTurn(turn);
    else showError("These messages were deleted. Only the summary is left.");
  };
  return (
    <article className={`summary level-${Math.min(summary.level, 2)}`} id={`summary-${summary.id}`} tabIndex={-1} aria-label={`Summary ${levelName(summary.level)}, ${spanOf(summary.from_seq, summary.through_seq)}`}>
      <header>
        <button type="button" className="link" title="Show them in the chat" onClick={() => void toTurns()}>{spanOf(summary.from_seq, summary.through_seq)}</button>
        <small>{levelName(summary.level)} · {counted(summary.token_count, "token")}</small>
      </header>
      <p>{summary.text || "Being rewritten, because a message in it was deleted."}</p>
      <small>by {summary.model}, {momentOf(summary.created)}</small>
      {under.length > 0 && (
        <details>
          <summary>Made from {counted(under.length, "summary").replace("summarys", "summaries")}</summary>
          <ol className="timeline">{under.map((one) => <li key={one.summary.id}><OneSummary branch={one} onTurn={onTurn} /></li>)}</ol>
        </details>
      )}
    </article>
  );
}

function Rest({ from, total }: { from: number; total: number }) {
  if (total <= from) return null;
  return <li className="rest"><strong>{spanOf(from, total)}</strong> are not summarised. The model reads them in full, as far as the budget allows.</li>;
}
