import { asked, on } from "./page";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { keepToken, token } from "../src/api/client";
import type { Conversation } from "../src/api/types";
import { follow } from "../src/sse/follow";
import * as list from "../src/state/conversations";
import { keepDraft, readDraft } from "../src/state/drafts";
import { loadSession, session, signIn, signOut } from "../src/state/session";
import { ensureConversation, loadOlder, open, regenerate, current } from "../src/state/current-conversation";
import { toasts } from "../src/state/toasts";
import { turn } from "./turns";

const conversation = (id: string) => ({ id, title: id, updated: "2026-01-01T00:00:00Z", last_event: 0, metadata: {}, next_seq: 1, turn_count: 1 }) as Conversation;
const titles = () => list.conversations.get().items.map((one) => one.title);
const deleted = () => asked.filter((one) => one.method === "DELETE");
const undo = () => toasts.get().find((one) => one.action)?.action?.run();
const soon = () => vi.advanceTimersByTimeAsync(20);

beforeEach(() => {
  vi.useFakeTimers();
  asked.length = 0;
  toasts.set([]);
  on("GET", /\/api\/settings/, () => ({ limits: {} }));
  list.conversations.set({ phase: "ready", problem: "", items: [conversation("a"), conversation("b")], next: null });
});

afterEach(() => {
  open(null);
  list.flushDeletions();
  vi.useRealTimers();
});

describe("a deletion", () => {
  it("is sent when its time is over, and cannot be undone while it is on its way", async () => {
    let done = (_: undefined) => {};
    on("DELETE", /\/a$/, () => new Promise<undefined>((resolve) => (done = resolve)));
    list.remove(conversation("a"));
    const late = toasts.get()[0]!.action!.run;
    await vi.advanceTimersByTimeAsync(5_100);
    expect(deleted()).toHaveLength(1);
    late();
    done(undefined);
    await soon();
    expect(titles()).toEqual(["b"]);
  });

  it("that was undone is not sent", async () => {
    list.remove(conversation("a"));
    undo();
    await vi.advanceTimersByTimeAsync(10_000);
    expect(deleted()).toHaveLength(0);
    expect(titles().toSorted()).toEqual(["a", "b"]);
  });

  it("that fails is put back", async () => {
    on("DELETE", /\/a$/, () => Promise.reject(500));
    list.remove(conversation("a"));
    await vi.advanceTimersByTimeAsync(5_100);
    expect(titles().toSorted()).toEqual(["a", "b"]);
    expect(toasts.get().at(-1)!.text).toContain("was not deleted");
  });

  it("is sent with its key when somebody signs out before the time is over", () => {
    keepToken("secret", false);
    keepDraft(null, "half a sentence");
    list.remove(conversation("a"));
    signOut();
    expect(deleted()).toMatchObject([{ path: "/api/conversations/a", key: "Bearer secret" }]);
    expect(token()).toBeNull();
    expect(readDraft(null)).toBe("");
  });

  it("is sent once when the page closes, also after the list was shown twice", () => {
    list.startSync()();
    const end = list.startSync();
    list.remove(conversation("a"));
    dispatchEvent(new Event("pagehide"));
    end();
    expect(deleted()).toHaveLength(1);
  });
});

it("a title that the server refuses is told of", async () => {
  on("PATCH", /\/a$/, () => Promise.reject(500));
  expect(await list.rename("a", "new")).toBe(false);
  expect(titles()).toEqual(["a", "b"]);
});

it("whoever signs in after a key was refused finds nothing of the one before", async () => {
  await loadSession();
  expect(session.get().phase).toBe("ready");
  on("GET", /\/api\/conversations\?/, () => Promise.reject(401));
  await list.load();
  expect(session.get().phase).toBe("signed-out");
  expect(location.reload).not.toHaveBeenCalled();
  await signIn("another", false);
  expect(location.reload).toHaveBeenCalledOnce();
});

describe("a conversation", () => {
  const answers = (id: string, turns = [turn({ id: `${id}-q` })]) => {
    on("GET", new RegExp(`/${id}$`), () => conversation(id));
    on("GET", new RegExp(`/${id}/branches`), () => ({ items: [] }));
    on("GET", new RegExp(`/${id}/turns`), () => ({ items: turns, older: `/older/${id}`, last_event: 1 }));
  };

  it("reads its earlier turns, also while those of another one are still on their way", async () => {
    answers("a");
    answers("b");
    on("GET", /older\/a/, () => new Promise(() => {}));
    on("GET", /older\/b/, () => ({ items: [turn({ id: "b-0" })], older: null, last_event: 1 }));
    open("a");
    await soon();
    void loadOlder();
    open("b");
    await soon();
    expect(await loadOlder()).toBe(true);
    expect(current.get().thread.turns.map((one) => one.id)).toEqual(["b-0", "b-q"]);
  });

  it("that was begun is in the list, also when somebody has gone elsewhere meanwhile", async () => {
    answers("a");
    on("POST", /\/api\/conversations$/, () => conversation("begun"));
    const begun = ensureConversation();
    open("a");
    expect(await begun).toBe("begun");
    expect(titles()).toContain("begun");
    expect(current.get().id).toBe("a");
  });

  it("keeps what could not be sent for the next time", async () => {
    answers("a");
    open("a");
    await soon();
    current.patch({ outgoing: { key: "k", message: "Hello?", attachments: [], failed: "no" } });
    open(null);
    expect(readDraft("a")).toBe("Hello?");
  });

  it("shows an answer again for which there is no new one", async () => {
    const turns = [turn({ id: "q" }), turn({ id: "r", role: "assistant", position: 1 })];
    answers("a", turns);
    on("POST", /\/regenerate$/, () => Promise.reject(429));
    open("a");
    await soon();
    await regenerate("r");
    await soon();
    expect(current.get()).toMatchObject({ busy: false, failure: null });
    expect(current.get().thread.turns.map((one) => one.id)).toEqual(["q", "r"]);
    expect(toasts.get().at(-1)!.text).toContain("No new answer");
  });

  it("says when its feed is refused permanently, and does not only fall silent", async () => {
    answers("a", [turn({ id: "q" })]);
    on("GET", /\/conversations\/a\/events/, () => Promise.reject(400));
    open("a");
    await soon();
    expect(current.get()).toMatchObject({ phase: "ready", live: false });
    expect(toasts.get()).toHaveLength(1);
  });
});

it("a feed that tries again for a long time leaves no listeners behind", async () => {
  const added = vi.spyOn(globalThis, "addEventListener");
  on("GET", /\/feed/, () => Promise.reject(503));
  const end = follow("/feed", 0, { onMessage: () => {} });
  await vi.advanceTimersByTimeAsync(60_000);
  end();
  await soon();
  const online = added.mock.calls.filter(([name]) => name === "online");
  expect(online.length).toBeGreaterThan(3);
  expect(online.every(([, , options]) => (options as AddEventListenerOptions).signal?.aborted)).toBe(true);
});
