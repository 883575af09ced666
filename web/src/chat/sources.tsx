/** The sources of an answer: earlier turns, or web pages. */

import { useState } from "react";
import type { Fields } from "../api/types";
import { onLinkClick } from "../history/row";
import { pathTo } from "../state/paths";
import { current } from "../state/current-conversation";
import { textOf } from "../state/text";
import { safeUrl } from "./links";

const SHOWN = 3; // sources shown before "more"

export function Sources({ sources, conversation }: { sources: Fields[]; conversation: string }) {
  const [isWhole, setWhole] = useState(false);
  if (!sources.length) return null;
  const shown = isWhole ? sources : sources.slice(0, SHOWN);
  const more = sources.length - shown.length;
  return (
    <ol className="sources" aria-label="Sources">
      {shown.map((source, at) => <li key={at}><Source source={source} number={at + 1} conversation={conversation} /></li>)}
      {more > 0 && <li><button type="button" onClick={() => setWhole(true)}>{more} more</button></li>}
    </ol>
  );
}

function Source({ source, number, conversation }: { source: Fields; number: number; conversation: string }) {
  const url = typeof source.url === "string" ? safeUrl(source.url) : "";
  if (url) {
    const title = typeof source.title === "string" && source.title ? source.title : new URL(url).host;
    return <a href={url} target="_blank" rel="noopener noreferrer nofollow"><b>{number}</b> {title}</a>;
  }
  if (typeof source.turn === "string") {
    const place = typeof source.conversation === "string" ? source.conversation : conversation;
    const turn = source.turn;
    return (
      <a href={pathTo(place, turn)} onClick={(event) => onLinkClick(event, place, turn)}>
        <b>{number}</b> <bdi>{excerptOf(turn)}</bdi>
      </a>
    );
  }
  return <span><b>{number}</b> {typeof source.title === "string" ? source.title : "source"}</span>;
}

function excerptOf(id: string): string {
  const turn = current.get().thread.turns.find((one) => one.id === id);
  const text = turn ? textOf(turn.content).replace(/\s+/g, " ").trim() : "";
  if (!text) return "earlier message";
  return text.length > 42 ? `${text.slice(0, 42)}…` : text;
}
