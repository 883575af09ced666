/** Your data: import from other products, and everything as one file. */

import { useRef, useState } from "react";
import { adviceOf, toProblem } from "../api/client";
import { importFile, listConversations } from "../api/verbs";
import { counted } from "../inspector/account";
import { messagesOf } from "../sse/parser";
import { refresh } from "../state/conversations";
import { allTurns, save } from "../history/export";
import { Icon } from "../shell/icons";
import { showError, showMessage } from "../state/toasts";

const PAGE = 200;

type Progress = { isRunning: boolean; text: string; share: number | null; isBad: boolean };
const IDLE: Progress = { isRunning: false, text: "", share: null, isBad: false };

function ImportSetting() {
  const [state, setState] = useState<Progress>(IDLE);
  const control = useRef<AbortController | null>(null);
  const chooser = useRef<HTMLInputElement>(null);
  const run = async (file: File) => {
    control.current = new AbortController();
    setState({ isRunning: true, text: `Uploading ${file.name}…`, share: null, isBad: false });
    try {
      const response = await importFile(file, control.current.signal);
      if (!response.ok) throw toProblem(await response.json(), response.status);
      for await (const message of messagesOf(response)) {
        const data = JSON.parse(message.data);
        if (message.event === "error") throw toProblem(data);
        if (message.event === "progress") setState({ isRunning: true, text: "Importing…", share: data.read / data.size, isBad: false });
        if (message.event === "done") setState({ ...IDLE, text: reportOf(data) });
      }
      void refresh();
    } catch (problem) {
      const wasStopped = control.current.signal.aborted;
      setState({ ...IDLE, isBad: !wasStopped, text: wasStopped ? "Stopped. Import the file again to continue." : `The import failed. ${adviceOf(problem)}` });
    }
  };
  return (
    <div className="setting">
      <span>Import from another product<small>The file that you get from “Export data” in ChatGPT, Claude, Open WebUI or LibreChat. Importing it again adds only what is new.</small></span>
      <span className="row-of-buttons">
        <button type="button" className="button" disabled={state.isRunning} onClick={() => chooser.current?.click()}><Icon name="download" size={16} /> Import</button>
        {state.isRunning && <button type="button" className="button" onClick={() => control.current?.abort()}>Stop</button>}
        <input
          ref={chooser} type="file" accept=".zip,.json" hidden aria-hidden="true" tabIndex={-1}
          onChange={(event) => {
            const file = event.target.files?.[0];
            event.target.value = "";
            if (file) void run(file);
          }}
        />
      </span>
      <p role="status" className={state.isBad ? "form-problem" : "hint"}>{state.text}</p>
      {state.isRunning && <progress aria-label="Import" max={1} value={state.share ?? undefined} />}
    </div>
  );
}

interface Report {
  conversations: number;
  imported: number;
  already: number;
  left_out: { [why: string]: number };
  unreadable: { [why: string]: number };
}

function reportOf({ conversations, imported, already, left_out: left, unreadable }: Report): string {
  const more = [already > 0 && `${already.toLocaleString("en")} were already here`, leftOut(left, "message"), leftOut(unreadable, "conversation")].filter(Boolean);
  return `Imported ${counted(imported, "message")} of ${counted(conversations, "conversation")}${more.length ? `; ${more.join("; ")}` : ""}.`;
}

/** How many were left out, and why. */
function leftOut(reasons: { [why: string]: number }, unit: string): string {
  const count = Object.values(reasons).reduce((sum, one) => sum + one, 0);
  return count === 0 ? "" : `${counted(count, unit)} left out (${Object.keys(reasons).map((why) => why.replace(/^\w+: /, "")).join(", ")})`;
}

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
      <ImportSetting />
      <div className="setting">
        <span>Export everything<small>Every conversation that you can see, one JSON object per line, to read or to process. Files are listed by name, and keys of models are left out. To move to another Palaver, use <code>palaver export</code>.</small></span>
        <span className="row-of-buttons">
          <button type="button" className="button" disabled={done.isRunning} onClick={() => void exportAll()}><Icon name="export" size={16} /> {done.isRunning ? `${done.count} exported…` : "Export"}</button>
          {done.isRunning && <button type="button" className="button" onClick={() => (isStopped.current = true)}>Stop</button>}
        </span>
      </div>
    </section>
  );
}
