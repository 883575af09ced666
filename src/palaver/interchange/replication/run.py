"""Replicates between two stores: `replicate`.

The state of a replication is in the logs themselves. Two logs with the same hash at the same number are the same up to
there, so the last common event of a conversation is found by halving. If one log ends there, the other store's events
and rows are copied unchanged. If both continue, the right store's log is the main one (merge.py).

Each step is one transaction that checks that the conversation is still as it was read. A run that is killed anywhere is
completed by the next one.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import AsyncExitStack
from typing import Any

from palaver.conversations.internals import engine_of, eraser_of
from palaver.conversations.opener import Opening
from palaver.conversations.opener import open as open_store
from palaver.conversations.remote.store import RemoteStore
from palaver.conversations.store import Store
from palaver.core.rights import require_right
from palaver.errors import Conflict, ConversationBusy, ConversationGone, InvalidInput, NotFound, PalaverError
from palaver.interchange.replication.copies import Copy, changed_keys
from palaver.interchange.replication.merge import merge
from palaver.interchange.replication.report import DIRECTIONS, Direction, ReplicatedConversation, ReplicationReport
from palaver.interchange.replication.sides import Moved, Side, is_redacted
from palaver.interchange.replication.slices import NotPlain, copy_next_slice
from palaver.model import ADMIN, READ, WRITE, ConversationInfo, Tip
from palaver.ports.queries import Adoption
from palaver.ports.subjects import MEMORY_KEYS

PAGE = 500  # conversations
TRIES = 5  # for a conversation that others keep writing
LEASE = 5_000_000  # microseconds
PULLED = "both stores continued; this needs direction='both'"
ARCHIVED = "both stores continued, and the last event that they share is in an archive"
WRITING = "a turn is still being written"
BUSY = "others kept writing"
Progress = Callable[[int], None]


async def replicate(
    left: Store | str | Mapping[str, Any],
    right: Store | str | Mapping[str, Any],
    *,
    direction: Direction = "both",
    conversations: Collection[str] | None = None,
    dry_run: bool = False,
    progress: Callable[[int], None] | None = None,
) -> ReplicationReport:
    """Copy conversations between two stores in both directions, until both have the same conversations and logs.

    Deletions come first: a person, a conversation or a turn that was deleted in one store is deleted in the other.
    A conversation that continued in one store is copied to the other. If it continued in both, the right store keeps
    its numbers and its view, and the new turns of the left store get new numbers, on a separate branch. The call can be
    repeated and interrupted.

    - `left`, `right`: open stores, URLs, or the options of `palaver.open` as a mapping (`url`, `tenant`, `files`).
      Both scopes need the right `admin` and must see their whole tenant. The tenants may have different names.
    - `direction`: `both` (the default), `push` (change only the right store) or `pull` (change only the left one).
    - `conversations`: only these conversations, by id or key; by default all.
    - `dry_run`: change nothing, and report what would be done. Turns are not counted.
    - `progress`: a function that is called with the number of conversations that were processed since its last call.
    """
    if direction not in DIRECTIONS:
        raise InvalidInput("direction", f"must be one of {', '.join(DIRECTIONS)}")
    async with AsyncExitStack() as stack:
        stores = [
            one if isinstance(one, Store) else await stack.enter_async_context(_opened(one)) for one in (left, right)
        ]
        sides = Side("left", stores[0]), Side("right", stores[1])
        await _check(*sides)
        run = _Replication(*sides, direction, dry_run, progress or (lambda count: None))
        return await run.run(conversations)


def _opened(address: str | Mapping[str, Any]) -> Opening:
    """Open a store that only copies: it runs no jobs, and makes no vectors."""
    options = {"url": address} if isinstance(address, str) else address
    return open_store(**{"embedder": "none", "worker": False, **options})


async def _check(left: Side, right: Side) -> None:
    for side in (left, right):
        if isinstance(side.store, RemoteStore):
            raise InvalidInput(side.name, "is a server: give the URL of its database")
        require_right(side.scope, READ, WRITE, ADMIN)
        if side.scope.visibility != "tenant":
            raise InvalidInput(side.name, "its scope does not see the whole tenant: open it without a user")
    if left.scope.tenant == right.scope.tenant and await _is_same(left, right):
        raise InvalidInput("right", "is the same store as left")


async def _is_same(left: Side, right: Side) -> bool:
    """Return whether two addresses lead to one database: a lease that was taken in one is then taken in the other."""
    if engine_of(left.store) is engine_of(right.store):
        return True
    name = f"replicate/{secrets.token_hex(16)}"
    await left.engine.take_lease(left.scope.tenant, name, LEASE)
    return not await right.engine.take_lease(right.scope.tenant, name, LEASE)


class _Replication:
    def __init__(self, left: Side, right: Side, direction: Direction, dry_run: bool, progress: Progress) -> None:
        self.left, self.right = left, right
        self.to_right, self.to_left = direction != "pull", direction != "push"
        self.dry_run, self.progress = dry_run, progress
        self.report = ReplicationReport(direction=direction, dry_run=dry_run)
        self.joined: set[str] = set()  # ids of conversations that both stores had created with the same key

    async def run(self, wanted: Collection[str] | None) -> ReplicationReport:
        if not self.dry_run:
            await self._exchange_erasures()
        later: list[str] = []
        memories: list[str] = []
        async for id, is_same in self._ids(wanted):
            if is_same:
                self._add(ReplicatedConversation(id=id, action="unchanged"))
            elif not await self._carry_deletion(id):
                later.append(id)
        for id in later:
            if await self._is_memory(id):
                memories.append(id)  # after the turns that they quote
            else:
                await self._replicate(id)
        for id in memories:
            await self._replicate(id)
        return self.report

    def _add(self, one: ReplicatedConversation) -> None:
        self.report.add(one)
        self.progress(1)

    # ---- which conversations

    async def _ids(self, wanted: Collection[str] | None) -> AsyncIterator[tuple[str, bool]]:
        """Yield the ids of all conversations of both stores, and whether their logs are the same."""
        chosen = None if wanted is None else await self._chosen(wanted)
        left, right = _Tips(self.left), _Tips(self.right)
        while (id := min(filter(None, (await left.id(), await right.id())), default=None)) is not None:
            one, other = await left.take(id), await right.take(id)
            if chosen is None or id in chosen:
                yield id, one == other

    async def _chosen(self, wanted: Collection[str]) -> set[str]:
        found: set[str] = set()
        for name in wanted:
            ids = [id for side in (self.left, self.right) for id in await _find(side, name)]
            if not ids:
                raise InvalidInput("conversations", f"neither store has a conversation with the id or key {name!r}")
            found.update(ids)
        return found

    async def _is_memory(self, id: str) -> bool:
        states = [(await side.state(id)).info for side in (self.left, self.right)]
        return any(info is not None and (info.key or "").startswith(MEMORY_KEYS) for info in states)

    # ---- deletions

    async def _exchange_erasures(self) -> None:
        """Erase in each store the persons who were erased in the other."""
        pairs = [(self.left, self.right)] * self.to_right + [(self.right, self.left)] * self.to_left
        for source, target in pairs:
            known = {one.digest: one for one in await target.engine.erasures(target.scope)}
            found = [one for one in await source.engine.erasures(source.scope) if one.at]
            new = [one for one in found if one.digest not in known or known[one.digest].at < one.at]
            if new:
                await eraser_of(target.store).apply_erasures(new)
                self.report.erased += len(new)

    async def _carry_deletion(self, id: str) -> bool:
        """Delete a conversation that one store has deleted. Returns whether there is nothing else to do."""
        left, right = await self.left.state(id), await self.right.state(id)
        if not left.is_gone and not right.is_gone:
            return False
        target, info = (self.right, right.info) if left.is_gone else (self.left, left.info)
        source = self.left if left.is_gone else self.right
        if info is None:
            self._add(ReplicatedConversation(id=id, action="unchanged"))
        elif await _is_expired(source, id):
            self._add(_refused(info, f"its time to live ended in the {source.name} store"))
        elif not (self.to_right if target is self.right else self.to_left):
            self._add(_refused(info, f"the {source.name} store deleted it; this needs direction='both'"))
        else:
            if not self.dry_run:
                await target.forget(id)
            self._add(ReplicatedConversation(id=id, action="deleted", key=info.key, to=target.name))
        return True

    # ---- one conversation

    async def _replicate(self, id: str) -> None:
        if id in self.joined:
            self.progress(1)
            return
        for _ in range(TRIES):
            try:
                self._add(await self._exchange(id))
                return
            except Moved:
                continue
            except (ConversationBusy, ConversationGone) as problem:
                self._add(ReplicatedConversation(id=id, action="waiting", reason=str(problem)))
                return
            except (PalaverError, OSError) as problem:
                self._add(ReplicatedConversation(id=id, action="refused", reason=_reason(problem)))
                return
        self._add(ReplicatedConversation(id=id, action="waiting", reason=BUSY))

    async def _exchange(self, id: str) -> ReplicatedConversation:
        left, right = (await self.left.state(id)).info, (await self.right.state(id)).info
        if left is not None and right is not None:
            return await self._bring_together(left, right)
        if left is None and right is None:
            raise ConversationGone(id)
        source, target = (self.left, self.right) if left is not None else (self.right, self.left)
        info = left or right
        assert info is not None
        twin = await target.with_key(info)
        if twin is not None:
            pair = (info, twin) if source is self.left else (twin, info)
            self.joined |= {info.id, twin.id}
            return await self._join(*pair, 0)
        return await self._copy(info, source, target)

    def _may_change(self, side: Side) -> bool:
        return self.to_left if side is self.left else self.to_right

    async def _copy(self, info: ConversationInfo, source: Side, target: Side) -> ReplicatedConversation:
        """Copy a conversation that the target does not have."""
        if not self._may_change(target):
            return ReplicatedConversation(id=info.id, action="unchanged", key=info.key)
        if not self.dry_run:
            try:
                await copy_next_slice(source, target, info, None)
            except NotPlain:
                copy = await _whole(source, info.id)
                await target.restore(copy, source)
            await self._catch_up(info.id, source, target)
        return ReplicatedConversation(
            id=info.id, action="copied", key=info.key, to=target.name, turns=0 if self.dry_run else info.next_seq
        )

    async def _bring_together(self, left: ConversationInfo, right: ConversationInfo) -> ReplicatedConversation:
        common = await self._last_common(left, right)
        if common == left.last_event == right.last_event:
            return ReplicatedConversation(id=left.id, action="unchanged", key=left.key)
        if common == left.last_event:
            return await self._update(right, left, self.right, self.left)
        if common == right.last_event:
            return await self._update(left, right, self.left, self.right)
        return await self._join(left, right, common)

    async def _update(
        self, ahead: ConversationInfo, behind: ConversationInfo, source: Side, target: Side
    ) -> ReplicatedConversation:
        if not self._may_change(target):
            return ReplicatedConversation(id=ahead.id, action="unchanged", key=ahead.key)
        if not self.dry_run:
            await self._catch_up(ahead.id, source, target)
        turns = 0 if self.dry_run else max(0, ahead.next_seq - behind.next_seq)
        return ReplicatedConversation(id=ahead.id, action="updated", key=ahead.key, to=target.name, turns=turns)

    async def _catch_up(self, id: str, source: Side, target: Side) -> None:
        """Copy what the source has and the target does not have yet, which must be the beginning of the same log."""
        while True:
            ahead, behind = (await source.state(id)).info, (await target.state(id)).info
            if ahead is None or behind is None:
                raise Moved
            if ahead.last_event <= behind.last_event:
                return
            try:
                await copy_next_slice(source, target, ahead, behind)
            except NotPlain:
                copy, tip = await _whole(source, id), await _tip(target, behind)
                await _require_beginning(copy, tip, target)
                await target.adopt(Adoption(expected=tip, records=copy.records(), whole=True), source)

    async def _last_common(self, left: ConversationInfo, right: ConversationInfo) -> int:
        """Return the number of the last event that both logs have."""
        low, high = 0, min(left.last_event, right.last_event)
        probe = high
        while low < high:
            one, other = await self.left.event(left.id, probe), await self.right.event(right.id, probe)
            # An archived event is not there to be compared. The events after it prove it.
            if one is None or other is None or one.hash == other.hash:
                low = probe
            else:
                high = probe - 1
            probe = (low + high + 1) // 2
        return low

    async def _join(self, left: ConversationInfo, right: ConversationInfo, common: int) -> ReplicatedConversation:
        """Merge a conversation that continued in both stores, or that both created with the same key."""
        done = ReplicatedConversation(
            id=right.id, action="merged", key=right.key, to="both" if self.to_left else "right"
        )
        if not self.to_right:
            return _refused(right, PULLED)
        if self.dry_run:
            return done
        other, main = await _whole(self.left, left.id), await _whole(self.right, right.id)
        if common and any(common < copy.events[0]["n"] for copy in (main, other)):
            return _refused(right, ARCHIVED)
        applied = [await apply(main, other, common) for apply in (self.right.apply_deletions, self.right.apply_details)]
        if any(applied):
            main = await _whole(self.right, right.id)
        redact = self.right.redact if is_redacted(main) and not is_redacted(other) else None
        merged = merge(main, other, common, self.right.now, redact)
        merged.copy.verify()
        if merged.copy.tip != main.tip:
            await self.right.adopt(_continuation(main, merged.copy), _Renamed(self.left, left.id))
        if self.to_left:
            whole = Adoption(expected=other.tip, records=merged.copy.records(), whole=True, moved=merged.moved)
            await self.left.adopt(whole, self.right)
        return ReplicatedConversation(
            id=done.id, action="merged", key=done.key, to=done.to, turns=merged.added, branched=merged.branched
        )


def _continuation(before: Copy, after: Copy) -> Adoption:
    """Return what a merge added to the main copy."""
    known, n = {row["id"] for row in before.attachments}, before.tip.n
    part = Copy(after.conversation, after.events_after(n), after.turns[len(before.turns) :])
    part.attachments = [row for row in after.attachments if row["id"] not in known]
    part.derived = {key: one for key, one in after.derived.items() if (one.row.get("proof") or 0) > n}
    dropped = tuple(key for key, hash in changed_keys(part.events).items() if hash is None)
    return Adoption(expected=before.tip, records=part.records(), whole=False, dropped=dropped)


class _Renamed(Side):
    """A side that has a conversation under another id: both stores had created it with the same key."""

    def __init__(self, side: Side, id: str) -> None:
        super().__init__(side.name, side.store)
        self.id = id

    def place_of(self, row: dict[str, Any], id: str) -> str:
        return self.id


class _Tips:
    """The last events of all logs of a store, in the order of the conversations' ids."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self.page: list[Tip] = []
        self.last = ""
        self.is_done = False

    async def id(self) -> str | None:
        if not self.page and not self.is_done:
            found = await self.side.engine.tips(self.side.scope, self.last, PAGE)
            self.page, self.is_done = found[::-1], not found
            self.last = found[-1].conversation if found else self.last
        return self.page[-1].conversation if self.page else None

    async def take(self, id: str) -> Tip | None:
        return self.page.pop() if await self.id() == id else None


