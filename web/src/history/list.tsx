/** A virtual list for thousands of conversations: only visible rows are rendered. Rows have fixed heights. */

import { type KeyboardEvent, useCallback, useEffect, useMemo, useRef, useState } from "react";
import { adjacent } from "./focus";
import { conversations, load, loadMore } from "../state/conversations";
import { type Row, rowsOf } from "../state/dates";
import { isArchived, isEmpty } from "../state/placement";
import { route } from "../state/route";
import { useStore } from "../state/store";
import { Icon } from "../shell/icons";
import { ConversationRow } from "./row";
import { visibleRange, rowOffsets } from "./window";

const NEAR = 600; // pixels from the end at which the next page is loaded

export function List() {
  const { phase, items: all, next, problem } = useStore(conversations, (one) => one);
  const here = useStore(route, (one) => one.conversation);
  const today = useToday();
  const [isArchive, setArchive] = useState(false);
  const archived = useMemo(() => all.filter(isArchived).length, [all]);
  const items = useMemo(() => all.filter((one) => isArchived(one) === isArchive && !isEmpty(one)), [all, isArchive]);
  useEffect(() => {
    if (archived === 0) setArchive(false);
  }, [archived]);
  const rows = useMemo(() => rowsOf(items, today), [items, today]);
  const places = useMemo(() => rowOffsets(rows), [rows]);
  const box = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ top: 0, height: 800 });
  const look = useCallback(() => {
    const element = box.current;
    if (element) setView({ top: element.scrollTop, height: element.clientHeight });
  }, []);
  useEffect(() => {
    const watcher = new ResizeObserver(look);
    if (box.current) watcher.observe(box.current);
    return () => watcher.disconnect();
  }, [look]);
  const whole = places.at(-1) ?? 0;
  const isNearEnd = next !== null && view.top + view.height > whole - NEAR;
  useEffect(() => {
    if (isNearEnd) void loadMore();
  }, [isNearEnd, all.length]);
  if (phase === "loading") return <div className="list" role="status" aria-label="Loading conversations"><Skeletons /></div>;
  if (phase === "failed")
    return (
      <div className="list list-note" role="alert">
        <p>{problem}</p>
        <button type="button" className="button" onClick={() => void load()}>Try again</button>
      </div>
    );
  if (!items.length) return <div className="list list-note"><p>No conversations yet. They will be listed here.</p>{archived > 0 && <ArchiveButton count={archived} isOpen={isArchive} onClick={() => setArchive(!isArchive)} />}</div>;
  const [first, last] = visibleRange(places, view.top, view.height);
  return (
    <>
      <div className="list" ref={box} onScroll={look} onKeyDown={onArrow} role="list" aria-label="Conversations">
        <div className="list-space" style={{ height: whole }}>
          {rows.slice(first, last).map((row, at) => (
            <PositionedRow key={keyOf(row)} row={row} top={places[first + at]!} here={here} />
          ))}
        </div>
      </div>
      {archived > 0 && <ArchiveButton count={archived} isOpen={isArchive} onClick={() => setArchive(!isArchive)} />}
    </>
  );
}

function ArchiveButton({ count, isOpen, onClick }: { count: number; isOpen: boolean; onClick: () => void }) {
  return <button type="button" className="text-button archive" onClick={onClick}><Icon name={isOpen ? "left" : "archive"} size={16} /> {isOpen ? "Back to all conversations" : `Archived (${count})`}</button>;
}

const keyOf = (row: Row) => (row.kind === "group" ? row.name : row.conversation.id);

function PositionedRow({ row, top, here }: { row: Row; top: number; here: string | null }) {
  return (
    <div className="list-row" style={{ transform: `translateY(${top}px)` }} role="listitem">
      {row.kind === "group" ? (
        <h2 className="list-group">{row.name}</h2>
      ) : (
        <ConversationRow conversation={row.conversation} isHere={row.conversation.id === here} />
      )}
    </div>
  );
}

function onArrow(event: KeyboardEvent<HTMLDivElement>): void {
  const by = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
  if (!by || event.altKey || event.target instanceof HTMLInputElement) return;
  if (adjacent(event.currentTarget, ".row-link", by)) event.preventDefault();
}

/** The current day; changes at midnight, so that the group "Today" stays correct. */
function useToday(): Date {
  const [today, setToday] = useState(() => new Date());
  useEffect(() => {
    const midnight = new Date(today.getFullYear(), today.getMonth(), today.getDate() + 1);
    const timer = setTimeout(() => setToday(new Date()), midnight.getTime() - Date.now() + 1_000);
    return () => clearTimeout(timer);
  }, [today]);
  return today;
}

function Skeletons() {
  return <>{[70, 55, 80, 45, 65].map((width) => <i key={width} className="ghost" style={{ width: `${width}%` }} />)}</>;
}
