/** Search of the palette: chats by title, and messages. */

import type { Conversation, Found } from "../api/types";
import { searchConversations } from "../api/verbs";
import { isArchived, isEmpty } from "../state/placement";
import { markSpans, textOf } from "../state/text";
import { titleOf } from "../state/titles";
import { beginningsOf, isNear, rank, wordsOf } from "./spelling";

export interface FoundMessage {
  conversation: Conversation;
  turn: string;
  parts: { text: string; isMatch: boolean }[];
}

const CHATS = 8;
const MESSAGES = 20;
const PER_CHAT = 3;

/** Chats whose title contains the words; exact matches come first. Without words, the latest chats. */
export function chatsWith(words: string, items: Conversation[]): Conversation[] {
  const typed = wordsOf(words);
  const known = items.filter((one) => !isEmpty(one) && (typed.length > 0 || !isArchived(one)));
  if (!typed.length) return known.slice(0, CHATS);
  const ranked = known.map((one) => ({ one, rank: rank(typed, titleOf(one)) })).filter((entry) => entry.rank > 0);
  return ranked.sort((a, b) => b.rank - a.rank).slice(0, CHATS).map((entry) => entry.one);
}

export async function messagesWith(words: string, signal: AbortSignal): Promise<FoundMessage[]> {
  const found = messagesOf(await searchConversations(words, signal));
  return found.length ? found : withMistake(words, signal);
}

function messagesOf(found: Found[]): FoundMessage[] {
  return found
    .flatMap(({ conversation, matches }) => matches.slice(0, PER_CHAT).map(({ turn, spans }) => ({
      conversation, turn: turn.id, parts: markSpans(plain(textOf(turn.content)), spans),
    })))
    .slice(0, MESSAGES);
}

/** Headings and list marks are not part of what was said. Replaced by spaces, so that offsets stay. */
const plain = (text: string) => text.replace(/^[ \t]*(#{1,6}|[-*+]|>)(?=\s)/gm, (mark) => " ".repeat(mark.length)).replace(/[*_`]{1,3}/g, (mark) => " ".repeat(mark.length));

async function withMistake(words: string, signal: AbortSignal): Promise<FoundMessage[]> {
  const typed = wordsOf(words);
  for (const beginnings of beginningsOf(typed)) {
    const found = await nearMessages(typed, beginnings, signal);
    if (found.length) return found;
  }
  return [];
}

/** Search by the beginnings of words, and keep the messages that have each typed word with one mistake at most. */
async function nearMessages(typed: string[], beginnings: string[], signal: AbortSignal): Promise<FoundMessage[]> {
  const tries = await Promise.all(beginnings.map((one) => searchConversations(one, signal, 100)));
  const kept = new Map<string, FoundMessage>();
  for (const { conversation, matches } of tries.flat())
    for (const { turn } of matches) {
      const text = plain(textOf(turn.content));
      if (rank(typed, text) > 0) kept.set(turn.id, { conversation, turn: turn.id, parts: markSpans(text, nearSpans(typed, text)) });
    }
  return [...kept.values()].slice(0, MESSAGES);
}

/** The places of the words, in code points, as the server reports them. */
function nearSpans(typed: string[], text: string): [number, number][] {
  const spans: [number, number][] = [];
  for (const match of text.matchAll(/[\p{L}\p{N}]+/gu)) {
    if (!typed.some((one) => wordsOf(match[0]).some((word) => isNear(one, word)))) continue;
    const from = [...text.slice(0, match.index)].length;
    spans.push([from, from + [...match[0]].length]);
  }
  return spans;
}
