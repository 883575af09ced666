/** Unsent text per conversation. It survives a reload. */

const KEY = "palaver.draft.";
const keyOf = (id: string | null) => KEY + (id ?? "new");

export const readDraft = (id: string | null) => sessionStorage.getItem(keyOf(id)) ?? "";

export function keepDraft(id: string | null, text: string): void {
  if (text) sessionStorage.setItem(keyOf(id), text);
  else sessionStorage.removeItem(keyOf(id));
}

export function dropDrafts(): void {
  for (const key of Object.keys(sessionStorage)) if (key.startsWith(KEY)) sessionStorage.removeItem(key);
}

/** Move the draft of a new chat to the conversation it has become. */
export function moveDraft(id: string): void {
  keepDraft(id, readDraft(null));
  keepDraft(null, "");
}
