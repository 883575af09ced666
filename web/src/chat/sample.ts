/** A sample conversation: weeks of dinners, then a question that memory answers. It is an ordinary conversation. */

import { addNote, appendTurns, createConversation, generate, summarize } from "../api/verbs";
import { messagesOf } from "../sse/parser";
import { put } from "../state/conversations";

const DISHES = ["lentil curry", "mushroom risotto", "bean chili", "ramen with egg", "shakshuka", "pea soup", "gnocchi", "tacos"];
const SAID: [question: string, answer: string][] = [
  ["I'm allergic to peanuts, and I cook for two.", "Noted: no peanuts, and portions for two."],
  ["My oven has no fan, by the way.", "Good to know: 20 degrees more than recipes for fan ovens say."],
  ...DISHES.map((dish, at): [string, string] => [
    `What do I need for ${dish}?`, `For ${dish}: onions, garlic, and about ${14 + at} minutes. The rest should be in your cupboard.`,
  ]),
  ["From now on, give me times in minutes.", "Will do: times in minutes."],
  ["We decided to eat at six on weekdays.", "Dinner at six on weekdays it is."],
];
const BUDGET = 420; // tokens: less than all of it, so that summaries and recall are needed
export const QUESTION = "How many people do I cook for?";

/** Returns the id of the conversation. */
export async function createSample(): Promise<string> {
  const info = await createConversation({ title: "Sample: dinner for two", settings: { context: { token_budget: BUDGET }, facts: true } });
  const turns = SAID.flatMap(([question, answer]) => [{ role: "user", content: question }, { role: "assistant", content: answer }]);
  await appendTurns(info.id, turns);
  await addNote(info.id, "goals", "Cook simple dinners on weekdays");
  await summarize(info.id);
  for await (const _ of messagesOf(await generate(info.id, { message: QUESTION }))); // until the answer is complete
  put(info);
  return info.id;
}
