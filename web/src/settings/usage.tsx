/** Requests and tokens by model, of the last 30 days. */

import { nameOf } from "../api/advice";
import type { BudgetLine, UsageLine } from "../api/types";
import { listBudgets, listUsage } from "../api/verbs";
import { sizeOf } from "../chat/preview";
import { AsyncContent } from "../shell/async-content";
import { count, money } from "../inspector/account";
import { momentOf } from "../state/dates";
import { useResource } from "../state/resource";

const DAYS = 30;

export function Usage() {
  const resource = useResource(() => listUsage(new Date(Date.now() - DAYS * 86_400_000).toISOString()), []);
  return (
    <section id="usage" aria-labelledby="usage-title">
      <h2 id="usage-title">Usage and budgets</h2>
      <Budgets />
      <AsyncContent resource={resource} what="the usage">
        {(lines) => (lines.length ? <Table lines={totalsOf(lines)} /> : <p className="hint">No tokens were used in the last {DAYS} days.</p>)}
      </AsyncContent>
    </section>
  );
}

/** The budget limits of this person: how much is used, how much is left, and when they reset. */
function Budgets() {
  const { data } = useResource(() => listBudgets(), []);
  if (!data?.length) return null;
  return (
    <ul className="cards" aria-label="Budgets">
      {data.map((one) => (
        <li key={`${one.kind}-${one.measure}-${one.period}`} className="card">
          <header><strong>{nameOfBudget(one)}</strong><small>{amount(one.left, one)} left of {amount(one.limit, one)}{one.resets_at && `, until ${momentOf(one.resets_at)}`}</small></header>
          <meter min={0} max={one.limit} value={Math.min(one.used, one.limit)} aria-label={`${nameOfBudget(one)}: ${amount(one.used, one)} used`} />
        </li>
      ))}
    </ul>
  );
}

const nameOfBudget = ({ kind, measure, period }: BudgetLine) =>
  `${measure[0]!.toUpperCase()}${measure.slice(1)} ${period === "total" ? "in total" : `per ${period}`}${kind === "tenant" ? " for everyone" : ""}`;
const amount = (value: number, { measure }: BudgetLine) => (measure === "dollars" ? money(value) : measure === "bytes" ? sizeOf(value) : count(value));

type Total = Pick<UsageLine, "model" | "calls" | "prompt" | "completion">;

export function totalsOf(lines: UsageLine[]): Total[] {
  const totals = new Map<string, Total>();
  for (const { model, prompt, completion, calls } of lines) {
    const before = totals.get(model) ?? { model, prompt: 0, completion: 0, calls: 0 };
    totals.set(model, { model, prompt: before.prompt + prompt, completion: before.completion + completion, calls: before.calls + calls });
  }
  return [...totals.values()].sort((a, b) => b.prompt + b.completion - a.prompt - a.completion);
}

function Table({ lines }: { lines: Total[] }) {
  return (
    <div className="table" tabIndex={0} role="group" aria-label="Usage of the last 30 days">
      <table className="usage-table">
        <thead><tr><th scope="col">Model</th><th scope="col">Requests</th><th scope="col">Prompt tokens</th><th scope="col">Answer tokens</th></tr></thead>
        <tbody>{lines.map((one) => <tr key={one.model}><td>{nameOf(one.model)}</td><td>{count(one.calls)}</td><td>{count(one.prompt)}</td><td>{count(one.completion)}</td></tr>)}</tbody>
      </table>
    </div>
  );
}
