/** The panel "What the model saw": the prompt of one answer, block by block. */

import { useMemo, useState } from "react";
import type { ModelRequest } from "../api/types";
import { CopyButton } from "../chat/copy";
import { PanelHead } from "../shell/panel-head";
import { AsyncContent } from "../shell/async-content";
import { useResource } from "../state/resource";
import { figuresOf } from "./account";
import { Account, UnchangedShare } from "./blocks";
import { earlierFilesOf, questionOf, readCalls } from "./calls";
import { Rebuild, useRebuild } from "./rebuild";
import "../memory/shared.css";
import "./inspector.css";

export interface InspectorProps {
  conversation: string;
  /** The answer. */
  turn: string;
  onClose: () => void;
  onTurn: (turn: string) => void;
}

export function Inspector({ conversation, turn, onClose, onTurn }: InspectorProps) {
  const resource = useResource((signal) => readCalls(conversation, turn, signal), [conversation, turn]);
  return (
    <>
      <PanelHead title="What the model saw" onClose={onClose} />
      <div className="panel-body prompt">
        <AsyncContent resource={resource} what="the prompt">
          {(calls) => <Calls calls={calls} conversation={conversation} turn={turn} onTurn={onTurn} />}
        </AsyncContent>
      </div>
    </>
  );
}

type CallsProps = Omit<InspectorProps, "onClose"> & { calls: ModelRequest[] };

function Calls({ calls, conversation, turn, onTurn }: CallsProps) {
  const [chosen, choose] = useState<string | null>(null);
  const call = calls.find((one) => one.id === chosen) ?? calls.at(-1) ?? null;
  const question = useMemo(() => questionOf(turn), [turn]);
  const earlierFiles = useMemo(() => earlierFilesOf(turn), [turn]);
  const sent = call?.explanation ?? null;
  const rebuilt = useRebuild(conversation, question, sent);
  const shown = rebuilt.context ?? (sent && { explanation: sent, messages: call!.body });
  return (
    <>
      {calls.length > 1 && <Rounds calls={calls} chosen={call} onChoose={choose} />}
      {!call && <NoRecord />}
      <section className={rebuilt.isOn ? "prompt-account is-rebuilt" : "prompt-account"} aria-label={rebuilt.isOn ? "What it would be" : "What was sent"} aria-busy={rebuilt.isBusy}>
        {shown && <Account explanation={shown.explanation} prompt={shown.messages} conversation={conversation} earlierFiles={earlierFiles} onTurn={onTurn} />}
      </section>
      <Rebuild rebuilt={rebuilt} sent={sent} />
      {call && <Call call={call} />}
    </>
  );
}

function NoRecord() {
  return (
    <p className="panel-empty">
      There is no request on record for this answer: it was written or imported, not generated here.
      Below is what a model would see of this conversation now.
    </p>
  );
}

/** Picks one call: each round of tools is a separate call with its own prompt. */
function Rounds({ calls, chosen, onChoose }: { calls: ModelRequest[]; chosen: ModelRequest | null; onChoose: (id: string) => void }) {
  return (
    <div className="rounds" role="group" aria-label="Requests for this answer">
      {calls.map((call, at) => (
        <button key={call.id} type="button" className="button" aria-pressed={call === chosen} onClick={() => onChoose(call.id)}>
          {at === calls.length - 1 ? "Answer" : `Round ${at + 1}`}
          <small>{((call.response?.calls ?? []) as string[]).join(", ")}</small>
        </button>
      ))}
    </div>
  );
}

function Call({ call }: { call: ModelRequest }) {
  return (
    <>
      <UnchangedShare share={call.explanation?.identical_prefix ?? null} />
      <section aria-labelledby="figures">
        <h3 id="figures">Usage, cost and time</h3>
        <dl className="figures">
          {figuresOf(call).map(({ name, value, about }, at) => (
            <div key={at}><dt>{name}</dt><dd>{value}{about && <small>{about}</small>}</dd></div>
          ))}
        </dl>
      </section>
      <Outbound call={call} />
    </>
  );
}

function Outbound({ call }: { call: ModelRequest }) {
  const text = useMemo(() => call.body && JSON.stringify(call.body, null, 2), [call]);
  return (
    <section aria-labelledby="outbound">
      <h3 id="outbound">Request</h3>
      {call.previous_response_id && <p className="hint">It continued a response that the provider had stored (previous_response_id).</p>}
      {text ? (
        <details className="outbound">
          <summary>The JSON that was sent, without secrets</summary>
          <figure className="code">
            <figcaption><span>{call.adapter}</span><CopyButton text={text} label="Copy the request" /></figcaption>
            <pre tabIndex={0} aria-label="Request">{text}</pre>
          </figure>
        </details>
      ) : (
        <p className="hint">The request was deleted because it contained a forgotten message.</p>
      )}
    </section>
  );
}
