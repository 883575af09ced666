"""The tree of turns: positions, versions and branches.

Every turn has a *slot*: its own id, or, when it replaced another turn in place, the id of that turn's slot. `parent` is
the slot of the turn before it. So the versions of one message share what follows, and "edit and regenerate" starts a
sibling slot with a thread of its own. One path through the tree is active; that path is what `history()` shows.

A turn that leaves the path remembers in `superseded_by` what displaced it. Of several siblings that are all off the
path, the one that was on it last is therefore the one which no sibling displaced; switching back restores exactly
that path.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class Node:
    """The place of a turn in the tree, without its content."""

    id: str
    seq: int
    position: int
    parent: str | None
    slot: str
    active: bool
    superseded_by: str | None
    status: str

    @property
    def usable(self) -> bool:
        return self.status in ("complete", "pending")


@dataclass(slots=True)
class BranchSwitch:
    """The changes of a switch: `off` leaves the path, displaced by `by`; `on` joins it."""

    off: list[Node] = field(default_factory=list)
    on: list[Node] = field(default_factory=list)
    by: str = ""
    displaced: list[tuple[Node, str]] = field(default_factory=list)  # already off the path; now displaced by a sibling


def switch(nodes: Sequence[Node], target: Node) -> BranchSwitch:
    """Compute how to make the active path lead through `target`.

    `nodes` must hold every turn from the position where the path of `target` leaves the active one.
    """
    tree = _Tree(nodes)
    above, divergence = tree.above(target)
    path = [*above, target, *tree.below(target)]
    wanted = {node.id for node in path}
    change = BranchSwitch(by=path[0].id)
    change.off = [node for node in nodes if node.active and node.id not in wanted and node.position >= divergence]
    change.on = [node for node in path if not node.active]
    change.displaced = [(sibling, node.id) for node in change.on for sibling in tree.undisplaced_siblings(node)]
    return change


class _Tree:
    def __init__(self, nodes: Sequence[Node]) -> None:
        self.slots: dict[str, list[Node]] = {}
        self.children: dict[str | None, list[Node]] = {}
        for node in nodes:
            self.slots.setdefault(node.slot, []).append(node)
            self.children.setdefault(node.parent, []).append(node)

    def above(self, node: Node) -> tuple[list[Node], int]:
        """Return the inactive turns that lead from the active path to `node`, and the position where they leave it.

        A slot without a usable turn (forgotten, aborted) is skipped: it still connects its neighbours.
        """
        path: list[Node] = []
        divergence, slot = node.position, node.parent
        while slot is not None and slot in self.slots:
            versions = self.slots[slot]
            if any(node.active for node in (*versions, *self.children.get(slot, ()))):
                break  # the active path leads through here, even if the turn itself was forgotten
            if (version := self._version(slot)) is not None:
                path.append(version)
            divergence, slot = versions[0].position, versions[0].parent
        return path[::-1], divergence

    def below(self, node: Node) -> list[Node]:
        """Return the turns that follow `node`: at each step the child that was on the path last."""
        path: list[Node] = []
        slot: str | None = node.slot
        while slot is not None:
            slot = self._preferred_slot(self.children.get(slot, ()))
            if slot is None:
                break
            version = self._version(slot)
            if version is not None:
                path.append(version)
        return path

    def undisplaced_siblings(self, node: Node) -> list[Node]:
        """Return the siblings of `node` that no sibling has displaced so far; `node` displaces them now."""
        siblings = [one for one in self.children.get(node.parent, ()) if one.position == node.position]
        ids = {one.id for one in siblings}
        others = [one for one in siblings if one is not node and one.usable and not one.active]
        return [one for one in others if one.superseded_by not in ids]

    def _version(self, slot: str) -> Node | None:
        """Return the version of a slot that is active, or was last."""
        return _latest_active([node for node in self.slots[slot] if node.usable or node.active])

    def _preferred_slot(self, children: Iterable[Node]) -> str | None:
        """Return the slot, among siblings, that is on the path or was last."""
        siblings = list(children)
        usable = [node for node in siblings if node.usable or node.active]
        best = _latest_active(usable, among=siblings) if usable else (max(siblings, key=_seq) if siblings else None)
        return best.slot if best else None


def _seq(node: Node) -> int:
    return node.seq


def _latest_active(nodes: Sequence[Node], among: Sequence[Node] | None = None) -> Node | None:
    if not nodes:
        return None
    siblings = {node.id for node in (among or nodes)}
    shown = [node for node in nodes if node.active] or [node for node in nodes if node.superseded_by not in siblings]
    return max(shown or nodes, key=_seq)


class LoggedTree:
    """The tree of turns, rebuilt from the log alone. `verify` compares the rows with it."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.in_order: list[Node] = []  # by seq
        self.active: list[Node] = []
        self.next_seq = 0
        self._reset_from = 0  # everything in order before this place was forgotten by a reset

    def add(self, id: str, *, replaces: str | None, discard_after: bool, status: str) -> None:
        if replaces is None:
            tip = self.active[-1] if self.active else None
            node = self._node(id, tip.position + 1 if tip else 0, tip.slot if tip else None, None, status)
            self.active.append(node)
        else:
            self._replace(id, self.nodes[replaces], discard_after, status)

    def graft(self, id: str, *, parent: str | None, slot: str | None, status: str) -> None:
        """Add a turn of another store outside the active path: after a slot, as a new one or another version."""
        position = 0 if parent is None else self.nodes[parent].position + 1
        node = self._node(id, position, parent, slot, status)
        at = min(bisect_left(self.active, position, key=lambda n: n.position), len(self.active) - 1)
        node.active, node.superseded_by = False, self.active[at].id if self.active else None

    def _replace(self, id: str, old: Node, discard_after: bool, status: str) -> None:
        node = self._node(id, old.position, old.parent, None if discard_after else old.slot, status)
        at = bisect_left(self.active, old.position, key=lambda n: n.position)
        end = len(self.active) if discard_after else at + (at < len(self.active) and self.active[at] is old)
        for displaced in self.active[at:end]:
            displaced.active, displaced.superseded_by = False, id
        if old.status == "aborted":
            old.superseded_by = id
        self.active[at:end] = [node]

    def _node(self, id: str, position: int, parent: str | None, slot: str | None, status: str) -> Node:
        node = Node(id, self.next_seq, position, parent, slot or id, True, None, status)
        self.nodes[id] = node
        self.in_order.append(node)
        self.next_seq += 1
        return node

    def abort(self, id: str) -> None:
        node = self.nodes[id]
        node.status = "aborted"
        if node.active:
            node.superseded_by = id
        self._drop(node)

    def commit(self, id: str) -> None:
        self.nodes[id].status = "complete"

    def forget(self, id: str) -> None:
        node = self.nodes[id]
        node.status = "forgotten"
        self._drop(node)

    def forget_through(self, seq: int | None) -> list[str]:
        """Forget all turns up to a number, or all. Returns those that were not forgotten before.

        Resetting a large conversation takes thousands of these, so each looks only at its own turns.
        """
        end = len(self.in_order) if seq is None else bisect_right(self.in_order, seq, key=_seq)
        forgotten = [node for node in self.in_order[self._reset_from : end] if node.status != "forgotten"]
        self._reset_from = max(self._reset_from, end)
        left_view = sum(node.active for node in forgotten)
        for node in forgotten:
            node.status, node.active = "forgotten", False
        first = next((at for at, node in enumerate(self.active) if node.active), len(self.active))
        del self.active[:first]
        if left_view > first:  # some were not at the beginning
            self.active = [node for node in self.active if node.active]
        return [node.id for node in forgotten]

    def switch(self, id: str) -> None:
        change = switch(list(self.nodes.values()), self.nodes[id])
        apply_switch(change)
        gone = {node.id for node in change.off}
        kept = [node for node in self.active if node.id not in gone]
        self.active = sorted([*kept, *change.on], key=lambda n: n.position)

    def _drop(self, node: Node) -> None:
        if node.active:
            node.active = False
            del self.active[bisect_left(self.active, node.position, key=lambda n: n.position)]


def apply_switch(change: BranchSwitch) -> None:
    for node in change.off:
        node.active, node.superseded_by = False, change.by
    for node in change.on:
        node.active, node.superseded_by = True, None
    for node, by in change.displaced:
        node.superseded_by = by
