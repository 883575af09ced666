import { describe, expect, it } from "vitest";
import type { Block, Explanation, Json, ModelRequest } from "../src/api/types";
import { figuresOf, filesOf, marksOf, money, seconds, spanOf, wordsOf } from "../src/inspector/account";

const block = (kind: string, tokens: number): Block =>
  ({ kind, tokens, reason: "", turn_ids: [], from_seq: null, through_seq: null, scores: [] });
const request = (change: Partial<ModelRequest>): ModelRequest => ({
  id: "r", conversation: "c", at: "2026-11-15T09:30:00Z", model: "m", adapter: "openai", turn: "t", purpose: "generate",
  body: {}, explanation: null, previous_response_id: null,
  response: { usage: { prompt: 900, completion: 20 }, timings: { first_token: 0.25, total: 1.5 }, retries: [], finish_reason: "stop", error: null },
  ...change,
});
const named = (one: ModelRequest) => Object.fromEntries(figuresOf(one).map(({ name, value }) => [name, value]));

describe("the words of a block", () => {
  const summary = '<summary note="In short.">\nWe like <b>rice</b>.\nAnd tea.\n</summary>';

  it("are found in every provider's shape", () => {
    const shapes: Json[] = [
      { messages: [{ role: "system", content: `Be kind.\n\n${summary}` }] },
      { system: [{ type: "text", text: summary }], messages: [] },
      { instructions: summary, input: "Hello" },
    ];
    for (const shape of shapes) expect(wordsOf("summaries", shape)).toBe("We like <b>rice</b>.\nAnd tea.");
  });

  it("may hold marks of their own: then the outer ones have a number", () => {
    const body = '<memory-2 note="Notes.">\nHe wrote </memory> here.\n</memory-2>';
    expect(wordsOf("memory", [{ role: "system", content: body }])).toBe("He wrote </memory> here.");
  });

  it("are none where there are no marks, or no prompt any more", () => {
    expect(wordsOf("summaries", null)).toBe(null);
    expect(wordsOf("recent", { messages: [{ content: summary }] })).toBe(null);
    expect(wordsOf("memory", { messages: [{ content: summary }] })).toBe(null);
  });
});

describe("figures", () => {
  it("are those of the record, and no others", () => {
    expect(named(request({}))).toEqual({
      Model: "m", Prompt: "900 tokens", Answer: "20 tokens", Cost: "unknown", "Time to first token": "250 ms",
      "Total time": "1.5 s", "Finish reason": "stop",
    });
  });

  it("say it when a call broke off, failed, or was tried again", () => {
    expect(named(request({ response: null }))["Finish reason"]).toBe("interrupted");
    const response = { error: { type: "ModelUnavailable" }, retries: [{ error: "Busy", waited: 2 }] };
    const found = named(request({ response }));
    expect(found["Finish reason"]).toBe("ModelUnavailable");
    expect(found.Retried).toBe("Busy, after 2.0 s");
  });

  it("cost nothing without a model, and what the server says with one", () => {
    expect(named(request({ adapter: "offline" })).Cost).toBe("free");
    expect(named(request({ response: { cost: 0.0123 } })).Cost).toBe("$0.01");
  });

  it("are readable when they are small", () => {
    expect(money(0.00042)).toBe("$0.00042");
    expect(money(0.00000012)).toBe("$0.00000012");
    expect(money(0)).toBe("$0.00");
    expect(seconds(0.0042)).toBe("4 ms");
  });
});

describe("an account", () => {
  it("adds up to what was counted", () => {
    const explanation = { tokens: 103, blocks: [block("memory", 40), block("current", 60)] } as unknown as Explanation;
    expect(marksOf(explanation)).toBe(3);
  });

  it("counts turns from one", () => {
    expect(spanOf(0, 25)).toBe("messages 1–25");
    expect(spanOf(4, 5)).toBe("message 5");
    expect(spanOf(null, null)).toBe("");
  });
});

describe("files of the message", () => {
  const explanation = { unit: "tokens", blocks: [] } as unknown as Explanation;

  it("are listed with their state, the reason and the cost", () => {
    const files: Explanation["files"] = [
      { name: "lease.txt", attachment: "1", state: "in full", reason: "its whole text", tokens: 1_071 },
      { name: "x.zip", attachment: "2", state: "not sent", reason: "no text found", tokens: 0 },
    ];
    expect(filesOf({ ...explanation, files })).toEqual([
      { id: "1", name: "lease.txt", about: "in full: its whole text (1,071 tokens)" },
      { id: "2", name: "x.zip", about: "not sent: no text found" },
    ]);
  });

  it("are none in the records of earlier versions", () => expect(filesOf(explanation)).toEqual([]));
});
