/** Resumed answers that a test server cannot easily make: tool rounds, and an answer that is made again. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { answerEvents } from "../src/answer.ts";
import { Transport } from "../src/transport.ts";

const frame = (event: string, data: object, id = "") => `event: ${event}\n${id && `id: ${id}\n`}data: ${JSON.stringify(data)}\n\n`;
const turn = (id: string, more: object = {}) => ({ id, role: "assistant", content: "", tool_calls: [], tool_results: [], metadata: { answers: "q" }, ...more });
const START = frame("start", { conversation: "c", events: "/api/conversations/c/events?after=7" }) + frame("message", { turn: turn("q", { role: "user" }) });
const CALL = { id: "t1", name: "clock", arguments: {} };
const done = (id: string, content: string) => frame("done", { turn: turn(id, { content }), usage: null, explanation: null, request: null });

/** A transport whose requests get these streams: the first POST, the second POST, and the events. */
function scripted(first: string, second: string, events: string): Transport {
  const posts = [first, second];
  const reply = (url: string, method: string) => (method === "POST" ? posts.shift() : url.includes("after=7") ? events : "");
  const fetch = async (url: unknown, options?: RequestInit) => new Response(reply(String(url), options?.method ?? "GET") ?? "");
  return new Transport({ url: "http://server", fetch });
}

async function kinds(transport: Transport): Promise<string[]> {
  const asked = { conversation: "c", path: "/generate", body: {}, repeatable: true };
  const found: string[] = [];
  for await (const event of answerEvents(transport, asked)) found.push(event.kind === "delta" ? event.text : event.kind);
  return found;
}

test("tool calls and results that came before the cut are not repeated", async () => {
  const begun = START + frame("delta", { text: "Let me see" }) + frame("tool_calls", { turn: "a1", calls: [CALL] });
  const log =
    frame("open", { turn: turn("a1") }, "8") +
    frame("delta", { turn: "a1", from: 0, text: "Let me see" }, "8:1.10") +
    frame("commit", { turn: turn("a1", { tool_calls: [CALL] }) }, "9") +
    frame("append", { turn: turn("t", { role: "tool", metadata: {}, tool_results: [{ id: "t1", content: "noon", is_error: false }] }) }, "10") +
    frame("open", { turn: turn("a2") }, "11") +
    frame("delta", { turn: "a2", from: 0, text: "It is " }, "11:2.6") +
    frame("delta", { turn: "a2", from: 6, text: "noon." }, "11:2.11") +
    frame("commit", { turn: turn("a2", { content: "It is noon." }) }, "12");
  const found = await kinds(scripted(begun, done("a2", "It is noon."), log));
  assert.deepEqual(found, ["message", "Let me see", "tool_calls", "tool_result", "It is ", "noon.", "done"]);
});

test("an answer that is made again after a crash says so", async () => {
  const begun = START + frame("delta", { text: "It is n" });
  const log =
    frame("open", { turn: turn("a1") }, "8") +
    frame("delta", { turn: "a1", from: 0, text: "It is no" }, "8:1.8") +
    frame("open", { turn: turn("a2") }, "9") +
    frame("delta", { turn: "a2", from: 0, text: "Noon." }, "9:2.5") +
    frame("commit", { turn: turn("a2", { content: "Noon." }) }, "10");
  assert.deepEqual(await kinds(scripted(begun, done("a2", "Noon."), log)), ["message", "It is n", "o", "restart", "Noon.", "done"]);
});

test("answers to other questions are left out", async () => {
  const other = turn("b1", { metadata: { answers: "another" } });
  const log =
    frame("open", { turn: other }, "8") +
    frame("delta", { turn: "b1", from: 0, text: "Not this." }, "8:1.9") +
    frame("append", { turn: turn("a1", { content: "Yes." }) }, "9");
  assert.deepEqual(await kinds(scripted(START, done("a1", "Yes."), log)), ["message", "Yes.", "done"]);
});
