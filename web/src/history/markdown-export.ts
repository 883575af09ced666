/** A conversation as Markdown, and a name for the file. Pure. */

import type { Conversation, Turn } from "../api/types";
import { momentOf } from "../state/dates";
import { textOf } from "../state/text";
import { titleOf } from "../state/titles";

const LONGEST_NAME = 60; // characters

export function markdownOf(info: Conversation, turns: Turn[]): string {
  const parts = turns.filter((turn) => turn.role !== "tool").map((turn) => {
    const calls = turn.tool_calls.map((call) => `> used \`${call.name}\` ${JSON.stringify(call.arguments)}`);
    const files = turn.attachments.map((file) => `> file: ${file.filename}`);
    const body = [textOf(turn.content), ...calls, ...files].filter(Boolean).join("\n\n");
    return `### ${turn.actor}, ${momentOf(turn.created)}\n\n${body}`;
  });
  return `# ${titleOf(info)}\n\n${parts.join("\n\n")}\n`;
}

/** Letters, digits, spaces, _ and - of the title, as far as whole words fit. */
export function fileName(title: string): string {
  const name = title.replace(/[^\p{L}\p{N} _-]+/gu, "").trim();
  return (name.length > LONGEST_NAME ? name.slice(0, LONGEST_NAME + 1).replace(/ +[^ ]*$/, "").slice(0, LONGEST_NAME) : name) || "conversation";
}
