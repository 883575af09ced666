// The AI SDK: its three providers and the transport of useChat. Prints a line of JSON per scenario, as harness.py does.

import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import * as ai from "ai";
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { z } from "zod";

const { PALAVER_URL: url, PALAVER_KEY: apiKey } = process.env;
const baseURL = `${url}/v1`;
const PACKAGES = ["ai", "@ai-sdk/openai", "@ai-sdk/anthropic", "@ai-sdk/openai-compatible"];

const openai = (options = {}) => createOpenAI({ baseURL, apiKey, ...options });
const models = {
  "openai responses": (options) => openai(options).responses("chat"),
  "openai chat": (options) => openai(options).chat("chat"),
  anthropic: (options = {}) => createAnthropic({ baseURL, apiKey, ...options })("messages"),
  "openai-compatible": (options = {}) => createOpenAICompatible({ name: "palaver", baseURL, apiKey, ...options })("chat"),
};
const weather = ai.tool({
  description: "The weather of a city",
  inputSchema: z.object({ city: z.string() }),
  execute: async ({ city }) => `Sunny in ${city}`,
});
const retries = { maxRetries: 0 };
const scenarios = {};

for (const [name, model] of Object.entries(models)) {
  scenarios[`${name}: text`] = async () => {
    const done = await ai.generateText({ model: model(), system: "Be brief.", prompt: "Say hello", ...retries });
    assert.equal(done.text, "hello");
    assert.ok(done.usage.outputTokens > 0);
  };
  scenarios[`${name}: stream`] = async () => {
    let text = "";
    for await (const piece of ai.streamText({ model: model(), prompt: "Count to 5", ...retries }).textStream) text += piece;
    assert.equal(text.trim(), "1 2 3 4 5");
  };
  scenarios[`${name}: tools in two steps`] = async () => {
    const asked = { model: model(), tools: { weather }, prompt: "the weather in Rome and Oslo", ...retries };
    const done = await ai.generateText({ ...asked, stopWhen: ai.stepCountIs?.(3) ?? ai.isStepCount(3) });
    assert.match(done.text, /Sunny in Rome.*Sunny in Oslo/);
  };
  scenarios[`${name}: streamed tools`] = async () => {
    const asked = { model: model(), tools: { weather }, prompt: "the weather in Rome", ...retries };
    const done = ai.streamText({ ...asked, stopWhen: ai.stepCountIs?.(3) ?? ai.isStepCount(3) });
    await done.consumeStream();
    assert.match(await done.text, /Sunny in Rome/);
  };
  scenarios[`${name}: an object`] = async () => {
    const schema = z.object({ name: z.string(), age: z.number() });
    const asked = { model: model(), output: ai.Output.object({ schema }), prompt: "Ada as JSON", ...retries };
    const done = await ai.generateText(asked);
    assert.deepEqual(done.output, { name: "Ada", age: 36 });
  };
  scenarios[`${name}: a conversation remembers`] = async () => {
    const headers = { "X-Conversation-Id": `ai/${randomUUID()}` };
    await ai.generateText({ model: model(), headers, prompt: "My name is Ada.", ...retries });
    const done = await ai.generateText({ model: model(), headers, prompt: "What did I say?", ...retries });
    assert.match(done.text, /My name is Ada\./);
  };
  scenarios[`${name}: an error of the model`] = async () => {
    await assert.rejects(ai.generateText({ model: model(), prompt: "Fail with 400", ...retries }), (problem) => {
      assert.ok(ai.APICallError.isInstance(problem), problem);
      assert.equal(problem.statusCode, 400);
      return true;
    });
  };
  scenarios[`${name}: a wrong key`] = async () => {
    const wrong = model({ apiKey: "pk_wrong" });
    await assert.rejects(ai.generateText({ model: wrong, prompt: "Hi", ...retries }), { statusCode: 401 });
  };
}

scenarios["openai: embeddings"] = async () => {
  const { embeddings } = await ai.embedMany({ model: openai().embedding("local"), values: ["a dog", "a puppy"] });
  assert.equal(embeddings.length, 2);
};

