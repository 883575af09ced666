/** Facts: subject, predicate, object, confidence, validity and source turn. */

import { useState } from "react";
import { adviceOf } from "../api/client";
import type { Fact } from "../api/types";
import { extractFacts, forgetFact, listFacts, updateConversation } from "../api/verbs";
import { IconButton } from "../shell/icons";
import { AsyncContent } from "../shell/async-content";
import { dayOf, momentOf } from "../state/dates";
import { useResource } from "../state/resource";
import { useStore } from "../state/store";
import { current } from "../state/current-conversation";
import { showError, showMessage } from "../state/toasts";
import type { TabProps } from "./panel";

export function Facts({ conversation, onTurn }: TabProps) {
  const [isWhole, setWhole] = useState(false);
  const memoryVersion = useStore(current, (one) => one.memoryVersion);
  const resource = useResource(() => listFacts(conversation, isWhole), [conversation, isWhole, memoryVersion]);
  return (
    <>
      <p className="hint">Facts about people and things, taken from what was said. A newer fact replaces an older one; the older one is kept with the day it ended.</p>
      <label className="check"><input type="checkbox" checked={isWhole} onChange={(event) => setWhole(event.target.checked)} /> Show outdated facts</label>
      <AsyncContent resource={resource} what="the facts">
        {(facts) => (facts.length ? <Table facts={facts} conversation={conversation} onTurn={onTurn} onChange={resource.again} /> : <p className="panel-empty">No facts yet.</p>)}
      </AsyncContent>
      <Extraction conversation={conversation} onChange={resource.again} />
    </>
  );
}

function Table({ facts, conversation, onTurn, onChange }: TabProps & { facts: Fact[]; onChange: () => void }) {
  const forget = async (fact: Fact) => {
    try {
      await forgetFact(conversation, fact.id);
    } catch (problem) {
      showError(`Not deleted. ${adviceOf(problem)}`);
    }
    onChange();
  };
  return (
    <table className="facts-table">
      <thead><tr><th scope="col">Fact</th><th scope="col">Confidence</th><th scope="col">Valid</th><th><span className="sr-only">Delete</span></th></tr></thead>
      <tbody>
        {facts.map((fact) => (
          <tr key={fact.id} className={fact.invalidated_at ? "is-over" : ""}>
            <td>
              <span>{fact.subject} <small>{fact.predicate.replaceAll("_", " ")}</small> {fact.object}</span>
              {fact.source_turn && <button type="button" className="link" onClick={() => onTurn(fact.source_turn!)}>source</button>}
            </td>
            <td><meter min={0} max={1} value={fact.confidence} title={`added by ${fact.by}`}>{fact.confidence}</meter><small>{Math.round(fact.confidence * 100)}%</small></td>
            <td><time dateTime={fact.valid_from} title={momentOf(fact.valid_from)}>since {dayOf(fact.valid_from)}</time>{fact.invalidated_at && <small>until {dayOf(fact.invalidated_at)}</small>}</td>
            <td><IconButton icon="trash" size={15} label={`Delete permanently: ${fact.subject} ${fact.predicate} ${fact.object}`} onClick={() => void forget(fact)} /></td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** Turn on fact extraction for the conversation, or run it once. */
function Extraction({ conversation, onChange }: { conversation: string; onChange: () => void }) {
  const info = useStore(current, (one) => one.info);
  const [isBusy, setBusy] = useState(false);
  const isOn = info?.settings.facts === true;
  const run = async (work: () => Promise<string>) => {
    setBusy(true);
    try {
      showMessage(await work());
    } catch (problem) {
      showError(adviceOf(problem));
    }
    setBusy(false);
    onChange();
  };
  const once = async () => {
    const found = await extractFacts(conversation);
    return found.length === 0 ? "No new facts in the messages since the last summary." : found.length === 1 ? "One new fact." : `${found.length} new facts.`;
  };
  const always = async () => {
    current.patch({ info: await updateConversation(conversation, { settings: { ...info!.settings, facts: true } }) });
    return "From now on, facts are extracted whenever messages are summarised.";
  };
  return (
    <div className="row-of-buttons">
      <button type="button" className="button" disabled={isBusy} onClick={() => void run(once)}>Extract facts now</button>
      {info && !isOn && <button type="button" className="button" disabled={isBusy} onClick={() => void run(always)}>Always extract facts</button>}
    </div>
  );
}
