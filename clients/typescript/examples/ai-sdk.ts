// Memory under the AI SDK: Palaver stores the conversation and builds the prompt, the AI SDK calls the model.
//
//   palaver serve --port 8484
//   PALAVER_URL=http://127.0.0.1:8484 node examples/ai-sdk.ts
//
// The model here is the server's own, over its OpenAI-compatible endpoint; any other provider of the AI SDK will do.

import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { type ModelMessage, streamText } from "ai";

import { type Conversation, open, textOf } from "../src/index.ts"; // in your project: from "palaver-client"

const url = process.env["PALAVER_URL"] ?? "http://127.0.0.1:8484";
const key = process.env["PALAVER_KEY"] ?? "any";

const store = await open({ url, key });
const provider = createOpenAICompatible({ name: "palaver", baseURL: `${url}/v1`, apiKey: key });
const model = String(process.env["MODEL"] ?? store.settings.models["default"]);

/** Store the question, send the model a prompt within the budget, and store the answer while it streams. */
async function ask(talk: Conversation, question: string): Promise<void> {
  await talk.append("user", question);
  const context = await talk.buildContext({ token_budget: 4_000, format: "openai" });
  const prompt = context.messages as ModelMessage[];
  const system = prompt.flatMap((message) => (message.role === "system" ? [message.content] : [])).join("\n\n");
  const writer = await talk.stream("assistant", { model });
  const answer = streamText({
    model: provider(model),
    ...(system && { instructions: system }),
    messages: prompt.filter((message) => message.role !== "system"),
  });
  for await (const text of answer.textStream) {
    process.stdout.write(text);
    await writer.write(text);
  }
  await writer.commit({ finish_reason: await answer.finishReason });
  process.stdout.write("\n");
}

const talk = await store.conversation(null, { title: "Dinner" });
await ask(talk, "I cook for two, without peanuts.");
await ask(talk, "What did I say?");

for (const turn of await talk.history()) console.log(`${turn.role}: ${textOf(turn)}`);
