import { describe, expect, it } from "vitest";
import type { Branch, Conversation, Turn } from "../src/api/types";
import { blocksOf, typedParts } from "../src/chat/blocks";
import { safeUrl } from "../src/chat/links";
import { fileName, markdownOf } from "../src/history/markdown-export";
import { GROUP, visibleRange, rowOffsets, ROW } from "../src/history/window";
import { groupOf, type Row, rowsOf } from "../src/state/dates";
import { parseRoute, pathTo } from "../src/state/paths";
import { codePoints, markSpans, titleParts, unitsAt } from "../src/state/text";
import { branchesByTurn, chunksOf, isAnswerRunning, itemsOf, stepsOf, versionsOf } from "../src/state/views";
import { turn } from "./turns";

const assistant = (id: string, fields: Partial<Turn> = {}) => turn({ id, role: "assistant", actor: "assistant", ...fields });
const tool = (id: string, call: string) => turn({ id, role: "tool", actor: "tool", tool_results: [{ id: call, content: "12", is_error: false }] });
const called = (id: string, call: string) => assistant(id, { tool_calls: [{ id: call, name: "look", arguments: {} }] });

describe("items", () => {
  it("are questions, and answers with their tool rounds", () => {
    const turns = [turn({ id: "q" }), called("a1", "c1"), tool("r", "c1"), assistant("a2"), turn({ id: "q2" })];
    const items = itemsOf(turns);
    expect(items.map((item) => item.turns.map((one) => one.id))).toEqual([["q"], ["a1", "r", "a2"], ["q2"]]);
    expect(stepsOf(turns[1]!, items[1]!)).toMatchObject([{ call: { id: "c1" }, result: { content: "12" } }]);
  });

  it("of two agents stay apart", () => {
    expect(itemsOf([assistant("a", { actor: "cook" }), assistant("b", { actor: "host" })])).toHaveLength(2);
    expect(itemsOf([assistant("a"), assistant("b")])).toHaveLength(2);
  });

  it("that have not changed are the same objects", () => {
    const turns = [turn({ id: "q" }), assistant("a")];
    const before = itemsOf(turns);
    const after = itemsOf([turns[0]!, { ...turns[1]!, content: "more" }], before);
    expect(after[0]).toBe(before[0]);
    expect(after[1]).not.toBe(before[1]);
  });

  it("are those of the new thread, wherever it has changed", () => {
    const [q, a, r, b, q2, c] = [turn({ id: "q" }), called("a", "c1"), tool("r", "c1"), assistant("b"), turn({ id: "q2" }), assistant("c")] as const;
    const threads = [[q], [q, a], [q, a, r], [q, a, r, b], [q, a, r, b, q2, c], [a, r, b, q2], [q, b, q2, c], [{ ...q, content: "x" }, a, r], [q2, c], []];
    for (const before of threads) for (const after of threads) expect(itemsOf(after, itemsOf(before))).toEqual(itemsOf(after));
  });
});

describe("chunks of a long thread", () => {
  const turns = Array.from({ length: 200 }, (_, n) => turn({ id: `t${n}`, position: n }));

  it("stay the same objects while the last item grows", () => {
    const items = itemsOf(turns);
    const before = chunksOf(items);
    const after = chunksOf(itemsOf([...turns.slice(0, -1), { ...turns.at(-1)!, content: "more" }], items), before);
    expect(after.flatMap((chunk) => chunk.items)).toHaveLength(200);
    expect(after.map((chunk, at) => chunk === before[at])).toEqual(before.map((_, at) => at < before.length - 1));
  });

  it("stay the same objects while earlier items are added", () => {
    const items = itemsOf(turns);
    const late = chunksOf(items.slice(100));
    expect(chunksOf(items, late).slice(-late.length + 1)).toEqual(late.slice(1));
    expect(chunksOf(items, late).at(-1)).toBe(late.at(-1));
  });
});

describe("an answer in the making", () => {
  const now = Date.parse("2026-11-15T09:00:00Z");
  const calls = called("a", "c").tool_calls;

  it("is one that is being written, or whose tools have time left", () => {
    expect(isAnswerRunning([assistant("a", { status: "pending" })], now)).toBe(true);
    const running = (until: string) => [assistant("a", { tool_calls: calls, metadata: { tools_until: until } })];
    expect(isAnswerRunning(running("2026-11-15T09:00:30Z"), now)).toBe(true);
    expect(isAnswerRunning(running("2026-11-15T08:59:30Z"), now)).toBe(false);
  });

  it("is none that somebody else left open", () => {
    for (const last of [[], [turn({})], [assistant("a")], [called("a", "c")], [tool("r", "c")]])
      expect(isAnswerRunning(last, now)).toBe(false);
  });
});

