"""The report of a replication, conversation by conversation."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

Action = Literal["copied", "updated", "merged", "deleted", "unchanged", "waiting", "refused"]
Direction = Literal["both", "push", "pull"]
DIRECTIONS: tuple[Direction, ...] = ("both", "push", "pull")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicatedConversation:
    """The result of `replicate` for one conversation.

    - `action`: one of `copied` (one store did not have it), `updated` (one store had an older state), `merged` (it had
      continued in both stores), `deleted` (it was deleted in one store), `waiting` (a turn is being written, or others
      kept writing; the next run copies it), `refused` or `unchanged`.
    - `to`: the store that was changed: `left`, `right` or `both`.
    - `turns`: the number of turns that this store got.
    - `branched`: how many of them are on a separate branch.
    - `reason`: the reason if `action` is `waiting` or `refused`.
    """

    id: str
    action: Action
    key: str | None = None
    to: Literal["left", "right", "both", ""] = ""
    turns: int = 0
    branched: int = 0
    reason: str = ""


@dataclass(slots=True)
class ReplicationReport:
    """The result of `replicate`.

    - `erased`: the number of persons whose erasure was copied from one store to the other.
    - `counts`: the number of conversations by `action`.
    - `conversations`: the conversations that were not identical before.
    """

    direction: Direction = "both"
    dry_run: bool = False
    erased: int = 0  # persons whose erasure one store took over from the other
    counts: dict[str, int] = field(default_factory=dict)  # conversations by action
    conversations: list[ReplicatedConversation] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        """Whether no conversation is waiting and none was refused."""
        return not self.counts.get("waiting") and not self.counts.get("refused")

    def add(self, one: ReplicatedConversation) -> None:
        self.counts = dict(Counter(self.counts) + Counter({one.action: 1}))
        if one.action != "unchanged":
            self.conversations.append(one)
