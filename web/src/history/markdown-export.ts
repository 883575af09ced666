/** A conversation as Markdown, and a name for the file. Pure. */

import type { Conversation, Turn } from "../api/types";
import { momentOf } from "../state/dates";
import { textOf } from "../state/text";
import { titleOf } from "../state/titles";

export function markdownOf(info: Conversation, turns: Turn[]): string {
  const parts = turns.filter((turn) => turn.role !== "tool").map((turn) => {
    const calls = turn.tool_calls.map((call) => `> used \`${call.name}\` ${JSON.stringify(call.arguments)}`);
    const files = turn.attachments.map((file) => `> file: ${file.filename}`);
    const body = [textOf(turn.content), ...calls, ...files].filter(Boolean).join("\n\n");
    return `### ${turn.actor}, ${momentOf(turn.created)}\n\n${body}`;
  });
  return `# ${titleOf(info)}\n\n${parts.join("\n\n")}\n`;
}

export const fileName = (title: string) => title.replace(/[^\p{L}\p{N} _-]+/gu, "").trim().slice(0, 60) || "conversation";