describe("versions", () => {
  const versions = ["A", "A", "B"].map((content, at) => turn({ id: `v${at}`, content }));
  const places: Branch[] = [{ position: 0, active: "v1", turns: versions }];
  const branches = branchesByTurn(places);

  it("with the same words are answers made anew, others are edits", () => {
    expect(versionsOf(versions[0]!, branches)).toEqual({
      edits: { ids: ["v0", "v2"], at: 0 },
      answers: { ids: ["v0", "v1"], at: 0 },
    });
    expect(versionsOf(versions[2]!, branches)).toEqual({ edits: { ids: ["v1", "v2"], at: 1 }, answers: null });
  });

  it("are none where nothing was changed", () => {
    expect(versionsOf(turn({ id: "other" }), branches)).toEqual({ edits: null, answers: null });
  });
});

describe("Markdown in pieces", () => {
  it("comes together again, whatever it holds", () => {
    const text = "# A\n\npara\nmore\n\n- one\n\n- two\n\n  under two\n\nafter\n\n```py\n\nx = 1\n\n```\n\n| a |\n|---|\n| 1 |\n\nend";
    const blocks = blocksOf(text);
    expect(blocks.join("\n")).toBe(text);
    expect(blocks).toHaveLength(6);
    expect(blocks.some((block) => block.includes("- one") && block.includes("under two"))).toBe(true);
    expect(blocks.some((block) => block.startsWith("```py") && block.trimEnd().endsWith("```"))).toBe(true);
  });

  it("keeps an open fence whole, and a fence inside a longer one", () => {
    expect(blocksOf("```\na\n\nb\n\nc")).toHaveLength(1);
    expect(blocksOf("````\n```\n\n```\n\nstill code\n````\n\nafter")).toHaveLength(2);
  });

  it("is left whole where definitions reach across it", () => {
    expect(blocksOf("[a][1]\n\n[1]: https://example.org")).toHaveLength(1);
  });

  it("takes only addresses that cannot run anything", () => {
    expect(safeUrl("https://example.org/a")).toBe("https://example.org/a");
    expect(safeUrl("mailto:ada@example.org")).toBe("mailto:ada@example.org");
    for (const bad of ["javascript:alert(1)", " JaVaScript:alert(1)", "data:text/html,x", "vbscript:x", "//example.org", "/api/x", "file:///x", "blob:x", ""])
      expect(safeUrl(bad)).toBe("");
  });
});

const at = (updated: string, id = updated): Conversation => ({ id, updated, title: id, metadata: {}, next_seq: 1 } as unknown as Conversation);

describe("dates", () => {
  const now = new Date(2026, 10, 15, 0, 30);
  it("are grouped by the calendar, not by hours", () => {
    expect(groupOf(new Date(2026, 10, 15, 0, 1), now)).toBe("Today");
    expect(groupOf(new Date(2026, 10, 14, 23, 59), now)).toBe("Yesterday");
    expect(groupOf(new Date(2026, 10, 13, 12), now)).toBe("Previous 7 days");
    expect(groupOf(new Date(2026, 10, 8), now)).toBe("Previous 7 days");
    expect(groupOf(new Date(2026, 10, 7, 23), now)).toBe("November 2026");
    expect(groupOf(new Date(2025, 11, 31), now)).toBe("December 2025");
    expect(groupOf(new Date(2026, 10, 16), now)).toBe("Today"); // a clock that runs ahead
  });

  it("head the rows of the list", () => {
    const rows = rowsOf([at("2026-11-15T00:10:00"), at("2026-11-15T00:05:00"), at("2026-11-14T09:00:00")], now);
    expect(rows.map((row) => (row.kind === "group" ? row.name : "·"))).toEqual(["Today", "·", "·", "Yesterday", "·"]);
  });
});

