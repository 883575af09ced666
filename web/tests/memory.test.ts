import "./page";
import { describe, expect, it } from "vitest";
import type { LogEvent, Note, Summary } from "../src/api/types";
import { coveredTo, entriesOf, keyOf, levelsOf, placeOf, sentenceOf, treeOf } from "../src/memory/views";
import { changesOf, rulesOf, ttlChoices } from "../src/memory/settings";
import { bodyOf, BUDGETS, stepOf } from "../src/inspector/rebuild";

const summary = (level: number, from_seq: number, through_seq: number): Summary => ({
  id: `${level}.${from_seq}`, level, from_seq, through_seq, text: "…", model: "rules", token_count: 9,
  turns: through_seq - from_seq, created: "2026-11-15T09:30:00Z",
});
const event = (n: number, kind: string, turn: string | null = null, payload = {}): LogEvent => ({
  n, kind, turn, payload, conversation: "c", actor: "ada", at: "2026-11-15T09:30:00Z", content_hash: null, hash: "h",
});

describe("summaries", () => {
  const hierarchical = [summary(0, 0, 25), summary(0, 25, 50), summary(1, 0, 50), summary(0, 50, 75)];

  it("stand under the one that was made from them", () => {
    const tree = treeOf(hierarchical);
    expect(tree.map((one) => one.summary.id)).toEqual(["1.0", "0.50"]);
    expect(tree[0]!.under.map((one) => one.summary.id)).toEqual(["0.0", "0.25"]);
  });

  it("that only overlap stand beside each other", () => {
    expect(treeOf([summary(1, 0, 50), summary(0, 40, 60)]).map((one) => one.under.length)).toEqual([0, 0]);
  });

  it("are rows of a strip, the widest on top, as far as they reach", () => {
    expect(levelsOf(hierarchical).map(([level, row]) => [level, row.length])).toEqual([[1, 1], [0, 3]]);
    expect(coveredTo(hierarchical)).toBe(75);
    expect(coveredTo([])).toBe(0);
  });
});

describe("a note", () => {
  const note: Note = { text: "Ship before May", turn: "t", by: "rules" };

  it("is found again where it is now, and only itself", () => {
    const other: Note = { ...note, by: "ada" };
    expect(placeOf(note, [other, note])).toBe(1);
    expect(placeOf(note, [other])).toBe(-1);
  });

  it("keeps its key when others come and go, and shares it with none", () => {
    const other: Note = { ...note, text: "Eat well" };
    expect(keyOf([other, note], 1)).toBe(keyOf([note], 0));
    expect(keyOf([note, note], 0)).not.toBe(keyOf([note, note], 1));
  });
});

describe("the log", () => {
  it("is shown newest first, without the pieces of streamed answers", () => {
    const entries = entriesOf([event(1, "open", "t"), event(2, "chunk", "t"), event(3, "commit", "t"), event(4, "prove"), event(5, "prove")]);
    expect(entries.map((one) => [one.event.n, one.count])).toEqual([[5, 2], [3, 1]]);
    expect(sentenceOf(entries[0]!)).toBe("recorded fingerprints, 2 times");
  });

  it("names what was changed, and kinds that it does not know", () => {
    expect(sentenceOf({ event: event(1, "update", null, { fields: ["settings", "ttl"] }), count: 1 })).toBe("changed settings, ttl");
    expect(sentenceOf({ event: event(1, "invent"), count: 1 })).toBe("invent");
  });
});

describe("settings", () => {
  const info = { settings: { mine: 1, compaction: { strategy: "rolling", summarizer_model: "fast" } }, ttl: null };

  it("that are not set are those of the server", () => {
    expect(rulesOf({ settings: {}, ttl: null })).toEqual({
      person: "", policy: "", token_budget: 0, retention: "full", redact: false, facts: false, ttl: null, strategy: "hierarchical", trigger_turns: 50,
      trigger_tokens: 8_000, summarizer_model: null,
    });
  });

  it("are sent when they changed, with those that this page does not know", () => {
    expect(changesOf(info, rulesOf(info))).toEqual({});
    expect(changesOf(info, { ...rulesOf(info), trigger_turns: 20 })).toEqual({
      settings: { mine: 1, compaction: { strategy: "rolling", summarizer_model: "fast", trigger_turns: 20 } },
    });
    expect(changesOf(info, { ...rulesOf(info), ttl: 60 })).toEqual({ ttl: 60 });
    const own = { settings: { context: { policy: "balanced", token_budget: 2_000, shorten: true } }, ttl: null };
    expect(changesOf(own, { ...rulesOf(own), policy: "" })).toEqual({ settings: { context: { token_budget: 2_000, shorten: true } } });
    expect(changesOf(info, { ...rulesOf(info), token_budget: 900 }).settings).toMatchObject({ context: { token_budget: 900 } });
    expect(changesOf({ ...info, ttl: 60 }, { ...rulesOf(info), ttl: null })).toEqual({ ttl: null });
  });

  it("offer the time that somebody else has set", () => {
    expect(ttlChoices(5_400).at(-1)).toEqual([5_400, "1.5 hours"]);
    expect(ttlChoices(null).every(([value]) => value === null || value > 0)).toBe(true);
  });
});

describe("another budget", () => {
  it("is the nearest step of the slider", () => {
    expect(BUDGETS[stepOf(8_000)]).toBe(8_000);
    expect(BUDGETS[stepOf(7_500)]).toBe(8_000);
    expect(BUDGETS[stepOf(1)]).toBe(BUDGETS[0]);
    expect(BUDGETS[stepOf(10_000_000)]).toBe(BUDGETS.at(-1));
  });

  it("is only looked at", () => {
    expect(bodyOf({ budget: 500, policy: "last-20" }, "Hi")).toEqual({ token_budget: 500, policy: "last-20", preview: true, message: "Hi" });
    expect(bodyOf({ budget: 500, policy: "last-20" }, null)).not.toHaveProperty("message");
  });
});
