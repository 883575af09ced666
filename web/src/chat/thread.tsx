/** The turns, oldest first. Stays scrolled to the end while it grows, unless the reader has scrolled up. */

import { memo, useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "react";
import { Icon } from "../shell/icons";
import { navigate, route } from "../state/route";
import { session } from "../state/session";
import { useStore } from "../state/store";
import type { Branch } from "../api/types";
import { isNamed } from "./actors";
import { requestAnswer, resend, type OutgoingMessage, loadOlder, takeBack, current } from "../state/current-conversation";
import { showMessage } from "../state/toasts";
import { branchesByTurn, type Chunk, chunksOf, type Item, itemsOf, type Versions, versionsOf } from "../state/views";
import { Files } from "./files";
import { ItemView, Thinking, Typed } from "./item";
import { Markdown } from "./markdown";
import { ratingsOf, RatingsContext } from "./thumbs";
import { textOf } from "../state/text";

const NEAR = 1_000; // pixels from the top at which the previous page is loaded
const AT_END = 40; // pixels that still count as the end
const AT_ONCE = 2; // messages: the last question and its answer
const PER_FRAME = 4;
const CALM = 500; // milliseconds without a change of height: a long answer is rendered over several frames

export function Thread({ onTakeBack }: { onTakeBack: (unsent: OutgoingMessage) => void }) {
  const turns = useStore(current, (one) => one.thread.turns);
  const found = useStore(current, (one) => one.branches);
  const thinking = useStore(current, (one) => one.thinking);
  const unsent = useStore(current, (one) => one.unsentEdit);
  const ratings = useStore(current, (one) => ratingsOf(one.info?.metadata));
  const me = useStore(session, (one) => (one.phase === "ready" ? one.settings.caller.user : null));
  const items = useItems(turns);
  const shown = useProgressiveItems(items);
  const { box, content, isStuck, isAtEnd, toEnd } = useScrolling(shown.length === items.length);
  useJump(shown, items, isStuck);
  const branches = useMemo(() => branchesByTurn(found), [found]);
  const chunks = useChunks(shown);
  return (
    <div className="thread" ref={box} tabIndex={-1}>
      <div className="thread-content" ref={content} role="log" aria-label="Conversation" aria-live="off">
        <EarlierButton />
        <RatingsContext value={ratings}>
          {chunks.map((chunk, at) => (
            <ChunkView
              key={chunk.id} chunk={chunk} before={chunks[at - 1]?.items.at(-1)} after={chunks[at + 1]?.items[0]} me={me} branches={branches}
              isInside={isInside(at, chunks.length)} isLast={at === chunks.length - 1} thinking={at === chunks.length - 1 ? thinking : ""} unsent={unsent}
            />
          ))}
        </RatingsContext>
        <ThreadEnd onTakeBack={onTakeBack} />
      </div>
      {!isAtEnd && (
        <button type="button" className="to-end" onClick={toEnd} aria-label="Jump to latest" title="Jump to latest"><Icon name="down" /></button>
      )}
    </div>
  );
}

interface ChunkProps {
  chunk: Chunk;
  before: Item | undefined;
  after: Item | undefined;
  me: string | null;
  branches: Map<string, Branch>;
  /** Whether all its messages are loaded. */
  isInside: boolean;
  /** Whether it is at the end of the thread. */
  isLast: boolean;
  thinking: string;
  unsent: OutgoingMessage | null;
}

/** Some items. In a long thread, the chunks above the growing one are not even looked at. */
const ChunkView = memo(function ChunkView({ chunk: { items }, before, after, me, branches, isInside, isLast, thinking, unsent }: ChunkProps) {
  const box = useRef<HTMLDivElement>(null);
  const isSettled = useSettled(box, items, isInside);
  return (
    <div ref={box} className={isSettled ? "chunk is-settled" : "chunk"}>
      {items.map((item, at) => {
        const isEnd = isLast && at === items.length - 1;
        return (
          <ItemView
            key={item.id} item={item} me={me} isLast={isEnd} thinking={isEnd ? thinking : ""} isUnanswered={isPassedOver(item, items[at + 1] ?? after, me)}
            unsent={unsent && unsent.replaces === item.id ? unsent : null}
            versions={branches.size ? versionsAt(item, items[at - 1] ?? before, branches) : null}
          />
        );
      })}
    </div>
  );
});

/** Messages come in at both ends of the thread. A chunk further inside is complete. */
const isInside = (at: number, count: number) => at > 1 && at < count - 2;

/** Whether the browser knows the height of a chunk: it has been laid out with all these items, and no longer grows. */
function useSettled(box: { current: Element | null }, items: Item[], isInside: boolean): boolean {
  const [settled, setSettled] = useState<Item[] | null>(null);
  const isSettled = isInside && settled === items;
  useEffect(() => {
    if (!isInside || isSettled) return;
    let timer = 0;
    const watcher = new ResizeObserver(() => { // called after the first layout, too
      clearTimeout(timer);
      timer = window.setTimeout(() => setSettled(items), CALM);
    });
    watcher.observe(box.current!);
    return () => (watcher.disconnect(), clearTimeout(timer));
  }, [box, items, isInside, isSettled]);
  return isSettled;
}

function useChunks(items: Item[]): Chunk[] {
  const previous = useRef<Chunk[]>([]);
  return useMemo(() => (previous.current = chunksOf(items, previous.current)), [items]);
}

/** Whether a question got no answer before the same person asked the next one. */
function isPassedOver(item: Item, next: Item | undefined, me: string | null): boolean {
  return item.role === "user" && next?.role === "user" && !isNamed(item.turns[0]!, me) && item.turns[0]!.actor === next.turns[0]!.actor;
}

/** Unchanged items keep their identity, so that only the growing one is rendered. */
function useItems(turns: Parameters<typeof itemsOf>[0]): Item[] {
  const previous = useRef<Item[]>([]);
  return useMemo(() => (previous.current = itemsOf(turns, previous.current)), [turns]);
}

/** Render the newest items at once and earlier ones a few per frame, so that no task is long. */
function useProgressiveItems(items: Item[]): Item[] {
  const [first, setFirst] = useState<string | null>(null); // a turn of the first rendered item
  const known = items.findIndex((item) => item.turns.some((turn) => turn.id === first));
  const start = known < 0 ? Math.max(0, items.length - AT_ONCE) : known;
  const next = items[Math.max(0, start - PER_FRAME)]?.id ?? null;
  useEffect(() => {
    if (next === first) return;
    const frame = requestAnimationFrame(() => setFirst(next));
    return () => cancelAnimationFrame(frame);
  }, [next, first]);
  return useMemo(() => (start ? items.slice(start) : items), [items, start]);
}

/** The versions of a question; for an answer, the versions of its question that have the same text. */
function versionsAt(item: Item, asked: Item | undefined, branches: Map<string, Branch>): Versions | null {
  if (item.role === "user") return versionsOf(item.turns[0]!, branches).edits;
  return asked?.role === "user" ? versionsOf(asked.turns[0]!, branches).answers : null;
}

function EarlierButton() {
  const older = useStore(current, (one) => one.older);
  if (!older) return null;
  return <button type="button" className="button earlier" onClick={() => void loadOlder()}>Earlier messages</button>;
}

/** The end of the thread, which is not in the log yet: the outgoing message, the wait for the first token, errors. */
function ThreadEnd({ onTakeBack }: { onTakeBack: (unsent: OutgoingMessage) => void }) {
  const { outgoing, busy, failure, thread, id, live } = useStore(current, (one) => one);
  const last = thread.turns.at(-1);
  const edit = () => {
    const unsent = takeBack();
    if (unsent) onTakeBack(unsent);
  };
  const isWaiting = busy && !outgoing?.failed && (!last || last.role !== "assistant" || outgoing !== null);
  const isUnanswered = !busy && !outgoing && !failure && (last?.role === "user" || last?.role === "tool");
  return (
    <>
      {outgoing && (
        <article className="item is-user is-sending" aria-label="Your message, being sent">
          <Files conversation={id ?? ""} files={outgoing.attachments} />
          {outgoing.message && <div className="question"><div className="bubble" dir="auto"><Typed text={outgoing.message} /></div></div>}
          {outgoing.failed && (
            <Failure text={`Not sent. ${outgoing.failed}`}>
              <button type="button" className="button" onClick={() => void resend()}>Send again</button>
              <button type="button" className="button" onClick={edit}>Edit message</button>
            </Failure>
          )}
        </article>
      )}
      {isWaiting && <article className="item is-assistant" aria-label="Assistant"><Thinking /></article>}
      {thread.cut && (
        <article className="item is-assistant is-cut" aria-label="An interrupted answer">
          <Markdown text={textOf(thread.cut.content)} />
        </article>
      )}
      {failure && (
        <Failure text={failure}><button type="button" className="button" onClick={() => void requestAnswer()}>Try again</button></Failure>
      )}
      {(isUnanswered || (thread.cut && !failure && !busy)) && (
        <Failure isMild text={thread.cut ? "The answer was interrupted." : "No reply yet."}>
          <button type="button" className="button" onClick={() => void requestAnswer()}>{thread.cut ? "Try again" : "Get a reply"}</button>
        </Failure>
      )}
      {!live && <p className="reconnecting" role="status">Reconnecting…</p>}
    </>
  );
}

function Failure({ text, children, isMild = false }: { text: string; children: React.ReactNode; isMild?: boolean }) {
  const looks = isMild ? "failure is-mild" : "failure";
  return <div className={looks} role={isMild ? "status" : "alert"}>{!isMild && <Icon name="warn" size={16} />}<span>{text}</span>{children}</div>;
}

// ---- scrolling

function useScrolling(isWhole: boolean) {
  const box = useRef<HTMLDivElement>(null);
  const content = useRef<HTMLDivElement>(null);
  const isStuck = useRef(true);
  const mayRead = useRef(isWhole); // loaded items are rendered before more are loaded from the server
  const [isAtEnd, setAtEnd] = useState(true);
  const id = useStore(current, (one) => one.id);
  const outgoing = useStore(current, (one) => one.outgoing);
  const toEnd = useCallback(() => {
    isStuck.current = true;
    const element = box.current;
    if (element) element.scrollTop = element.scrollHeight;
  }, []);

  useEffect(() => {
    const element = box.current!;
    let before = element.scrollTop;
    let place: ScrollAnchor | null = null;
    const settle = () => {
      if (isStuck.current) element.scrollTop = element.scrollHeight;
      else if (place) element.scrollTop += offsetSince(element, place);
      before = element.scrollTop;
      place = isStuck.current ? null : anchorIn(element, content.current!);
    };
    const onScroll = () => {
      const isEnd = element.scrollHeight - element.scrollTop - element.clientHeight < AT_END;
      // Only scrolling up leaves the end; text that arrives below does not.
      if (isEnd || element.scrollTop < before) isStuck.current = isEnd;
      if (isStuck.current) before = element.scrollTop;
      else settle();
      setAtEnd(isStuck.current);
      if (element.scrollTop < NEAR && mayRead.current && current.get().older) void loadOlder();
    };
    const watcher = new ResizeObserver(settle); // called between layout and paint, so no movement is visible
    element.addEventListener("scroll", onScroll, { passive: true });
    watcher.observe(content.current!);
    watcher.observe(element);
    return () => (element.removeEventListener("scroll", onScroll), watcher.disconnect());
  }, []);
  useLayoutEffect(() => void (mayRead.current = isWhole), [isWhole]);
  useLayoutEffect(toEnd, [id, outgoing, toEnd]);
  return { box, content, isStuck, isAtEnd, toEnd };
}

/** A scroll anchor: the item being read and its position, which stays fixed when content above it grows. */
interface ScrollAnchor {
  item: Element;
  top: number;
  scrolled: number;
}

const topIn = (box: Element, item: Element) => item.getBoundingClientRect().top - box.getBoundingClientRect().top;

/** How far the anchor has moved, not counting the reader's own scrolling. */
function offsetSince(box: Element, { item, top, scrolled }: ScrollAnchor): number {
  const moved = item.isConnected ? topIn(box, item) - top + box.scrollTop - scrolled : 0;
  return Math.abs(moved) < 1 ? 0 : moved;
}

/** The first visible item. Its chunk is searched first: to ask an item of a skipped chunk would lay out that chunk. */
function anchorIn(box: Element, content: Element): ScrollAnchor | null {
  const edge = box.getBoundingClientRect().top;
  const first = firstBelow(edge, content.children);
  const part = first?.matches(".earlier") ? first.nextElementSibling : first;
  const item = part?.matches(".chunk") ? firstBelow(edge, part.children) : part;
  return item ? { item, top: topIn(box, item), scrolled: box.scrollTop } : null;
}

/** The first element that ends below a line, or the last one, by binary search. */
function firstBelow(edge: number, elements: HTMLCollection): Element | undefined {
  let low = 0;
  let high = elements.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (elements[middle]!.getBoundingClientRect().bottom > edge) high = middle;
    else low = middle + 1;
  }
  return elements[low];
}

