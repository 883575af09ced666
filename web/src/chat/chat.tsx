/** The chat: header, thread or welcome text, and composer. */

import { useRef, useState } from "react";
import type { Conversation } from "../api/types";
import { conversationMenu } from "../history/menu";
import { Icon, IconButton } from "../shell/icons";
import { Menu } from "../shell/menu";
import { focusMessage, newChat } from "../shell/shortcuts";
import { ErrorBanner } from "../shell/error-banner";
import { Toasts } from "../shell/toasts";
import { rename } from "../state/conversations";
import { panel, showMemory, sidebar } from "../state/panel";
import { withPlaceKept } from "../state/placement";
import { useStore } from "../state/store";
import { isBusy, reopen, current } from "../state/current-conversation";
import { titleOf } from "../state/titles";
import { Composer, type ComposerHandle } from "./composer";
import { useDrop } from "./drop";
import { OfflineNotice } from "./offline";
import { Thread } from "./thread";
import { useUploads } from "./uploads";
import { Welcome } from "./welcome";

export function Chat() {
  const phase = useStore(current, (one) => one.phase);
  const problem = useStore(current, (one) => one.problem);
  const isEmpty = useStore(current, (one) => !one.thread.turns.length && !one.outgoing);
  const composer = useRef<ComposerHandle>(null);
  const files = useUploads();
  const isDragging = useDrop(files.add);
  if (phase === "gone")
    return (
      <main className="chat"><ChatHeader />
        <ErrorBanner isWhole={false} icon="trash" title="Conversation not found" text="It was deleted, or you don't have access." action="New chat" onAction={newChat} />
      </main>
    );
  if (phase === "failed")
    return (
      <main className="chat"><ChatHeader />
        <ErrorBanner isWhole={false} title="Couldn't open this conversation" text={problem} action="Try again" onAction={reopen} />
      </main>
    );
  return (
    <main className={`chat ${isEmpty && phase !== "loading" ? "is-empty" : ""}`}>
      <ChatHeader />
      {phase === "loading" ? (
        <div className="thread" role="status" aria-label="Loading the conversation"><Skeleton /></div>
      ) : isEmpty ? (
        <Welcome onPick={(text) => composer.current?.put(text)} />
      ) : (
        <Thread
          onTakeBack={({ message, attachments }) => {
            composer.current?.put(message);
            files.restore(attachments);
          }}
        />
      )}
      <AnswerAnnouncer />
      <div className="foot">
        <Toasts />
        <OfflineNotice />
        <Composer handle={composer} files={files} />
      </div>
      {isDragging && <div className="drop-here" aria-hidden="true"><Icon name="clip" size={28} /> Drop files to attach them</div>}
    </main>
  );
}

/** Announce to screen readers that an answer is being written, and when it is complete. */
function AnswerAnnouncer() {
  const busy = useStore(current, isBusy);
  const [hasBegun, setBegun] = useState(false);
  if (busy && !hasBegun) setBegun(true);
  return <p className="sr-only" role="status">{busy ? "Writing an answer" : hasBegun ? "Answer complete" : ""}</p>;
}

/** Shown while the sidebar is closed. */
export function SidebarButtons() {
  const isListShown = useStore(sidebar, (one) => one);
  if (isListShown) return null;
  return (
    <>
      <IconButton icon="menu" label="Open sidebar" onClick={() => sidebar.set(true)} />
      <IconButton icon="plus" label="New chat" onClick={newChat} />
    </>
  );
}

function ChatHeader() {
  const info = useStore(current, (one) => one.info);
  const isMemoryShown = useStore(panel, (one) => one?.kind === "memory");
  const [isRenaming, setRenaming] = useState(false);
  return (
    <header className="chat-head">
      <SidebarButtons />
      {info ? <Title key={info.id} isEditing={isRenaming} onEditing={setRenaming} /> : <span className="chat-title" />}
      {info && (
        <>
          <button type="button" className="button head-button" aria-pressed={isMemoryShown} aria-label="Memory" title="Memory of this conversation (Alt M)" onClick={showMemory}><Icon name="layers" size={16} /> <span>Memory</span></button>
          <Menu label="Options for this conversation" items={conversationMenu(info, () => setRenaming(true))} />
        </>
      )}
    </header>
  );
}

function Title({ isEditing, onEditing }: { isEditing: boolean; onEditing: (isOn: boolean) => void }) {
  const info = useStore(current, (one) => one.info)!;
  if (!isEditing)
    return <h1 className="chat-title"><button type="button" dir="auto" title="Rename" onClick={() => onEditing(true)}>{titleOf(info)}</button></h1>;
  return <TitleField info={info} onDone={() => onEditing(false)} />;
}

function TitleField({ info, onDone }: { info: Conversation; onDone: () => void }) {
  const [draft, setDraft] = useState(titleOf(info));
  const save = () => {
    onDone();
    if (!draft.trim() || draft === titleOf(info)) return;
    current.patch({ info: { ...info, title: draft.trim(), metadata: withPlaceKept(info) } });
    void rename(info.id, draft).then((isDone) => isDone || restoreTitle(info));
  };
  return (
    <input
      className="chat-title" type="text" aria-label="Title" autoFocus value={draft} maxLength={200} dir="auto" onBlur={save}
      onFocus={(event) => event.target.select()} onChange={(event) => setDraft(event.target.value)}
      onKeyDown={(event) => {
        if (event.nativeEvent.isComposing) return;
        if (event.key === "Enter") save();
        if (event.key === "Escape") {
          event.preventDefault();
          onDone();
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

function Skeleton() {
  return <div className="thread-content">{[40, 90, 75, 60].map((width) => <i key={width} className="ghost" style={{ width: `${width}%` }} />)}</div>;
}
