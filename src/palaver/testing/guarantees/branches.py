"""Edits, regenerations and branches."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from palaver.conversations.conversation import Conversation
from palaver.errors import InvalidInput, TurnSuperseded
from palaver.model import Turn
from palaver.testing.kit import Database, guarantee, refused


@asynccontextmanager
async def four_turns(db: Database) -> AsyncIterator[tuple[Conversation, list[Turn]]]:
    async with db.open() as store:
        talk = await store.conversation("k")
        roles = ("user", "assistant", "user", "assistant")
        yield talk, [await talk.append(role, text) for role, text in zip(roles, "abcd", strict=True)]  # type: ignore[arg-type]


async def shown(talk: Conversation) -> str:
    return "".join(turn.text for turn in await talk.history())


@guarantee
async def an_edit_takes_the_place(db: Database) -> None:
    """An edit takes the place of the old turn, and the turns that followed stay."""
    async with four_turns(db) as (talk, (_, b, _, _)):
        edit = await talk.append("assistant", "B", replaces=b)
        assert await shown(talk) == "aBcd"
        assert (edit.seq, edit.position, edit.parent) == (4, b.position, b.parent)
        assert (await talk.append("user", "e")).position == 4


@guarantee
async def edit_and_regenerate_drops_what_followed(db: Database) -> None:
    """With discard_after, an edit also replaces everything that followed."""
    async with four_turns(db) as (talk, (_, b, _, _)):
        edit = await talk.append("assistant", "B", replaces=b.id, discard_after=True)
        assert await shown(talk) == "aB"
        assert (await talk.append("user", "C")).position == edit.position + 1
        assert (await talk.refresh()).turn_count == 3


@guarantee
async def what_was_replaced_is_kept(db: Database) -> None:
    """A superseded turn keeps its text and names the turn that replaced it."""
    async with four_turns(db) as (talk, (_, b, c, _)):
        edit = await talk.append("assistant", "B", replaces=b, discard_after=True)
        for old in (b, c):
            found = await talk.turn(old)
            assert (found.text, found.active, found.superseded_by) == (old.text, False, edit.id)
        assert (await talk.turn(edit)).superseded_by is None


@guarantee
async def only_what_is_shown_can_be_replaced(db: Database) -> None:
    """Replacing a turn that was already replaced is refused, and the error names the newer turn."""
    async with four_turns(db) as (talk, (_, b, c, _)):
        edit = await talk.append("assistant", "B", replaces=b, discard_after=True)
        for old in (b, c):
            async with refused(TurnSuperseded, turn=old.id, by=edit.id):
                await talk.append("assistant", "x", replaces=old)
        async with refused(InvalidInput, field="discard_after"):
            await talk.append("assistant", "x", discard_after=True)
        assert await shown(talk) == "aB"


@guarantee
async def versions_are_listed(db: Database) -> None:
    """Every place with more than one version is listed, with all of them, and one of them is active."""
    async with four_turns(db) as (talk, (a, b, _, d)):
        assert await talk.branches() == []
        b2 = await talk.append("assistant", "B", replaces=b)
        d2 = await talk.append("assistant", "D", replaces=d)
        d3 = await talk.append("assistant", "E", replaces=d2)
        everywhere = await talk.branches()
        assert [[turn.id for turn in branch.turns] for branch in everywhere] == [[b.id, b2.id], [d.id, d2.id, d3.id]]
        assert [branch.active and branch.active.id for branch in everywhere] == [b2.id, d3.id]
        assert [branch.position for branch in everywhere] == [1, 3]
        [here] = await talk.branches(b2)
        assert here == everywhere[0]
        [alone] = await talk.branches(a)
        assert [turn.id for turn in alone.turns] == [a.id]
        await talk.forget(a)
        assert await talk.branches(a) == [], "a deleted position has no versions"


@guarantee
async def a_switch_shows_the_other_version(db: Database) -> None:
    """Switching to a version of a turn shows it in its place; versions of one turn share what follows."""
    async with four_turns(db) as (talk, (_, b, _, _)):
        edit = await talk.append("assistant", "B", replaces=b)
        await talk.switch(b)
        assert await shown(talk) == "abcd"
        assert (await talk.turn(edit)).superseded_by == b.id
        await talk.switch(edit)
        assert await shown(talk) == "aBcd"


@guarantee
async def a_switch_brings_back_what_followed(db: Database) -> None:
    """Switching to a discarded branch shows it to its end, and switching back restores the other exactly."""
    async with four_turns(db) as (talk, (_, b, _, d)):
        edit = await talk.append("assistant", "B", replaces=b, discard_after=True)
        await talk.append("user", "C")
        other = await talk.history()
        await talk.switch(b)
        assert await shown(talk) == "abcd"
        await talk.switch(edit)
        assert await talk.history() == other
        await talk.switch(d)
        assert await shown(talk) == "abcd"


@guarantee
async def branches_inside_branches(db: Database) -> None:
    """A switch leads through nested branches, and each remembers which of its own was shown last."""
    async with four_turns(db) as (talk, (a, _, _, _)):
        a2 = await talk.append("user", "A", replaces=a, discard_after=True)
        x = await talk.append("assistant", "x")
        await talk.append("user", "1")
        y = await talk.append("assistant", "y", replaces=x, discard_after=True)
        await talk.append("user", "2")
        await talk.switch(x)
        assert await shown(talk) == "Ax1"
        await talk.switch(a)
        assert await shown(talk) == "abcd"
        await talk.switch(a2)
        assert await shown(talk) == "Ax1"
        await talk.switch(a)
        await talk.switch(y)
        assert await shown(talk) == "Ay2"
        await talk.verify()


@guarantee
async def an_append_goes_on_from_what_is_shown(db: Database) -> None:
    """After a switch, the next turn follows the branch that is shown."""
    async with four_turns(db) as (talk, (_, b, _, d)):
        edit = await talk.append("assistant", "B", replaces=b, discard_after=True)
        await talk.switch(d)
        e = await talk.append("user", "e")
        assert (await shown(talk), e.parent, e.position) == ("abcde", d.slot, 4)
        await talk.switch(edit)
        assert await shown(talk) == "aB"
        assert (await talk.refresh()).turn_count == 2


@guarantee
async def a_switch_is_one_event(db: Database) -> None:
    """A switch writes one event, and one that changes nothing writes none."""
    async with four_turns(db) as (talk, (_, b, _, _)):
        edit = await talk.append("assistant", "B", replaces=b, discard_after=True)
        before = len(await talk.audit())
        await talk.switch(edit)
        assert len(await talk.audit()) == before
        await talk.switch(b)
        [event] = await talk.audit(after=before)
        assert (event.kind, event.turn) == ("switch", b.id)


@guarantee
async def an_aborted_turn_is_no_branch(db: Database) -> None:
    """An aborted stream is not listed as a version, and it is not possible to switch to it."""
    async with four_turns(db) as (talk, (_, _, _, d)):
        cut = await talk.append_open("assistant", replaces=d)
        await talk.append_abort(cut)
        async with refused(TurnSuperseded, turn=cut.id):
            await talk.switch(cut)
        assert [[turn.id for turn in branch.turns] for branch in await talk.branches()] == [[d.id]]


@guarantee
async def an_edit_may_be_retried(db: Database) -> None:
    """A retried edit with its idempotency key returns the first edit, although the old turn is superseded now."""
    async with four_turns(db) as (talk, (_, b, _, _)):
        edit = await talk.append("assistant", "B", replaces=b, idempotency_key="x")
        assert await talk.append("assistant", "B", replaces=b, idempotency_key="x") == edit
        assert await shown(talk) == "aBcd"
