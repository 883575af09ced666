/** Thumbs up or down for an answer, kept in the metadata of the conversation. */

import { IconButton } from "../shell/icons";
import { changeMetadata } from "../state/conversations";
import { useStore } from "../state/store";
import { current } from "../state/current-conversation";
import type { Fields } from "../api/types";

const MOST = 200; // ratings per conversation; older ones are dropped

type Rating = "up" | "down";

export function Thumbs({ turn }: { turn: string }) {
  const rating = useStore(current, (one) => ratingsOf(one.info?.metadata)[turn]);
  return (
    <>
      <IconButton icon="up" size={16} label="Good answer" aria-pressed={rating === "up"} onClick={() => void rate(turn, "up")} />
      <IconButton icon="downvote" size={16} label="Bad answer" aria-pressed={rating === "down"} onClick={() => void rate(turn, "down")} />
    </>
  );
}

const ratingsOf = (metadata?: Fields) => (metadata?.ratings ?? {}) as { [turn: string]: Rating };

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
