/** Search results: titles and passages, with the matched words highlighted. */

import { useEffect, useState } from "react";
import { adviceOf } from "../api/client";
import type { Found, Match } from "../api/types";
import { searchConversations } from "../api/verbs";
import { pathTo } from "../state/paths";
import { markSpans, textOf, titleParts } from "../state/text";
import { titleOf } from "../state/titles";
import { adjacent } from "./focus";
import { onLinkClick } from "./row";

const PAUSE = 150; // milliseconds without a keystroke before the search runs
const SHOWN = 3; // passages shown per conversation

export function Results({ words }: { words: string }) {
  const { found, problem, isBusy } = useSearch(words);
  if (problem) return <div className="list list-note" role="alert"><p>{problem}</p></div>;
  if (!found) return <div className="list list-note" role="status"><p>Searching…</p></div>;
  return (
    <div
      className="list results" aria-busy={isBusy}
      onKeyDown={(event) => {
        const by = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
        if (by && adjacent(event.currentTarget, "a", by)) event.preventDefault();
      }}
    >
      <p className="list-count" role="status">{countOf(found.length)}</p>
      {found.map((one) => <Result key={one.conversation.id} found={one} words={words} />)}
    </div>
  );
}

const countOf = (count: number) =>
  count === 0 ? "Nothing found. Fewer or other words may help." : count === 1 ? "1 conversation" : `${count} conversations`;

function useSearch(words: string) {
  const [state, setState] = useState<{ found: Found[] | null; problem: string; isBusy: boolean }>({
    found: null, problem: "", isBusy: true,
  });
  useEffect(() => {
    const control = new AbortController();
    setState((before) => ({ ...before, isBusy: true }));
    const timer = setTimeout(async () => {
      try {
        setState({ found: await searchConversations(words, control.signal), problem: "", isBusy: false });
      } catch (problem) {
        if (!control.signal.aborted) setState({ found: null, problem: adviceOf(problem), isBusy: false });
      }
    }, PAUSE);
    return () => (clearTimeout(timer), control.abort());
  }, [words]);
  return state;
}

function Result({ found, words }: { found: Found; words: string }) {
  const { conversation, matches } = found;
  return (
    <section className="result">
      <a className="result-title" href={pathTo(conversation.id)} onClick={(event) => onLinkClick(event, conversation.id)}>
        {found.in_title ? <HighlightedText parts={titleParts(titleOf(conversation), words)} /> : titleOf(conversation)}
      </a>
      {matches.slice(0, SHOWN).map((match) => <Passage key={match.turn.id} match={match} conversation={conversation.id} />)}
    </section>
  );
}

function Passage({ match, conversation }: { match: Match; conversation: string }) {
  const { turn, spans } = match;
  return (
    <a
      className="passage" href={pathTo(conversation, turn.id)} onClick={(event) => onLinkClick(event, conversation, turn.id)}
    >
      <HighlightedText parts={markSpans(textOf(turn.content), spans)} />
    </a>
  );
}

function HighlightedText({ parts }: { parts: { text: string; isMatch: boolean }[] }) {
  return <>{parts.map((part, at) => (part.isMatch ? <mark key={at}>{part.text}</mark> : part.text))}</>;
}
