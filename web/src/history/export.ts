/** Export a conversation as a file, with everything that the API returns about it. */

import { adviceOf } from "../api/client";
import type { Conversation, Turn } from "../api/types";
import { getConversation, listTurns, listTurnsAt } from "../api/verbs";
import { titleOf } from "../state/titles";
import { showError } from "../state/toasts";
import { fileName, markdownOf } from "./markdown-export";

const PAGE = 1_000;

/** With "html", one page that needs nothing else: for people who have no access here. */
export async function exportAs(conversation: Conversation, kind: "md" | "json" | "html"): Promise<void> {
  try {
    const info = await getConversation(conversation.id);
    const turns = await allTurns(conversation.id);
    save(`${fileName(titleOf(info))}.${kind}`, await textAs(kind, info, turns), TYPES[kind]);
  } catch (problem) {
    showError(`The export failed. ${adviceOf(problem)}`);
  }
}

const TYPES = { md: "text/markdown", json: "application/json", html: "text/html" };

async function textAs(kind: "md" | "json" | "html", info: Conversation, turns: Turn[]): Promise<string> {
  if (kind === "md") return markdownOf(info, turns);
  if (kind === "html") return (await import("./page-export")).pageOf(info, turns);
  return JSON.stringify({ conversation: info, turns }, null, 2);
}

export async function allTurns(id: string): Promise<Turn[]> {
  let page = await listTurns(id, PAGE);
  let turns = page.items;
  while (page.older) {
    page = await listTurnsAt(page.older);
    turns = [...page.items, ...turns];
  }
  return turns;
}

export function save(name: string, text: string | Blob, type = "application/octet-stream"): void {
  const url = URL.createObjectURL(text instanceof Blob ? text : new Blob([text], { type }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
