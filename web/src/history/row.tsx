/** One conversation in the list: open it, rename it, and a menu for everything else. */

import { memo, type MouseEvent, useState } from "react";
import type { Conversation } from "../api/types";
import { Menu } from "../shell/menu";
import { focusMessage } from "../shell/shortcuts";
import { remove, rename } from "../state/conversations";
import { leaveList } from "../state/panel";
import { pathTo } from "../state/paths";
import { navigate } from "../state/route";
import { titleOf } from "../state/titles";
import { conversationMenu } from "./menu";

export const ConversationRow = memo(function ConversationRow({
  conversation, isHere,
}: { conversation: Conversation; isHere: boolean }) {
  const [editing, setEditing] = useState(false);
  const title = titleOf(conversation);
  if (editing) return <Rename conversation={conversation} onDone={() => setEditing(false)} />;
  return (
    <div className={`row ${isHere ? "is-here" : ""}`}>
      <a
        className="row-link" href={pathTo(conversation.id)} aria-current={isHere ? "page" : undefined} title={title} dir="auto"
        onClick={(event) => onLinkClick(event, conversation.id)} onDoubleClick={() => requestAnimationFrame(() => setEditing(true))} // after the click has moved the focus
        onKeyDown={(event) => {
          if (event.key === "F2") setEditing(true);
          if (event.key === "Delete") remove(conversation);
        }}
      >
        {title}
      </a>
      <span className="row-actions">
        <Menu label={`Options for ${title}`} items={conversationMenu(conversation, () => setEditing(true))} />
      </span>
    </div>
  );
});

/** A plain click navigates within the page; with a modifier key, the browser opens a tab. */
export function onLinkClick(event: MouseEvent, id: string, turn?: string): void {
  if (event.metaKey || event.ctrlKey || event.shiftKey || event.button !== 0) return;
  event.preventDefault();
  navigate(id, turn ? { turn } : {});
  leaveList();
  if (matchMedia("(hover: hover)").matches) focusMessage(); // on a phone, that would open the keyboard
}

function Rename({ conversation, onDone }: { conversation: Conversation; onDone: () => void }) {
  const [title, setTitle] = useState(titleOf(conversation));
  const save = () => {
    onDone();
    void rename(conversation.id, title);
  };
  return (
    <input
      className="row-rename" type="text" aria-label="Title" value={title} dir="auto" autoFocus maxLength={200} onBlur={save}
      onFocus={(event) => event.target.select()} onChange={(event) => setTitle(event.target.value)}
      onKeyDown={(event) => {
        if (event.nativeEvent.isComposing) return;
        if (event.key === "Enter") save();
        if (event.key === "Escape") {
          event.preventDefault();
          onDone();
        }
      }}
    />
  );
}
