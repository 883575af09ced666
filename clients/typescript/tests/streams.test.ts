import assert from "node:assert/strict";
import { test } from "node:test";

import { type AnswerEvent, type Conversation, type LiveEvent, PalaverError, textOf } from "../src/index.ts";
import { behindProxy, connected } from "./server.ts";

const store = await connected();
const SMILE = "😀a😀b😀c😀d😀e😀f😀g"; // characters of two code units: positions count characters

const textIn = (events: AnswerEvent[]) => events.map((event) => (event.kind === "delta" ? event.text : "")).join("");

/** Read an answer, and do something after each of its deltas. */
async function read(answer: AsyncIterable<AnswerEvent>, onDelta: (count: number) => void = () => undefined): Promise<AnswerEvent[]> {
  const events: AnswerEvent[] = [];
  let count = 0;
  for await (const event of answer) {
    events.push(event);
    if (event.kind === "delta") onDelta(++count);
  }
  return events;
}

test("an answer is streamed and stored", async () => {
  const talk = await store.conversation();
  const events = await read(talk.generateStream("Count to 5"));
  assert.equal(events[0]?.kind, "message");
  assert.equal(textIn(events), "1 2 3 4 5 ");
  const last = events.at(-1);
  assert.ok(last?.kind === "done" && textOf(last.turn) === "1 2 3 4 5 " && last.request);
  assert.equal(textOf(await talk.generate("Say yes.")), "yes.");
  assert.equal((await talk.requests()).length, 2);
});

test("an answer whose connection is cut again and again loses and doubles nothing", async (test) => {
  const [store, proxy] = await behindProxy(test);
  const talk = await store.conversation();
  let cuts = 0;
  const events = await read(talk.generateStream(`Spell ${SMILE}`), (count) => {
    if (count % 3 === 1 && cuts++ < 3) proxy.cut();
  });
  assert.ok(cuts >= 3);
  assert.equal(textIn(events), SMILE);
  assert.deepEqual(events.filter((event) => event.kind !== "delta").map((event) => event.kind), ["message", "done"]);
  assert.deepEqual((await talk.history()).map(textOf), [`Spell ${SMILE}`, SMILE]);
});

test("an answer whose first reply is lost is made once", async (test) => {
  const [store, proxy] = await behindProxy(test);
  const talk = await store.conversation();
  let lost = 0;
  proxy.cutReply = (text) => text.includes("event: start") && lost++ < 1;
  assert.equal(textIn(await read(talk.generateStream("Count to 3"))), "1 2 3 ");
  assert.equal(lost, 2);
  assert.equal((await talk.history()).length, 2);
  assert.equal((await talk.requests()).length, 1);
});

test("a failure of the model is an error of its kind", async () => {
  const talk = await store.conversation();
  await assert.rejects(talk.generate("Fail with 400"), (error) => error instanceof PalaverError && error.status === 502);
});

test("leaving an answer does not stop it, and stop does", async () => {
  const talk = await store.conversation();
  for await (const event of talk.generateStream("Count slowly to 100")) if (event.kind === "delta") break;
  const following = talk.subscribe({ after: 0 });
  await talk.stop();
  for await (const event of following) {
    if (event.kind !== "commit") continue;
    assert.equal(event.data.turn.finish_reason, "stopped");
    break;
  }
});

test("a signal ends an answer's iteration with its reason", async () => {
  const talk = await store.conversation();
  const controller = new AbortController();
  const answer = read(talk.generateStream("Count slowly to 100", { signal: controller.signal }), () => controller.abort(new Error("enough")));
  await assert.rejects(answer, /enough/);
  await talk.stop();
});

test("a question is answered again in a branch", async () => {
  const talk = await store.conversation();
  const answer = await talk.generate("Say hello.");
  const again = await talk.regenerate(answer);
  assert.notEqual(again.id, answer.id);
  assert.deepEqual((await talk.history()).map(textOf), ["Say hello.", "hello."]);
});

/** Collect live events until one of this kind. */
async function until(live: AsyncIterable<LiveEvent>, kind: LiveEvent["kind"], onEvent: (event: LiveEvent) => void = () => undefined) {
  const events: LiveEvent[] = [];
  for await (const event of live) {
    events.push(event);
    onEvent(event);
    if (event.kind === kind) break;
  }
  return events;
}

async function write(talk: Conversation, pieces: string[]): Promise<void> {
  const writer = await talk.stream("assistant", { model: "mine" });
  for (const piece of pieces) {
    await writer.write(piece);
    await writer.flush();
  }
  await writer.commit({ finish_reason: "stop" });
}

test("a subscription that is cut resumes at the exact character", async (test) => {
  const [viaProxy, proxy] = await behindProxy(test);
  const talk = await viaProxy.conversation();
  const states: boolean[] = [];
  const live = until(talk.subscribe({ onConnection: (one) => states.push(one) }), "commit", (event) => {
    if (event.kind !== "commit") proxy.cut();
  });
  await write(await store.get(talk.id), [...SMILE]);
  const events = await live;
  assert.equal(events.map((event) => (event.kind === "delta" ? event.data.text : "")).join(""), SMILE);
  assert.equal(new Set(events.map((event) => event.position)).size, events.length);
  assert.ok(states.includes(false) && states.includes(true));
});

test("a subscription goes on from a position, and ends when the conversation is deleted", async () => {
  const talk = await store.conversation();
  await talk.append("user", "first");
  const [first] = await until(talk.subscribe({ after: 0 }), "append");
  await talk.append("user", "second");
  const rest = until(talk.subscribe({ after: first?.position ?? "" }), "gone");
  await talk.forget();
  const kinds = (await rest).map((event) => event.kind);
  assert.equal(kinds.at(-1), "gone");
});

test("several conversations are followed on one connection", async () => {
  const talks = [await store.conversation(), await store.conversation()];
  const seen: (string | undefined)[] = [];
  const live = store.subscribe(talks, { after: "0;0" });
  for (const talk of talks) await talk.append("user", "hello");
  for await (const event of live) {
    if (event.kind === "append") seen.push(event.conversation);
    if (seen.length === 2) break;
  }
  assert.deepEqual(new Set(seen), new Set(talks.map((talk) => talk.id)));
});

test("half a character waits for its other half", async () => {
  const talk = await store.conversation();
  await write(talk, [...SMILE].flatMap((one) => one.split("")));
  assert.equal(textOf((await talk.history())[0]!), SMILE);
});

test("a turn that is not committed is aborted", async () => {
  const talk = await store.conversation();
  const writer = await talk.stream();
  await writer.write("half a sent");
  await writer[Symbol.asyncDispose]();
  const stored = await talk.turn(writer.turn);
  assert.deepEqual([stored.status, textOf(stored)], ["aborted", "half a sent"]);
});
