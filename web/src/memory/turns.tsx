/** Turns in a panel, one line each, which links to the turn in the thread. */

import { type ReactNode, useState } from "react";
import { Problem } from "../api/client";
import type { Turn } from "../api/types";
import { getTurn } from "../api/verbs";
import { momentOf } from "../state/dates";
import { useResource } from "../state/resource";
import { loadOlder, current } from "../state/current-conversation";
import { textOf } from "../state/text";
import { AsyncContent } from "../shell/async-content";

const FIRST = 8; // lines shown before "more"
const BRIEF = 220; // characters

export type Place = { turn: string; conversation: string };

/** Take turns from the thread if they are loaded, otherwise from the server; null for deleted ones. */
async function readTurns(places: Place[]): Promise<Map<string, Turn | null>> {
  const { id, thread } = current.get();
  const here = new Map(thread.turns.map((one) => [one.id, one]));
  const found = await Promise.all(
    places.map(async ({ turn, conversation }) => (conversation === id && here.get(turn)) || (await turnOrNone(conversation, turn))),
  );
  return new Map(places.map(({ turn }, at) => [turn, found[at]!]));
}

async function turnOrNone(conversation: string, turn: string): Promise<Turn | null> {
  try {
    return await getTurn(conversation, turn);
  } catch (problem) {
    if (problem instanceof Problem && (problem.status === 404 || problem.status === 410)) return null;
    throw problem;
  }
}

export function Turns({ places, onTurn, children }: {
  places: Place[];
  onTurn: (turn: string) => void;
  /** Extra content below each line. */
  children?: (turn: string) => ReactNode;
}) {
  const [isWhole, setWhole] = useState(false);
  const shown = isWhole ? places : places.slice(0, FIRST);
  const resource = useResource(() => readTurns(shown), [shown.map((one) => one.turn).join()]);
  return (
    <AsyncContent resource={resource} what="the turns">
      {(turns) => (
        <>
          <ul className="turn-lines">
            {shown.map(({ turn }) => <li key={turn}><TurnLine turn={turns.get(turn)} onTurn={onTurn} />{children?.(turn)}</li>)}
          </ul>
          {shown.length < places.length && (
            <button type="button" className="link" onClick={() => setWhole(true)}>All {places.length} messages</button>
          )}
        </>
      )}
    </AsyncContent>
  );
}

/** The turn: undefined while loading, null if deleted. */
export function TurnLine({ turn, onTurn }: { turn: Turn | null | undefined; onTurn: (turn: string) => void }) {
  if (turn === undefined) return <i className="ghost" />;
  if (turn === null) return <p className="hint">This message was deleted.</p>;
  const isElsewhere = turn.conversation !== current.get().id;
  const body = (
    <>
      <small>{turn.actor} · {momentOf(turn.created)}{isElsewhere && " · another conversation"}</small>
      <span>{brief(turn)}</span>
    </>
  );
  return isElsewhere ? <div className="turn-line">{body}</div>
    : <button type="button" className="turn-line" title="Show it in the chat" onClick={() => onTurn(turn.id)}>{body}</button>;
}

export function brief(turn: Turn): string {
  const text = textOf(turn.content).trim();
  if (text) return text.length > BRIEF ? `${text.slice(0, BRIEF)}…` : text;
  if (turn.tool_calls.length) return `Calls ${turn.tool_calls.map((call) => call.name).join(", ")}`;
  if (turn.tool_results.length) return "The result of a tool";
  return turn.status === "forgotten" ? "This message was deleted." : "Files only";
}

/** The turn at a position, loading earlier pages as needed. Null if there is none. */
export async function turnAt(position: number): Promise<string | null> {
  for (;;) {
    const { thread, older } = current.get();
    const found = thread.turns.find((one) => one.position >= position);
    if (found && (found.position === position || !older)) return found.id;
    if (found && found !== thread.turns[0]) return found.id;
    if (!older || !(await loadOlder())) return found?.id ?? null;
  }
}
