import type { PersonItem } from "../api/types";

/** The text of an item, without the person's own name. Pure. */
export function statementOf({ text, subject }: Pick<PersonItem, "text" | "subject">): string {
  const rest = subject && text.startsWith(`${subject} `) ? text.slice(subject.length + 1) : text;
  return rest ? rest[0]!.toUpperCase() + rest.slice(1) : text;
}