describe("the rows in sight", () => {
  const rows: Row[] = Array.from({ length: 10_000 }, (_, n) =>
    n % 100 ? { kind: "conversation", conversation: at("2026-11-15", `${n}`) } : { kind: "group", name: `${n}` });
  const places = rowOffsets(rows);

  it("are few, and cover the view, wherever it is", () => {
    expect(places.at(-1)).toBe(100 * GROUP + 9_900 * ROW);
    for (const top of [0, 1, 39, 4_000, 200_000, places.at(-1)! - 600]) {
      const [first, last] = visibleRange(places, top, 600);
      expect(last - first).toBeLessThan(40);
      expect(places[first]!).toBeLessThanOrEqual(top);
      expect(places[last]!).toBeGreaterThanOrEqual(Math.min(top + 600, places.at(-1)!));
    }
  });

  it("are none of an empty list", () => {
    expect(visibleRange(rowOffsets([]), 0, 600)).toEqual([0, 0]);
  });
});

describe("text", () => {
  it("is counted as the server counts it", () => {
    expect(codePoints("a🥜é")).toBe(3);
    expect("a🥜é".slice(unitsAt("a🥜é", 2))).toBe("é");
    expect(unitsAt("ab", 9)).toBe(2);
  });

  it("is marked where the words are, also behind emoji", () => {
    const parts = markSpans("🥜🥜 nuts and rice", [[3, 7]]);
    expect(parts.filter((part) => part.isMatch).map((part) => part.text)).toEqual(["nuts"]);
    expect(parts.map((part) => part.text).join("")).toBe("🥜🥜 nuts and rice");
  });

  it("is cut around its first match", () => {
    const long = `${"x ".repeat(500)}needle${" y".repeat(500)}`;
    const parts = markSpans(long, [[1_000, 1_006]]);
    expect(parts.find((part) => part.isMatch)?.text).toBe("needle");
    expect(parts.map((part) => part.text).join("").length).toBeLessThan(140);
  });

  it("begins with a whole word", () => {
    const text = "several words that stand before the one that is looked for, among them extraordinary ones: needle";
    const at = text.indexOf("needle");
    expect(markSpans(text, [[at, at + 6]])[0]!.text).toBe("…for, among them extraordinary ones: ");
  });

  it("of a title is marked without being taken for a pattern", () => {
    expect(titleParts("C++ (notes)", "c++ (no")).toEqual([
      { text: "C++", isMatch: true }, { text: " ", isMatch: false }, { text: "(no", isMatch: true }, { text: "tes)", isMatch: false },
    ]);
  });
});

describe("a message as it was typed", () => {
  const plain = (text: string) => ({ text, isCode: false });

  it("has code between fences apart", () => {
    expect(typedParts("a\n\n```js\n1\n\n2\n```\nb")).toEqual([plain("a\n"), { text: "1\n\n2", isCode: true, language: "js" }, plain("b")]);
    expect(typedParts("~~~\nx\n~~~")).toEqual([{ text: "x", isCode: true, language: undefined }]);
  });

  it("is text where a fence is not closed, and everywhere else", () => {
    for (const text of ["a\n```js\nb", "one `x` *y*\n# z", "$$\nx\n$$", ""]) expect(typedParts(text).map((part) => part.text).join("\n")).toBe(text);
    expect(typedParts("a\n```js\nb").some((part) => part.isCode)).toBe(false);
  });

  it("is read in one go, however many fences are open", () => {
    expect(typedParts("```a\n".repeat(200_000)).length).toBe(1);
  });
});

describe("the rest", () => {
  it("finds its way by the address", () => {
    expect(parseRoute("/c/01K", "#turn")).toMatchObject({ conversation: "01K", turn: "turn", page: null });
    expect(parseRoute("/", "")).toMatchObject({ conversation: null, turn: null, page: null });
    expect(parseRoute("/c/%E0%A4%A", "")).toMatchObject({ conversation: "%E0%A4%A", turn: null });
    expect(parseRoute("/settings", "#models")).toMatchObject({ page: "settings", section: "models" });
    expect(parseRoute("/nope/x", "")).toMatchObject({ page: "unknown", conversation: null });
    expect(pathTo("a/b", "t")).toBe("/c/a%2Fb#t");
  });

  it("exports what was said, by whom and when", () => {
    const text = markdownOf(at("2026-11-15T09:00:00Z", "Nuts"), [turn({ actor: "ada", content: "Hello" }), called("a", "c")]);
    expect(text).toContain("# Nuts");
    expect(text).toContain("### ada");
    expect(text).toContain("used `look`");
    expect(fileName("../../etc/passwd\0")).toBe("etcpasswd");
    expect(fileName("…")).toBe("conversation");
    expect(fileName("Make me a plan for a small web service with two options, please")).toBe("Make me a plan for a small web service with two options");
    expect(fileName("x".repeat(99))).toBe("x".repeat(60));
  });
});
