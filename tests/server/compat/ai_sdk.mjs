// A page's side of a chat, with the AI SDK's own transport and reader. Run by test_ai_sdk.py; prints what happened as JSON.

import { DefaultChatTransport, readUIMessageStream } from "ai";

const api = `${process.env.PALAVER_URL}/api/chat`;
const transport = new DefaultChatTransport({ api });
const said = (id, text) => ({ id, role: "user", parts: [{ type: "text", text }] });

async function read(stream) {
  let last;
  for await (const message of readUIMessageStream({ stream })) last = message;
  return last;
}

async function send(chatId, messages, more = {}) {
  const asked = { chatId, messages, trigger: "submit-message", messageId: undefined, ...more };
  return transport.sendMessages({ ...asked, abortSignal: undefined });
}

const scenes = {
  // Two messages, the whole thread sent each time, and another answer to the second.
  async conversation(chatId) {
    const thread = [said("u1", "I am allergic to peanuts.")];
    thread.push(await read(await send(chatId, thread)));
    thread.push(said("u2", "What can I eat?"));
    const answer = await read(await send(chatId, thread));
    const again = await read(await send(chatId, thread, { trigger: "regenerate-message", messageId: answer.id }));
    return { first: thread[1], answer, again };
  },

  // A tool that the page runs: its result goes back in the message that called for it.
  async tools(chatId) {
    const tools = { weather: { description: "The weather", inputSchema: { type: "object", properties: {} } } };
    const thread = [said("u1", "Rain?")];
    const called = await read(await send(chatId, thread, { body: { tools } }));
    const parts = called.parts.map((part) =>
      part.type === "tool-weather" ? { ...part, state: "output-available", output: { sky: "blue" } } : part,
    );
    thread.push({ ...called, parts });
    return { called, answer: await read(await send(chatId, thread, { body: { tools } })) };
  },

  // Hang up in the middle, come back, and receive all of it.
  async resume(chatId) {
    const idle = await transport.reconnectToStream({ chatId });
    const stream = await send(chatId, [said("u1", "Go on")]);
    const reader = stream.getReader();
    for (let heard = 0; heard < 3; ) {
      const { value } = await reader.read();
      if (value.type === "text-delta") heard += 1;
    }
    await reader.cancel();
    const again = await transport.reconnectToStream({ chatId });
    await fetch(process.env.PALAVER_GO_ON);
    const answer = await read(again);
    return { idle, answer, after: await transport.reconnectToStream({ chatId }) };
  },

  // Listens to an answer that another client asked for.
  async listen(chatId) {
    return { answer: await read(await transport.reconnectToStream({ chatId })) };
  },
};

console.log(JSON.stringify(await scenes[process.env.PALAVER_SCENE](process.env.PALAVER_CHAT)));
