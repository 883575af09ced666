import { IconButton } from "../shell/icons";
import { switchTo } from "../state/current-conversation";
import type { Versions } from "../state/views";

/** ‹ 2 / 3 ›: the versions of a question, or of its answer. */
export function VersionPicker({ versions, what }: { versions: Versions; what: string }) {
  const { ids, at } = versions;
  return (
    <span className="versions is-kept" role="group" aria-label={`Versions of this ${what}`}>
      <IconButton
        icon="left" size={15} label={`Previous version of this ${what}`} disabled={at <= 0}
        onClick={() => void switchTo(ids[at - 1]!)}
      />
      <span>{at + 1} / {ids.length}</span>
      <IconButton
        icon="right" size={15} label={`Next version of this ${what}`} disabled={at >= ids.length - 1}
        onClick={() => void switchTo(ids[at + 1]!)}
      />
    </span>
  );
}
