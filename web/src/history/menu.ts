/** The menu of a conversation: the same in its row and in its header. */

import type { Conversation } from "../api/types";
import type { MenuItem } from "../shell/menu";
import { archive, pin, remove } from "../state/conversations";
import { isArchived, isPinned } from "../state/placement";
import { exportAs } from "./export";

export function conversationMenu(conversation: Conversation, onRename: () => void): MenuItem[] {
  return [
    { label: isPinned(conversation) ? "Unpin" : "Pin", icon: "pin", run: () => void pin(conversation) },
    { label: "Rename", icon: "pencil", run: onRename },
    { label: isArchived(conversation) ? "Unarchive" : "Archive", icon: "archive", run: () => void archive(conversation) },
    { label: "Share as a page", icon: "share", run: () => void exportAs(conversation, "html") },
    { label: "Export as Markdown", icon: "export", run: () => void exportAs(conversation, "md") },
    { label: "Export as JSON", icon: "export", run: () => void exportAs(conversation, "json") },
    { label: "Delete", icon: "trash", run: () => remove(conversation), isDanger: true },
  ];
}
