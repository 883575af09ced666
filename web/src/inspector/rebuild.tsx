/** Rebuild the prompt of the same question with another budget or policy. */

import { useState } from "react";
import type { Context, Explanation, Fields } from "../api/types";
import { buildContext } from "../api/verbs";
import { useResource } from "../state/resource";
import { session } from "../state/session";
import { useStore } from "../state/store";
import { count } from "./account";

export const BUDGETS = [250, 500, 1_000, 1_500, 2_000, 3_000, 4_000, 6_000, 8_000, 12_000, 16_000, 32_000, 64_000, 128_000];
const PAUSE = 120; // milliseconds without a change before the server is asked
const POLICIES: { [name: string]: string } = {
  balanced: "Memory, summaries and recent messages; recalled messages take at most 38%.",
  "recall-heavy": "Messages related to the question first, then a few recent ones.",
  "recent-chars": "Summaries and recent messages, no recall.",
  "last-20": "The last 20 messages as one quoted text.",
  "oldest-first": "Everything. If it is too long, the oldest messages are left out.",
};

export interface RebuildOptions {
  budget: number;
  policy: string;
}

export interface Rebuilt {
  wish: RebuildOptions | null;
  context: Context | null;
  problem: string;
  isOn: boolean;
  isBusy: boolean;
  set: (wish: RebuildOptions | null) => void;
}

/** Ask the server only after the slider was moved, or when there is no stored prompt to show. */
export function useRebuild(conversation: string, question: string | null, sent: Explanation | null): Rebuilt {
  const [chosen, set] = useState<RebuildOptions | null>(null);
  const wish = chosen ?? (sent ? null : { budget: 8_000, policy: "balanced" });
  const { data, problem, isBusy } = useResource(
    async (signal) => (wish ? { wish, context: await buildContext(conversation, bodyOf(wish, question), signal) } : null),
    [conversation, question, wish?.budget, wish?.policy],
    PAUSE,
  );
  const context = wish && !problem ? (data?.context ?? null) : null;
  return { wish, context, problem: wish ? problem : "", isOn: chosen !== null, isBusy: wish !== null && isBusy, set };
}

/** `preview`, because trying a small budget must not make the server summarise turns. */
export const bodyOf = (wish: RebuildOptions, question: string | null): Fields => ({
  token_budget: wish.budget, policy: wish.policy, preview: true, ...(question && { message: question }),
});

/** The slider step nearest to a budget. */
export function stepOf(budget: number): number {
  const distance = (value: number) => Math.abs(Math.log(value / Math.max(1, budget)));
  return BUDGETS.reduce((best, value, at) => (distance(value) < distance(BUDGETS[best]!) ? at : best), 0);
}

export function Rebuild({ rebuilt, sent }: { rebuilt: Rebuilt; sent: Explanation | null }) {
  const policies = useStore(session, (one) => (one.phase === "ready" ? one.settings.policies : null)) ?? Object.keys(POLICIES);
  const now = rebuilt.wish ?? { budget: sent?.unit === "tokens" ? sent.budget : 8_000, policy: sent?.policy ?? "balanced" };
  const at = stepOf(now.budget);
  return (
    <section className="rebuild" aria-labelledby="rebuild">
      <h3 id="rebuild">Try another budget</h3>
      <label className="field">
        <span>Budget <strong>{count(now.budget)} tokens</strong></span>
        <input
          type="range" aria-label="Budget" min={0} max={BUDGETS.length - 1} value={at} aria-valuetext={`${count(now.budget)} tokens`}
          onChange={(event) => rebuilt.set({ ...now, budget: BUDGETS[Number(event.target.value)]! })}
        />
      </label>
      <label className="field">
        <span>Policy</span>
        <select aria-label="Policy" value={now.policy} onChange={(event) => rebuilt.set({ ...now, policy: event.target.value })}>
          {policies.map((name) => <option key={name}>{name}</option>)}
        </select>
        <small>{POLICIES[now.policy]}</small>
      </label>
      {rebuilt.problem && <p className="form-problem" role="alert">{rebuilt.problem}</p>}
      <p className="hint" role="status">
        {rebuilt.isOn ? "Above is what the model would see if you asked this again now." : "The prompt above is rebuilt as you move it. Nothing is sent or stored."}
      </p>
      {rebuilt.isOn && sent && <button type="button" className="button" onClick={() => rebuilt.set(null)}>Back to what was sent</button>}
    </section>
  );
}
