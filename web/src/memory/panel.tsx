/** The memory panel: notes, facts, summaries, recall, rules and log of a conversation. */

import { type ComponentType, type KeyboardEvent, useState } from "react";
import { PanelHead } from "../shell/panel-head";
import { Facts } from "./facts";
import { Log } from "./log";
import { Notes } from "./notes";
import { RecallBox } from "./recall";
import { Rules } from "./rules";
import { Summaries } from "./summaries";
import "./shared.css";
import "./memory.css";

export interface PanelProps {
  conversation: string;
  onClose: () => void;
  /** Show a turn in the thread. */
  onTurn: (turn: string) => void;
}

export type TabProps = Omit<PanelProps, "onClose">;

const TABS: [string, ComponentType<TabProps>][] = [
  ["Notes", Notes], ["Facts", Facts], ["Summaries", Summaries], ["Recall", RecallBox], ["Rules", Rules], ["Log", Log],
];

export function MemoryPanel({ conversation, onClose, onTurn }: PanelProps) {
  const [at, setAt] = useState(0);
  const [name, Tab] = TABS[at]!;
  return (
    <>
      <PanelHead title="Memory" onClose={onClose} />
      <div className="tabs" role="tablist" aria-label="Kinds of memory" onKeyDown={(event) => step(event, at, setAt)}>
        {TABS.map(([title], place) => (
          <button
            key={title} type="button" role="tab" id={`tab-${title}`} aria-controls="memory-tab" aria-selected={place === at}
            tabIndex={place === at ? 0 : -1} onClick={() => setAt(place)}
          >
            {title}
          </button>
        ))}
      </div>
      <div className="panel-body" role="tabpanel" id="memory-tab" aria-labelledby={`tab-${name}`}>
        <Tab conversation={conversation} onTurn={onTurn} />
      </div>
    </>
  );
}

/** Arrow keys move between tabs. */
function step(event: KeyboardEvent<HTMLDivElement>, at: number, go: (at: number) => void): void {
  const ends: { [key: string]: number } = { Home: 0, End: TABS.length - 1, ArrowLeft: at - 1, ArrowRight: at + 1 };
  const next = ends[event.key];
  if (next === undefined || event.altKey) return;
  event.preventDefault();
  const place = (next + TABS.length) % TABS.length;
  go(place);
  event.currentTarget.querySelectorAll<HTMLElement>("[role=tab]")[place]?.focus();
}
