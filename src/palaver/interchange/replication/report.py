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
    """The result for one conversation.

    - `action`: `copied` (one store did not have it), `updated` (one was behind), `merged` (both had continued),
      `deleted` (it was deleted in one store), `waiting` (an answer is being written, or others kept writing: the next
      run copies it) or `refused`.
    - `to`: the store that was changed: `left`, `right` or `both`.
    - `turns`: how many turns that store got; `branched`: how many of them are on a branch of their own.
    - `reason`: why it waits or was refused.
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
    """The result of `replicate`. `conversations` has those that were not the same already."""

    direction: Direction = "both"
    dry_run: bool = False
    erased: int = 0  # persons whose erasure one store took over from the other
    counts: dict[str, int] = field(default_factory=dict)  # conversations by action
    conversations: list[ReplicatedConversation] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        """Whether nothing waits and nothing was refused."""
        return not self.counts.get("waiting") and not self.counts.get("refused")

    def add(self, one: ReplicatedConversation) -> None:
        self.counts = dict(Counter(self.counts) + Counter({one.action: 1}))
        if one.action != "unchanged":
            self.conversations.append(one)