/** Scroll to the turn named in the URL, loading earlier pages as needed. */
function useJump(shown: Item[], items: Item[], isStuck: { current: boolean }): void {
  const { conversation, turn } = useStore(route, (one) => one);
  const id = useStore(current, (one) => one.id);
  const phase = useStore(current, (one) => one.phase);
  const older = useStore(current, (one) => one.older);
  const isHere = turn !== null && hasTurn(shown, turn);
  const isComing = turn !== null && hasTurn(items, turn);
  useEffect(() => {
    if (!turn || id !== conversation || phase !== "ready") return;
    if (!isHere) {
      if (isComing) return;
      if (older) return void loadOlder();
      showMessage("That message is not in this version of the conversation.");
      return navigate(conversation, { replace: true });
    }
    isStuck.current = false;
    const target = document.getElementById(`turn-${turn}`)?.closest(".item");
    target?.scrollIntoView({ block: "center" });
    target?.classList.add("is-found");
    const timer = setTimeout(() => target?.classList.remove("is-found"), 2_500);
    navigate(conversation, { replace: true });
    return () => clearTimeout(timer);
  }, [turn, id, conversation, phase, older, isHere, isComing, isStuck]);
}

const hasTurn = (items: Item[], turn: string) => items.some((item) => item.turns.some((one) => one.id === turn));
