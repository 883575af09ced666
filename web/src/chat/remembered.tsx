/** Chips under an answer: what Palaver remembered about the person for it, and from which conversation. */

import type { PersonItem } from "../api/types";
import { statementOf } from "../person/statement";
import { listPersonItems, listRequests } from "../api/verbs";
import { onLinkClick } from "../history/row";
import { Icon } from "../shell/icons";
import { pathTo } from "../state/paths";
import { useResource } from "../state/resource";
import { session } from "../state/session";
import { useStore } from "../state/store";

const SHOWN = 3;

/** For the last answer only: each needs a look at its request. */
export function Remembered({ turn, conversation }: { turn: string; conversation: string }) {
  const isOn = useStore(session, (one) => one.phase === "ready" && (one.settings.person ?? "off") !== "off");
  return isOn ? <Chips turn={turn} conversation={conversation} /> : null;
}

function Chips({ turn, conversation }: { turn: string; conversation: string }) {
  const { data } = useResource(() => usedItems(conversation, turn), [conversation, turn]);
  if (!data?.length) return null;
  return (
    <ul className="sources remembered" aria-label="Remembered">
      {data.slice(0, SHOWN).map(({ item, source }) => (
        <li key={item.id}>
          <a href={pathTo(source.conversation, source.turn)} title={`${statementOf(item)} · remembered from “${source.title ?? "an earlier chat"}”`} onClick={(event) => onLinkClick(event, source.conversation, source.turn)}>
            <Icon name="layers" size={14} /> <bdi>{statementOf(item)} · remembered from “{shortened(source.title ?? "an earlier chat")}”</bdi>
          </a>
        </li>
      ))}
    </ul>
  );
}

const shortened = (title: string) => (title.length > 28 ? `${title.slice(0, 27)}…` : title);

type Used = { item: PersonItem; source: PersonItem["sources"][number] };

/** The items of the person whose sources are named in the prompt, other than those of this conversation. */
async function usedItems(conversation: string, turn: string): Promise<Used[]> {
  const calls = await listRequests(conversation, turn);
  const turns = new Set(calls.flatMap((call) => call.explanation?.blocks ?? []).filter((block) => block.kind === "person").flatMap((block) => block.turn_ids));
  if (!turns.size) return [];
  const known = await listPersonItems("approved");
  return known.flatMap((item) => {
    const source = item.sources.find((one) => turns.has(one.turn) && one.conversation !== conversation);
    return source ? [{ item, source }] : [];
  });
}
