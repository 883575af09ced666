/** Your data: everything as one file. */

import { useRef, useState } from "react";
import { adviceOf } from "../api/client";
import { listConversations } from "../api/verbs";
import { allTurns, save } from "../history/export";
import { Icon } from "../shell/icons";
import { showError, showMessage } from "../state/toasts";

const PAGE = 200;

export function Data() {
  const [done, setDone] = useState<{ count: number; isRunning: boolean }>({ count: 0, isRunning: false });
  const isStopped = useRef(false);
  const exportAll = async () => {
    isStopped.current = false;
    setDone({ count: 0, isRunning: true });
    const lines: string[] = [];
    try {
      let page = await listConversations(PAGE);
      for (;;) {
        for (const info of page.items) {
          if (isStopped.current) return;
          lines.push(JSON.stringify({ conversation: info, turns: await allTurns(info.id) }));
          setDone({ count: lines.length, isRunning: true });
        }
        if (!page.next) break;
        page = await listConversations(PAGE, page.next);
      }
      save(`palaver-${new Date().toISOString().slice(0, 10)}.jsonl`, `${lines.join("\n")}\n`, "application/jsonl");
      showMessage(lines.length === 1 ? "Exported 1 conversation." : `Exported ${lines.length} conversations.`);
    } catch (problem) {
      showError(`The export failed. ${adviceOf(problem)}`);
    } finally {
      setDone((before) => ({ ...before, isRunning: false }));
    }
  };
  return (
    <section id="data" aria-labelledby="data-title">
      <h2 id="data-title">Your data</h2>
      <div className="setting">
        <span>Export everything<small>Every conversation that you can see, one JSON object per line. Files are listed by name. Keys of models are never part of it.</small></span>
        <span className="row-of-buttons">
          <button type="button" className="button" disabled={done.isRunning} onClick={() => void exportAll()}><Icon name="export" size={16} /> {done.isRunning ? `${done.count} exported…` : "Export"}</button>
          {done.isRunning && <button type="button" className="button" onClick={() => (isStopped.current = true)}>Stop</button>}
        </span>
      </div>
    </section>
  );
}
