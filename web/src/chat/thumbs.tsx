/** Thumbs up or down for an answer, kept in the metadata of the conversation. */

import { createContext, useContext } from "react";
import { IconButton } from "../shell/icons";
import { changeMetadata } from "../state/conversations";
import { current } from "../state/current-conversation";
import type { Fields } from "../api/types";

const MOST = 200; // ratings per conversation; older ones are dropped

type Rating = "up" | "down";

interface Ratings {
  [turn: string]: Rating;
}

const NONE: Ratings = {};
/** The ratings of the open conversation. If each answer asked the store for its own, each piece of text would ask all of them. */
export const RatingsContext = createContext(NONE);

export function Thumbs({ turn }: { turn: string }) {
  const rating = useContext(RatingsContext)[turn];
  return (
    <>
      <IconButton icon="up" size={16} label="Good answer" aria-pressed={rating === "up"} onClick={() => void rate(turn, "up")} />
      <IconButton icon="downvote" size={16} label="Bad answer" aria-pressed={rating === "down"} onClick={() => void rate(turn, "down")} />
    </>
  );
}

export const ratingsOf = (metadata?: Fields) => (metadata?.ratings ?? NONE) as Ratings;

/** Set the rating; the same thumb again takes it back. */
async function rate(turn: string, rating: Rating): Promise<void> {
  const { info } = current.get();
  if (!info) return;
  const { [turn]: before, ...others } = ratingsOf(info.metadata);
  const ratings = Object.fromEntries(Object.entries(before === rating ? others : { ...others, [turn]: rating }).slice(-MOST));
  const metadata = { ...info.metadata, ratings };
  current.patch({ info: { ...info, metadata } });
  if (!(await changeMetadata(info, { ratings }))) current.patch({ info });
}