async def _whole(side: Side, id: str) -> Copy:
    """Read and verify a conversation. Raises `ConversationBusy` while a turn is being written."""
    copy = await side.copy(id)
    if copy.is_pending:
        raise ConversationBusy(id, WRITING)
    copy.verify()
    return copy


async def _tip(side: Side, info: ConversationInfo) -> Tip:
    event = await side.event(info.id, info.last_event)
    if event is None:
        raise Moved
    return Tip(conversation=info.id, n=event.n, hash=event.hash)


async def _require_beginning(copy: Copy, tip: Tip, target: Side) -> None:
    """Check that nothing in the target is lost when a copy replaces it: its log is the beginning of the copy's."""
    if copy.tip.n < tip.n:
        raise Moved
    first = copy.events[0]["n"]
    if first <= tip.n:
        if copy.events[tip.n - first]["hash"].hex() != tip.hash:
            raise Moved  # the target continued since
        return
    known = {turn["id"] for turn in copy.turns}  # the last event that both have is in an archive
    if any(turn["id"] not in known for turn in (await target.copy(tip.conversation, derived=False)).turns):
        raise Conflict(ARCHIVED)


async def _is_expired(side: Side, id: str) -> bool:
    """Return whether a deleted conversation went because its time to live had ended."""
    after, kind = 0, ""
    while found := await side.events(id, after, 1_000):
        after, kind = found[-1].n, found[-1].kind
    return kind == "expire"


async def _find(side: Side, name: str) -> list[str]:
    """Return the conversations with this id or key, deleted ones included where the id is given."""
    state = await side.state(name)
    if state.info is not None or state.is_gone:
        return [name]
    try:
        return [(await side.store.find(name)).id]
    except NotFound:
        return []


def _refused(info: ConversationInfo, reason: str) -> ReplicatedConversation:
    return ReplicatedConversation(id=info.id, action="refused", key=info.key, reason=reason)


def _reason(problem: Exception) -> str:
    return f"{type(problem).__name__}: {problem}"
