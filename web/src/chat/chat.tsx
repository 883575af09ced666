/** The chat: header, thread or welcome text, and composer. */

import { useRef, useState } from "react";
import type { Conversation } from "../api/types";
import { exportAs } from "../history/export";
import { Icon, IconButton } from "../shell/icons";
import { Menu } from "../shell/menu";
import { focusMessage, newChat } from "../shell/shortcuts";
import { ErrorBanner } from "../shell/error-banner";
import { remove, rename } from "../state/conversations";
import { panel, showMemory, sidebar } from "../state/panel";
import { useStore } from "../state/store";
import { isBusy, reopen, current } from "../state/current-conversation";
import { titleOf } from "../state/titles";
import { Composer, type ComposerHandle } from "./composer";
import { useDrop } from "./drop";
import { OfflineNotice } from "./offline";
import { Thread } from "./thread";
import { useUploads } from "./uploads";

export function Chat() {
  const phase = useStore(current, (one) => one.phase);
  const problem = useStore(current, (one) => one.problem);
  const isEmpty = useStore(current, (one) => !one.thread.turns.length && !one.outgoing);
  const [model, setModel] = useState<string>();
  const composer = useRef<ComposerHandle>(null);
  const files = useUploads();
  const drop = useDrop(files.add);
  if (phase === "gone")
    return (
      <main className="chat"><ChatHeader />
        <ErrorBanner isWhole={false} icon="trash" title="Not here any more" text="This conversation was deleted, or is not yours to see." action="New chat" onAction={newChat} />
      </main>
    );
  if (phase === "failed")
    return (
      <main className="chat"><ChatHeader />
        <ErrorBanner isWhole={false} title="It could not be opened" text={problem} action="Try again" onAction={reopen} />
      </main>
    );
  return (
    <main className={`chat ${isEmpty && phase !== "loading" ? "is-empty" : ""}`} {...drop.handlers}>
      <ChatHeader />
      {phase === "loading" ? (
        <div className="thread" role="status" aria-label="Loading the conversation"><Skeleton /></div>
      ) : isEmpty ? (
        <Welcome onPick={(text) => composer.current?.put(text)} />
      ) : (
        <Thread
          model={model}
          onTakeBack={({ message, attachments }) => {
            composer.current?.put(message);
            files.restore(attachments);
          }}
        />
      )}
      <AnswerAnnouncer />
      <div className="foot">
        <OfflineNotice />
        <Composer handle={composer} files={files} model={model} onModel={setModel} />
      </div>
      {drop.isOver && <div className="drop-here" aria-hidden="true"><Icon name="clip" size={28} /> Drop files to attach them</div>}
    </main>
  );
}

/** Announce to screen readers that an answer is being written, and when it is complete. */
function AnswerAnnouncer() {
  const busy = useStore(current, isBusy);
  const [hasBegun, setBegun] = useState(false);
  if (busy && !hasBegun) setBegun(true);
  return <p className="sr-only" role="status">{busy ? "Answering" : hasBegun ? "The answer is there" : ""}</p>;
}

function ChatHeader() {
  const info = useStore(current, (one) => one.info);
  const isListShown = useStore(sidebar, (one) => one);
  const isMemoryShown = useStore(panel, (one) => one?.kind === "memory");
  return (
    <header className="chat-head">
      {!isListShown && (
        <>
          <IconButton icon="menu" label="Show the list" onClick={() => sidebar.set(true)} />
          <IconButton icon="plus" label="New chat" onClick={newChat} />
        </>
      )}
      {info ? <Title key={info.id} /> : <span className="chat-title" />}
      {info && (
        <>
          <button type="button" className="button head-button" aria-pressed={isMemoryShown} onClick={showMemory}><Icon name="layers" size={16} /> Memory</button>
          <Menu
            label="More about this conversation"
            items={[
              { label: "Export as Markdown", icon: "export", run: () => void exportAs(info, "md") },
              { label: "Export as JSON", icon: "export", run: () => void exportAs(info, "json") },
              { label: "Delete", icon: "trash", run: () => remove(info) },
            ]}
          />
        </>
      )}
    </header>
  );
}

function Title() {
  const info = useStore(current, (one) => one.info)!;
  const [draft, setDraft] = useState<string | null>(null);
  if (draft === null)
    return <h1 className="chat-title"><button type="button" title="Rename" onClick={() => setDraft(titleOf(info))}>{titleOf(info)}</button></h1>;
  const save = () => {
    setDraft(null);
    if (draft.trim() && draft !== titleOf(info)) {
      current.patch({ info: { ...info, title: draft.trim() } });
      void rename(info.id, draft).then((isDone) => isDone || restoreTitle(info));
    }
  };
  return (
    <input
      className="chat-title" aria-label="Title" autoFocus value={draft} maxLength={200} onBlur={save}
      onFocus={(event) => event.target.select()} onChange={(event) => setDraft(event.target.value)}
      onKeyDown={(event) => {
        if (event.nativeEvent.isComposing) return;
        if (event.key === "Enter") save();
        if (event.key === "Escape") {
          event.preventDefault();
          setDraft(null);
          focusMessage();
        }
      }}
    />
  );
}

function restoreTitle(info: Conversation): void {
  const now = current.get().info;
  if (now?.id === info.id) current.patch({ info: { ...now, title: info.title } });
}

const IDEAS = [
  "I'm allergic to peanuts, and I cook for two.",
  "We decided to ship the beta on 3 May.",
  "From now on, answer in short sentences.",
];

function Welcome({ onPick }: { onPick: (text: string) => void }) {
  return (
    <div className="welcome">
      <img src="/favicon.svg" alt="" width="52" height="52" />
      <h1>What's on your mind?</h1>
      <p>Every word is kept, found again when it matters, and shown to the model within its budget. Press <em>What the model saw</em> under an answer to look inside.</p>
      <ul aria-label="Ideas">
        {IDEAS.map((idea) => <li key={idea}><button type="button" className="button" onClick={() => onPick(idea)}>{idea}</button></li>)}
      </ul>
    </div>
  );
}

function Skeleton() {
  return <div className="thread-content">{[40, 90, 75, 60].map((width) => <i key={width} className="ghost" style={{ width: `${width}%` }} />)}</div>;
}
