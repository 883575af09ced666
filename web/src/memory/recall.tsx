/** Try recall: what a query finds, and why. */

import { useState } from "react";
import type { Fact, Hit } from "../api/types";
import { recall } from "../api/verbs";
import { AsyncContent } from "../shell/async-content";
import { useResource } from "../state/resource";
import type { TabProps } from "./panel";
import { Scores } from "./scores";
import { TurnLine } from "./turns";

const PAUSE = 180; // milliseconds without a keystroke before the search runs
const MOST = 12;
const SCOPES = [["conversation", "this conversation"], ["owner", "all conversations of the same person"], ["tenant", "everything you may see"]] as const;

export function RecallBox({ conversation, onTurn }: TabProps) {
  const [words, setWords] = useState("");
  const [scope, setScope] = useState("conversation");
  const query = words.trim();
  const resource = useResource(
    async (signal) => (query ? recall(conversation, { query, scope, k: MOST }, signal) : null),
    [conversation, query, scope],
    PAUSE,
  );
  return (
    <>
      <p className="hint">Palaver searches memory before each answer. Try a query to see what it would find, and why.</p>
      <label className="field">
        <span>Search memory</span>
        <input type="search" value={words} placeholder="what can't I eat?" onChange={(event) => setWords(event.target.value)} />
      </label>
      <label className="field">
        <span>Where</span>
        <select value={scope} onChange={(event) => setScope(event.target.value)}>
          {SCOPES.map(([value, name]) => <option key={value} value={value}>{name}</option>)}
        </select>
      </label>
      {query && <AsyncContent resource={resource} what="what was found">{(hits) => <Hits hits={hits} onTurn={onTurn} />}</AsyncContent>}
    </>
  );
}

function Hits({ hits, onTurn }: { hits: Hit[]; onTurn: (turn: string) => void }) {
  if (hits.length === 0) return <p className="panel-empty" role="status">No results. Try different words.</p>;
  return (
    <>
      <p className="sr-only" role="status">{hits.length} found</p>
      <ol className="turn-lines hits" aria-label="Found">
        {hits.map((hit) => (
          <li key={hit.turn?.id ?? hit.fact!.id}>
            {hit.turn ? <TurnLine turn={hit.turn} onTurn={onTurn} /> : <FactLine fact={hit.fact!} onTurn={onTurn} />}
            <Scores score={hit.score} parts={hit.parts} />
          </li>
        ))}
      </ol>
    </>
  );
}

function FactLine({ fact, onTurn }: { fact: Fact; onTurn: (turn: string) => void }) {
  const body = <><small>a fact</small><span>{fact.subject} {fact.predicate.replaceAll("_", " ")} {fact.object}</span></>;
  if (!fact.source_turn) return <div className="turn-line">{body}</div>;
  return <button type="button" className="turn-line" title="Show where it was said" onClick={() => onTurn(fact.source_turn!)}>{body}</button>;
}
