/** The calls of a tool round: planned, running, done. Each opens to show its arguments and result. */

import { memo } from "react";
import type { Json } from "../api/types";
import { Icon } from "../shell/icons";
import type { Step } from "../state/views";
import { CopyButton } from "./copy";

export const Steps = memo(
  function Steps({ steps }: { steps: Step[] }) {
    return (
      <ol className="steps" aria-label="Tools">
        {steps.map((step) => <li key={step.call.id}><OneStep step={step} /></li>)}
      </ol>
    );
  },
  (before, after) =>
    before.steps.length === after.steps.length &&
    before.steps.every((step, at) => step.call === after.steps[at]!.call && step.result === after.steps[at]!.result),
);

function OneStep({ step: { call, result } }: { step: Step }) {
  const state = !result ? "running" : result.is_error ? "failed" : "done";
  return (
    <details className={`step is-${state}`}>
      <summary>
        {state === "running" ? <i className="spinner" /> : <Icon name={state === "done" ? "check" : "warn"} size={15} />}
        <strong>{call.name}</strong>
        <span className="step-brief">{formatBriefly(call.arguments)}</span>
        <span className="sr-only">{state}</span>
      </summary>
      <Value name="Arguments" value={call.arguments} />
      {result && <Value name={result.is_error ? "Error" : "Result"} value={result.content} />}
    </details>
  );
}

function Value({ name, value }: { name: string; value: Json }) {
  const text = formatValue(value);
  return (
    <figure className="code step-value">
      <figcaption><span>{name}</span><CopyButton text={text} label={`Copy the ${name.toLowerCase()}`} /></figcaption>
      <pre tabIndex={0}>{text}</pre>
    </figure>
  );
}

const formatValue = (value: Json) => (typeof value === "string" ? value : JSON.stringify(value, null, 2));

export function formatBriefly(value: Json): string {
  const text = typeof value === "object" && value && !Array.isArray(value)
    ? Object.entries(value).map(([name, one]) => `${name}: ${typeof one === "string" ? one : JSON.stringify(one)}`).join(", ")
    : formatValue(value);
  return text.length > 80 ? `${text.slice(0, 80)}…` : text;
}
