/** The settings of a conversation: current values, and the update to send when they change. Pure. */

import type { Conversation, Fields, Json } from "../api/types";

export const RETENTIONS = ["full", "audit-only", "ephemeral"] as const;
export const STRATEGIES = ["hierarchical", "rolling", "never"] as const;

export interface Compaction {
  strategy: string;
  trigger_turns: number;
  trigger_tokens: number;
  summarizer_model: string | null;
}

export const PERSON_MODES = ["", "read-write", "read", "off"] as const;

export interface Rules extends Compaction {
  /** Memory across chats; "" is what the server does by default. */
  person: string;
  /** How the prompt is built; "" and 0 are what the server does by default. */
  policy: string;
  token_budget: number;
  retention: string;
  redact: boolean;
  facts: boolean;
  ttl: number | null;
}

export function compactionOf(settings: Fields): Compaction {
  const given = (settings.compaction ?? {}) as Partial<Compaction>;
  return { strategy: "hierarchical", trigger_turns: 50, trigger_tokens: 8_000, summarizer_model: null, ...given };
}

const contextOf = (settings: Fields) => (settings.context ?? {}) as { policy?: string; token_budget?: number };

export function rulesOf({ settings, ttl }: Pick<Conversation, "settings" | "ttl">): Rules {
  return {
    ...compactionOf(settings),
    person: typeof settings.person === "string" ? settings.person : "",
    policy: contextOf(settings).policy ?? "",
    token_budget: contextOf(settings).token_budget ?? 0,
    retention: typeof settings.retention === "string" ? settings.retention : "full",
    redact: settings.redact === true,
    facts: settings.facts === true,
    ttl,
  };
}

/** Send only what has changed; settings unknown to this page are kept. */
export function changesOf(info: Pick<Conversation, "settings" | "ttl">, rules: Rules): Fields {
  const before = rulesOf(info);
  const { ttl, person, policy, token_budget, retention, redact, facts, ...compaction } = rules;
  const changes: Fields = {};
  if (ttl !== before.ttl) changes.ttl = ttl;
  const settings: Fields = { ...info.settings };
  if (person !== before.person) {
    if (person) settings.person = person;
    else delete settings.person;
  }
  if (policy !== before.policy || token_budget !== before.token_budget) {
    const { policy: _, token_budget: __, ...others } = contextOf(info.settings);
    settings.context = { ...others, ...(policy && { policy }), ...(token_budget && { token_budget }) };
    if (!Object.keys(settings.context).length) delete settings.context;
  }
  if (retention !== before.retention) settings.retention = retention;
  if (redact !== before.redact) settings.redact = redact;
  if (facts !== before.facts) settings.facts = facts;
  const own = Object.entries(compaction).filter(([name, value]) => value !== before[name as keyof Compaction]);
  if (own.length) settings.compaction = { ...((info.settings.compaction ?? {}) as Fields), ...(Object.fromEntries(own) as { [name: string]: Json }) };
  if (JSON.stringify(settings) !== JSON.stringify(info.settings)) changes.settings = settings;
  return changes;
}

const HOUR = 3_600;
const DAY = 24 * HOUR;
export const TTLS: [number | null, string][] = [
  [null, "Never"], [HOUR, "An hour"], [DAY, "A day"], [7 * DAY, "A week"], [30 * DAY, "30 days"], [365 * DAY, "A year"],
];

/** The choices, including the current value even if it is not a standard one. */
export function ttlChoices(ttl: number | null): [number | null, string][] {
  if (TTLS.some(([value]) => value === ttl)) return TTLS;
  return [...TTLS, [ttl, spellTtl(ttl!)]];
}

function spellTtl(seconds: number): string {
  const [size, unit] = seconds >= DAY ? [DAY, "days"] : seconds >= HOUR ? [HOUR, "hours"] : seconds >= 60 ? [60, "minutes"] : [1, "seconds"];
  return `${Number((seconds / Number(size)).toFixed(1))} ${unit}`;
}
