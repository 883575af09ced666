import assert from "node:assert/strict";
import { test } from "node:test";

import { open, PalaverError, textOf } from "../src/index.ts";
import { behindProxy, connected, KEY, URL_OF_SERVER } from "./server.ts";

const store = await connected();

const failing = async (work: Promise<unknown>): Promise<PalaverError> => {
  const problem = await work.then(() => null, (one: unknown) => one);
  assert.ok(problem instanceof PalaverError, String(problem));
  return problem;
};

test("a conversation is stored, searched, recalled, verified and forgotten", async () => {
  const talk = await store.conversation(null, { title: "Dinner" });
  const said = await talk.append("user", "I am allergic to peanuts.", { metadata: { from: "test" } });
  await talk.appendMany([{ role: "assistant", content: "Noted." }, { role: "user", content: "Thanks." }]);
  assert.deepEqual((await talk.history()).map(textOf), ["I am allergic to peanuts.", "Noted.", "Thanks."]);
  assert.deepEqual((await talk.history({ limit: 1, before: said })), []);
  assert.equal((await talk.turn(said)).metadata?.["from"], "test");
  assert.equal((await talk.search("peanuts"))[0]?.turn.id, said.id);
  assert.equal((await talk.recall("What about peanuts?")).items[0]?.turn?.id, said.id);

  const context = await talk.buildContext({ token_budget: 1_000 });
  assert.ok(context.turn_ids.includes(said.id));
  assert.equal((await talk.explain({ token_budget: 1_000 })).budget, context.explanation.budget);
  assert.equal((await talk.rename("Supper")).title, "Supper");
  assert.ok((await talk.verify()).ok);
  assert.equal((await talk.forget(said)).pending, false);
  assert.deepEqual((await talk.history()).map(textOf), ["Noted.", "Thanks."]);
  await talk.forget();
  assert.equal((await failing(talk.history())).status, 410);
});

test("a key names one conversation, and pages lead to all of them", async () => {
  const name = `key-${crypto.randomUUID()}`;
  const talk = await store.conversation(name);
  assert.equal((await store.conversation(name)).id, talk.id);
  assert.equal((await store.find(name)).id, talk.id);
  assert.equal((await store.get(talk.id)).id, talk.id);
  await store.conversation();
  const first = await store.conversations({ limit: 1 });
  assert.equal(first.items.length, 1);
  const second = await store.conversations({ limit: 1, cursor: first.next });
  assert.notEqual(second.items[0]?.id, first.items[0]?.id);
});

test("an edit makes a branch, and a switch goes back", async () => {
  const talk = await store.conversation();
  const old = await talk.append("user", "Rome");
  const changed = await talk.edit(old, "Oslo");
  assert.deepEqual((await talk.history()).map(textOf), ["Oslo"]);
  assert.deepEqual((await talk.branches())[0]?.turns.map((turn) => turn.id), [old.id, changed.id]);
  await talk.switch(old);
  assert.deepEqual((await talk.history()).map(textOf), ["Rome"]);
});

test("notes, facts and files", async () => {
  const talk = await store.conversation();
  await talk.remember("goals", "Finish the report");
  assert.equal((await talk.correct("goals", 0, "Finish it today")).goals[0]?.text, "Finish it today");
  assert.deepEqual((await talk.dropNote("goals", 0)).goals, []);
  assert.deepEqual(await talk.facts(), []);
  const file = await talk.attach(new TextEncoder().encode("the lease ends in May"), { filename: "lease.txt", media_type: "text/plain" });
  const turn = await talk.append("user", "See the file.", { attachments: [file.id] });
  assert.deepEqual(turn.attachments.map((one) => one.filename), ["lease.txt"]);
  assert.equal(new TextDecoder().decode(await talk.readAttachment(file)), "the lease ends in May");
  assert.equal((await talk.attachmentText(file)).text, "the lease ends in May");
});

test("errors have a status, a kind and the server's problem document", async () => {
  const missing = await failing(store.find("no such key"));
  assert.deepEqual([missing.status, missing.kind], [404, "ConversationNotFound"]);
  const talk = await store.conversation();
  const wrong = await failing(talk.append("wizard" as "user", "x"));
  assert.deepEqual([wrong.status, wrong.problem.field], [422, "role"]);
  const late = await failing(talk.append("user", "x", { expected_seq: 7 }));
  assert.deepEqual([late.status, late.kind, late.problem["found"]], [409, "AppendConflict", 0]);
  const refused = await failing(open({ url: URL_OF_SERVER, key: "pk_wrong" }));
  assert.deepEqual([refused.status, refused.kind], [401, "TokenRefused"]);
  const away = await failing(open({ url: "http://127.0.0.1:1", key: KEY, retries: 0 }));
  assert.deepEqual([away.status, away.kind], [0, "ConnectionLost"]);
});

test("a signal aborts a request with its own reason", async () => {
  const reason = new Error("enough");
  await assert.rejects(store.conversations({ signal: AbortSignal.abort(reason) }), reason);
});

test("a turn whose reply is lost is stored once", async (test) => {
  const [store, proxy] = await behindProxy(test);
  const talk = await store.conversation();
  let lost = 0;
  proxy.cutReply = (text) => text.includes(" 201 ") && lost++ < 2;
  await talk.append("user", "once");
  await talk.appendMany([{ role: "assistant", content: "twice?" }]);
  assert.equal(lost > 2, true);
  assert.deepEqual((await talk.history()).map(textOf), ["once", "twice?"]);
});

test("any operation can be called by its path", async () => {
  const found = await store.call("get", "/api/conversations", { query: { limit: 1 } });
  assert.equal(found.items.length, 1);
});
