import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import type { Turn } from "../src/api/types";
import { type Message, SseParser } from "../src/sse/parser";
import { afterFrames, NO_THREAD, type Thread, threadOf, withTurn } from "../src/state/frames";
import { turn } from "./turns";

const recorded = new SseParser().push(readFileSync(join(import.meta.dirname, "streams", "palaver-events.txt"), "utf8"));

const frame = (event: string, data: unknown): Message => ({ event, data: JSON.stringify(data), id: null });
const open = (fields: Partial<Turn>) =>
  frame("open", { turn: turn({ role: "assistant", status: "pending", id: "a", position: 1, ...fields }), payload: {} });
const delta = (from: number, text: string) => frame("delta", { turn: "a", from, text });
const texts = (thread: Thread) => thread.turns.map((one) => one.content);

describe("a recorded feed", () => {
  // The recorded log is that of an edited question: the first version is no longer active.
  it("ends with the active branch, however it is cut", () => {
    const whole = afterFrames(NO_THREAD, recorded);
    expect(texts(whole.thread)).toEqual(["What else?", "Rice 🍚, again."]);
    expect(whole.needs).toContain("branches");
    for (let cut = 0; cut <= recorded.length; cut++) {
      const first = afterFrames(NO_THREAD, recorded.slice(0, cut)).thread;
      expect(afterFrames(first, recorded.slice(cut)).thread).toEqual(whole.thread);
    }
  });

  it("may be told twice", () => {
    const once = afterFrames(NO_THREAD, recorded).thread;
    expect(afterFrames(once, recorded).thread).toEqual(once);
  });
});

describe("pieces of text", () => {
  it("are joined by their place, counted in code points", () => {
    const pieces = [open({}), delta(0, "Nuts 🥜"), delta(6, " and 🍚"), delta(12, " rice")];
    expect(texts(afterFrames(NO_THREAD, pieces).thread)).toEqual(["Nuts 🥜 and 🍚 rice"]);
  });

  it("do no harm when they are repeated or overlap", () => {
    const pieces = [open({}), delta(0, "Nuts 🥜"), delta(0, "Nuts 🥜"), delta(5, "🥜 and"), delta(2, "ts")];
    expect(texts(afterFrames(NO_THREAD, pieces).thread)).toEqual(["Nuts 🥜 and"]);
  });

  it("go on after the text that the page was loaded with", () => {
    const thread = threadOf([turn({ id: "a", role: "assistant", status: "pending", content: "Nuts 🥜" })]);
    expect(texts(afterFrames(thread, [delta(4, " 🥜!")]).thread)).toEqual(["Nuts 🥜!"]);
  });

  it("with a gap before them ask for the turns again", () => {
    const { thread, needs } = afterFrames(NO_THREAD, [open({}), delta(0, "a"), delta(3, "b")]);
    expect(texts(thread)).toEqual(["a"]);
    expect(needs).toContain("turns");
  });

  it("that come after the commit change nothing", () => {
    const done = frame("commit", { turn: turn({ id: "a", role: "assistant", position: 1, content: "whole" }), payload: {} });
    expect(texts(afterFrames(NO_THREAD, [open({}), delta(0, "wh"), done, delta(2, "ole")]).thread)).toEqual(["whole"]);
  });
});

describe("turns", () => {
  const thread = threadOf([0, 1, 2, 3].map((at) => turn({ id: `t${at}`, position: at, content: `${at}` })));

  it("take the place of what they replace, and of what followed where the log says so", () => {
    const edited = turn({ id: "new", position: 1, content: "new" });
    expect(texts(withTurn(thread, edited))).toEqual(["0", "new", "2", "3"]);
    expect(texts(withTurn(thread, edited, false, true))).toEqual(["0", "new"]);
  });

  it("that are no longer active leave the view", () => {
    expect(texts(withTurn(thread, turn({ id: "t2", position: 2, active: false })))).toEqual(["0", "1", "3"]);
  });

  it("are not unfinished again by a late frame", () => {
    const done = withTurn(NO_THREAD, turn({ id: "a", role: "assistant", content: "whole" }));
    expect(texts(afterFrames(done, [open({ position: 0 })]).thread)).toEqual(["whole"]);
  });

  it("that were cut before the page was loaded are shown as such", () => {
    const found = threadOf([turn({ id: "a" }), turn({ id: "b", status: "aborted", content: "ha" })]);
    expect(found.turns.map((one) => one.id)).toEqual(["a"]);
    expect(found.cut?.content).toBe("ha");
  });

  it("that were cut are kept aside, until there is another answer", () => {
    const aborted = frame("abort", { turn: turn({ id: "a", role: "assistant", status: "aborted", content: "ha", active: false }) });
    const { thread: cut } = afterFrames(NO_THREAD, [open({}), delta(0, "ha"), aborted]);
    expect(cut.turns).toEqual([]);
    expect(cut.cut?.content).toBe("ha");
    expect(afterFrames(cut, [open({ id: "b" })]).thread.cut).toBeNull();
  });

  it("are read again after a switch, a deletion or a reset", () => {
    for (const kind of ["switch", "forget", "reset"]) expect(afterFrames(thread, [frame(kind, {})]).needs).toContain("turns");
    expect(afterFrames(thread, [frame("gone", {})]).needs).toContain("gone");
  });
});
