import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { type Message, SseParser } from "../src/sse/parser";
import { anthropic, openai, palaver, type StreamEvent } from "../src/sse/shapes";

const recorded = (name: string) => readFileSync(join(import.meta.dirname, "streams", `${name}.txt`), "utf8");

/** Read a stream that arrives in chunks of this many characters. */
function read(text: string, size = text.length): Message[] {
  const parser = new SseParser();
  const found: Message[] = [];
  for (let at = 0; at < text.length; at += size) found.push(...parser.push(text.slice(at, at + size)));
  return found;
}

const told = (name: string, shape: (message: Message) => StreamEvent[]) => read(recorded(name)).flatMap(shape);
const textOf = (all: StreamEvent[]) => all.map((one) => (one.kind === "text" ? one.text : "")).join("");
const thoughtsOf = (all: StreamEvent[]) => all.map((one) => (one.kind === "thinking" ? one.text : "")).join("");

function callsOf(all: StreamEvent[]) {
  const calls = new Map<number, { id?: string; name?: string; arguments: string }>();
  for (const one of all) {
    if (one.kind !== "call") continue;
    const known = calls.get(one.index) ?? { arguments: "" };
    calls.set(one.index, { id: one.id ?? known.id, name: one.name ?? known.name, arguments: known.arguments + one.arguments });
  }
  return [...calls.values()];
}

describe("the parser", () => {
  it("reads events, ids and data of several lines", () => {
    const text = "retry: 2000\n\n: a comment\nevent: delta\nid: 4:1.2\ndata: one\ndata: two\n\ndata:three\n\n";
    expect(read(text)).toEqual([
      { event: "delta", data: "one\ntwo", id: "4:1.2" },
      { event: "message", data: "three", id: "4:1.2" },
    ]);
  });

  it("takes every kind of line end, and a mark at the start", () => {
    expect(read("\uFEFFdata: a\r\n\r\ndata: b\r\rdata: c\n\n").map((one) => one.data)).toEqual(["a", "b", "c"]);
  });

  it.each(["palaver-events", "palaver-generate", "openai-chat", "openai-chat-tools", "anthropic", "anthropic-tools"])(
    "reads %s the same however it is cut", (name) => {
      const text = recorded(name);
      const whole = read(text);
      expect(whole.length).toBeGreaterThan(5);
      for (const size of [1, 2, 3, 7, 64, 1_000]) expect(read(text, size)).toEqual(whole);
      for (const size of [1, 5]) expect(read(text.replaceAll("\n", "\r\n"), size)).toEqual(whole);
    },
  );

  it("keeps an unfinished message to itself", () => {
    expect(read("data: half\n")).toEqual([]);
    expect(read("event: only\nid: 3\n\n")).toEqual([]);
  });

  it("remembers what the server says about waiting", () => {
    const parser = new SseParser();
    parser.push("retry: 2000\nretry: soon\n\n");
    expect(parser.retry).toBe(2000);
  });
});

describe("our frames", () => {
  it("tell the text, the thoughts, the calls and the end", () => {
    const all = told("palaver-generate", palaver);
    expect(textOf(all)).toBe("Let me look.You said **peanuts** 🥜, so: rice.");
    expect(thoughtsOf(all)).toBe("Nuts?");
    expect(callsOf(all)).toMatchObject([{ name: "recall", arguments: '{"query":"nuts é"}' }]);
    expect(all.at(-1)).toEqual({ kind: "end", reason: "stop" });
  });

  it("tell what went wrong", () => {
    const [message] = read('event: error\ndata: {"title": "Model", "detail": "too slow"}\n\n');
    expect(palaver(message!)).toEqual([{ kind: "error", message: "too slow" }]);
  });
});

describe("OpenAI's chunks", () => {
  it("tell the text, the usage and the end", () => {
    const all = told("openai-chat", openai);
    expect(textOf(all)).toBe("You said **peanuts** 🥜, so: rice.");
    expect(all).toContainEqual({ kind: "end", reason: "stop" });
    expect(all).toContainEqual({ kind: "usage", prompt: expect.any(Number), completion: expect.any(Number) });
  });

  it("tell calls whose arguments come in pieces", () => {
    expect(callsOf(told("openai-chat-tools", openai))).toEqual([
      { id: expect.any(String), name: "recall", arguments: '{"query": "nuts \\u00e9"}' },
    ]);
  });

  it("tell errors, and skip what they do not know", () => {
    const message = (data: string): Message => ({ event: "message", data, id: null });
    expect(openai(message('{"error": {"message": "no"}}'))).toEqual([{ kind: "error", message: "no" }]);
    expect(openai(message("{"))).toMatchObject([{ kind: "error" }]);
    expect(openai(message('{"object": "new.thing"}'))).toEqual([]);
  });
});

describe("Anthropic's blocks", () => {
  it("tell thoughts apart from text", () => {
    const all = told("anthropic", anthropic);
    expect(thoughtsOf(all)).toBe("Nuts are out.");
    expect(textOf(all)).toBe("You said **peanuts** 🥜, so: rice.");
    expect(all).toContainEqual({ kind: "end", reason: "end_turn" });
  });

  it("tell calls whose arguments come in pieces", () => {
    const calls = callsOf(told("anthropic-tools", anthropic));
    expect(calls).toMatchObject([{ name: "recall" }]);
    expect(JSON.parse(calls[0]!.arguments)).toEqual({ query: "nuts é" });
  });
});