scenarios["openai responses: previous response"] = async () => {
  const ask = (prompt, previousResponseId) =>
    ai.generateText({ model: models["openai responses"](), prompt, providerOptions: { openai: { previousResponseId } }, ...retries });
  const first = await ask("My name is Ada.");
  const second = await ask("What did I say?", first.providerMetadata.openai.responseId);
  assert.match(second.text, /My name is Ada\./);
};

// ---- the transport of useChat -------------------------------------------------------------------------------------

const transport = new ai.DefaultChatTransport({ api: `${url}/api/chat`, headers: { Authorization: `Bearer ${apiKey}` } });
const said = (id, text) => ({ id, role: "user", parts: [{ type: "text", text }] });
const text = (message) => message.parts.filter((part) => part.type === "text").map((part) => part.text).join("");

async function read(stream) {
  let last;
  for await (const message of ai.readUIMessageStream({ stream })) last = message;
  return last;
}

async function send(chatId, messages, more = {}) {
  const asked = { chatId, messages, trigger: "submit-message", messageId: undefined, abortSignal: undefined, ...more };
  return transport.sendMessages(asked);
}

scenarios["transport: a thread, and another answer"] = async () => {
  const chat = randomUUID();
  const thread = [said("1", "My name is Ada.")];
  thread.push(await read(await send(chat, thread)));
  thread.push(said("2", "What did I say?"));
  const answer = await read(await send(chat, thread));
  assert.match(text(answer), /My name is Ada\./);
  const again = await read(await send(chat, thread, { trigger: "regenerate-message", messageId: answer.id }));
  assert.match(text(again), /My name is Ada\./);
};

scenarios["transport: a tool of the page"] = async () => {
  const chat = randomUUID();
  const inputSchema = { type: "object", properties: { city: { type: "string" } } };
  const body = { tools: { weather: { description: "The weather", inputSchema } } };
  const thread = [said("1", "the weather in Rome")];
  const asked = await read(await send(chat, thread, { body }));
  const parts = asked.parts.map((part) =>
    part.type === "tool-weather" ? { ...part, state: "output-available", output: "Sunny" } : part,
  );
  thread.push({ ...asked, parts });
  assert.equal(text(await read(await send(chat, thread, { body }))), "Tools: Sunny");
};

scenarios["transport: resume after hanging up"] = async () => {
  const chat = randomUUID();
  assert.equal(await transport.reconnectToStream({ chatId: chat }), null);
  const reader = (await send(chat, [said("1", "Count slowly to 20")])).getReader();
  for (let heard = 0; heard < 3; ) if ((await reader.read()).value.type === "text-delta") heard += 1;
  await reader.cancel();
  const answer = await read(await transport.reconnectToStream({ chatId: chat }));
  assert.deepEqual(text(answer).trim().split(" "), Array.from({ length: 20 }, (_, n) => `${n + 1}`));
};

scenarios["transport: an error of the model is a readable message"] = async () => {
  const stream = await send(randomUUID(), [said("1", "Fail with 400")]);
  const parts = [];
  for await (const part of stream) parts.push(part);
  const problem = parts.find((part) => part.type === "error");
  assert.match(problem.errorText, /refused the request/);
};

// ---- run ----------------------------------------------------------------------------------------------------------

const version = (name) => JSON.parse(readFileSync(`node_modules/${name}/package.json`)).version;
console.log(JSON.stringify({ packages: Object.fromEntries(PACKAGES.map((name) => [name, version(name)])) }));
const usual = (name) => process.env.PALAVER_EMBEDDER !== "none" || !name.includes("embedding");
const wanted = process.argv.slice(2);
for (const name of wanted.length ? wanted : Object.keys(scenarios).filter(usual)) {
  let problem = null;
  try {
    await scenarios[name]();
  } catch (caught) {
    problem = `${caught.name}: ${caught.message}`.slice(0, 400);
  }
  console.log(JSON.stringify({ scenario: name, problem }));
}
