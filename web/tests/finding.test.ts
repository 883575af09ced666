import { asked, on } from "./page";
import { describe, expect, it } from "vitest";
import { explain } from "../src/api/advice";
import type { Conversation } from "../src/api/types";
import { blocksOf } from "../src/chat/blocks";
import { withFormulas } from "../src/chat/formulas";
import { wordsSent } from "../src/chat/preview";
import { messagesWith } from "../src/palette/search";
import { beginningsOf, isNear, rank, wordsOf } from "../src/palette/spelling";
import { inListOrder, isEmpty, listedAt, withPlaceKept } from "../src/state/placement";
import { turn } from "./turns";

const conversation = (fields: Partial<Conversation>) =>
  ({ id: "a", metadata: {}, updated: "2026-11-02T00:00:00Z", next_seq: 3, turn_count: 2, title: null, preview: "Hi", ...fields }) as Conversation;

describe("the place of a conversation", () => {
  it("is kept by changes that are not messages, until the next message", () => {
    const before = conversation({});
    const renamed = conversation({ updated: "2026-11-09T00:00:00Z", metadata: withPlaceKept(before, { pinned: false }) });
    expect(listedAt(renamed)).toBe(before.updated);
    expect(listedAt(conversation({ ...renamed, metadata: withPlaceKept(renamed) }))).toBe(before.updated);
    expect(listedAt({ ...renamed, next_seq: 5 })).toBe(renamed.updated);
  });

  it("is above all others when it is pinned", () => {
    const pinned = conversation({ id: "b", updated: "2020-01-01T00:00:00Z", metadata: { pinned: true } });
    expect([conversation({}), pinned].sort(inListOrder).map((one) => one.id)).toEqual(["b", "a"]);
  });

  it("is none without a word in it", () => {
    expect(isEmpty(conversation({ turn_count: 0, preview: null }))).toBe(true);
    expect(isEmpty(conversation({ turn_count: 0, preview: null, title: "Kept" }))).toBe(false);
  });
});

describe("typing mistakes", () => {
  it("of one letter are forgiven in words of four letters and more", () => {
    for (const typed of ["holday", "holidya", "hollday", "hooliday", "holid"]) expect(isNear(typed, "holiday")).toBe(true);
    for (const typed of ["hldy", "xolidax", "hoy"]) expect(isNear(typed, "holiday")).toBe(false);
    expect(isNear("bakry", "bakery")).toBe(true);
  });

  it("leave a beginning by which messages are found", () => {
    for (const typed of ["holday", "hloiday", "ohliday", "hoiday", "hooliday", "xholiday"]) expect(beginningsOf([typed]).flat().some((one) => "holiday".startsWith(one))).toBe(true);
    expect(beginningsOf(["in", "the"])).toEqual([]);
  });

  it("are looked for by two words at most, and again only if nothing is found", async () => {
    const said = ["We spend the holiday in Lisbon.", "Lisbon is far.", "It rains."];
    on("GET", /\/search\?/, (path) => {
      const start = new URL(path, "http://here").searchParams.get("q")!; // the server finds this word, or one that begins with it
      const turns = said.filter((text) => wordsOf(text).some((word) => word.startsWith(start))).map((text) => turn({ id: text, content: text }));
      return { items: turns.map((one) => ({ conversation: conversation({}), in_title: false, matches: [{ turn: one, spans: [] }] })) };
    });
    const search = async (words: string) => {
      asked.length = 0;
      const found = await messagesWith(words, new AbortController().signal);
      return { found: found.map((one) => one.turn), requests: asked.length };
    };
    const trip = said.slice(0, 1);
    for (const words of ["haliday lisbon", "lisbon haliday", "oliday in lisbon", "holiday lsbon", "holday"])
      expect((await search(words)).found).toEqual(trip);
    expect(await search("haliday lisbon")).toEqual({ found: trip, requests: 3 });
    expect(await search("holday")).toEqual({ found: trip, requests: 2 });
    expect(await search("hloiday")).toEqual({ found: trip, requests: 6 });
    expect(await search("mountain railway station")).toEqual({ found: [], requests: 7 });
    expect(await search("haliday")).toEqual({ found: [], requests: 6 }); // a wrong letter at the second place of the only word
  });

  it("count less than words as they are", () => {
    expect(rank(["resume"], "Résumé review")).toBe(2);
    expect(rank(["bakry", "name"], "Name ideas for a bakery")).toBe(1);
    expect(rank(["bakry", "cat"], "Name ideas for a bakery")).toBe(0);
  });
});

describe("formulas", () => {
  it("are told from money", () => {
    for (const money of ["It costs $5 and $10.", "$5-$10", "a $ b", "US$ 3"]) expect(withFormulas(money)).toBe(money.replaceAll("$", "\\$"));
    expect(withFormulas("so $e^{i}$ is")).toBe("so $e^{i}$ is");
    expect(withFormulas("$5 + $x$")).toBe("\\$5 + $x$");
  });

  it("come in four forms, and not in code", () => {
    expect(withFormulas("a \\(x^2\\) b")).toBe("a $x^2$ b");
    expect(withFormulas("\\[ x \\]")).toContain("$$\nx\n$$");
    expect(withFormulas("`\\(x\\) $5`")).toBe("`\\(x\\) $5`");
    expect(withFormulas("```sh\necho $HOME\n```")).toBe("```sh\necho $HOME\n```");
    expect(withFormulas("```sh\necho $HOME")).toBe("```sh\necho $HOME"); // while it streams in
  });

  it("stay in one block", () => {
    expect(blocksOf(withFormulas("one\n\n$$\na\n\nb\n$$\n\ntwo"))).toHaveLength(3);
  });
});

describe("errors", () => {
  const problem = (kind: string, detail: string, status = 502) =>
    explain({ status, title: "Model error", detail, fields: { type: `urn:palaver:problem:${kind}`, model: "openai:gpt-5-mini" } });

  it("say what happened and what to do", () => {
    expect(problem("model-unavailable", "openai:gpt-5-mini failed (status 500)")).toBe("gpt-5-mini had a problem (500). Try again in a moment.");
    expect(problem("model-unavailable", "x takes no more requests now (status 429)")).toContain("Too many requests to gpt-5-mini");
    expect(problem("model-refused", "x does not accept the key (status 401)")).toContain("rejected the API key. Check the key in Settings.");
    expect(problem("model-refused", "x cannot read so much: use a smaller token_budget")).toContain("too long for gpt-5-mini");
    expect(explain({ status: 0, title: "", detail: "", fields: {} })).toContain("Check that it is running");
    expect(explain({ status: 422, title: "Invalid input", detail: "title: is too long", fields: {} })).toBe("Title: is too long.");
    expect(explain({ status: 422, title: "", detail: "body: is not an export that can be imported here: chatgpt", fields: {} })).toContain("Choose the archive");
  });
});

it("what was sent of a file is its beginning, as far as it is in the request", () => {
  const request = JSON.stringify({ text: "read: first \"line\"\nsecond line\n" });
  expect(wordsSent('first "line"\nsecond line\nthird', request)).toBe('first "line"\nsecond line');
  expect(wordsSent("nothing of it", request)).toBe("");
});
