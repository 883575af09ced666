"""Two stores, one at the edge and one in the middle, have the same conversations after a replication."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

import palaver
from palaver import InvalidInput, Scope, Store
from palaver.conversations.internals import clock_of, engine_of
from palaver.interchange.archive import archive_conversation
from palaver.interchange.replication import slices
from palaver.interchange.replication.report import ReplicationReport
from palaver.interchange.replication.run import ARCHIVED, _Replication, replicate
from palaver.model import ConversationInfo
from palaver.ports.queries import ConversationChanges
from tests.interchange.replication.stores import assert_same, logs, say, texts


@pytest.fixture
async def left(tmp_path: Path) -> AsyncIterator[Store]:
    url = f"sqlite:///{tmp_path}/edge.db"
    async with palaver.open(url, files=tmp_path / "edge-files", embedder=None, worker=False) as store:
        yield store


@pytest.fixture
async def right(database_url: str, tmp_path: Path) -> AsyncIterator[Store]:
    async with palaver.open(database_url, files=tmp_path / "middle-files", embedder=None, worker=False) as store:
        yield store


async def run(left: Store, right: Store) -> ReplicationReport:
    """Replicate, check that nothing is left to do and that both stores are the same, and return the report."""
    report = await replicate(left, right)
    assert report.is_complete, report
    again = await replicate(left, right)
    assert set(again.counts) <= {"unchanged"}, again
    assert_same(await logs(left), await logs(right))
    return report


async def test_a_conversation_is_copied_and_continued_in_both_directions(left: Store, right: Store) -> None:
    talk = await left.conversation("trip", title="The trip")
    await say(talk, ["We leave on Monday.", "By train."])
    assert (await run(left, right)).counts == {"copied": 1}
    there = await right.conversation("trip")
    assert (there.id, there.info.title) == (talk.id, "The trip")
    assert await texts(there) == ["We leave on Monday.", "By train."]
    await say(there, ["The train leaves at nine."])
    report = await run(left, right)
    assert [(one.action, one.to, one.turns) for one in report.conversations] == [("updated", "left", 1)]
    assert await texts(talk) == await texts(there)
    assert [match.turn.text for match in await talk.search("nine")] == ["The train leaves at nine."]


async def test_both_went_on(left: Store, right: Store) -> None:
    """Both versions are kept: the right store's in the view, the left one's on a branch, with new numbers."""
    talk = await left.conversation("trip")
    await say(talk, ["Where shall we go?"])
    await run(left, right)
    there = await right.conversation("trip")
    await say(talk, ["To the sea.", "In May."])
    await say(there, ["To the mountains."])
    report = await run(left, right)
    assert [(one.action, one.turns, one.branched) for one in report.conversations] == [("merged", 2, 2)]
    for one in (talk, there):
        assert await texts(one) == ["Where shall we go?", "To the mountains."]
        everything = ["Where shall we go?", "To the mountains.", "To the sea.", "In May."]
        assert await texts(one, everything=True) == everything
    branch = (await there.branches())[0]
    assert [turn.text for turn in branch.turns] == ["To the mountains.", "To the sea."]
    await talk.switch((await talk.history(include_superseded=True))[-1])
    assert await texts(talk) == ["Where shall we go?", "To the sea.", "In May."]
    await run(left, right)
    assert await texts(there) == ["Where shall we go?", "To the sea.", "In May."]


async def test_where_only_one_side_has_new_turns_they_follow_in_the_view(left: Store, right: Store) -> None:
    """A new title on one side and new turns on the other are no reason for a branch."""
    talk = await left.conversation("trip")
    await say(talk, ["Where shall we go?"])
    await run(left, right)
    await say(talk, ["To the sea."])
    await (await right.conversation("trip")).rename("Holidays")
    report = await run(left, right)
    assert [(one.action, one.turns, one.branched) for one in report.conversations] == [("merged", 1, 0)]
    assert await texts(await right.conversation("trip")) == ["Where shall we go?", "To the sea."]
    assert (await talk.refresh()).title == "Holidays"


async def test_details_changed_on_both_sides_are_those_of_the_later_change(left: Store, right: Store) -> None:
    talk = await left.conversation("trip")
    await run(left, right)
    there = await right.conversation("trip")
    await there.rename("First")
    await talk.update(title="Second", settings={"redact": True})
    await run(left, right)
    info = await there.refresh()
    assert (info.title, info.settings["redact"]) == ("Second", True)


async def test_nothing_forgotten_returns(left: Store, right: Store) -> None:
    talk = await left.conversation("trip")
    await say(talk, ["My number is 4711.", "And now?"])
    gone = await left.conversation("gone")
    await say(gone, ["Forget all of this."])
    await run(left, right)
    there = await right.conversation("trip")
    await say(talk, ["Left goes on."])
    await say(there, ["Right goes on."])
    await talk.forget((await talk.history())[0])
    await (await right.get(gone.id)).forget()
    report = await run(left, right)
    assert report.counts == {"deleted": 1, "merged": 1}
    for store in (left, right):
        assert "My number is 4711." not in await texts(await store.conversation("trip"), everything=True)
        with pytest.raises(palaver.ConversationGone):
            await store.get(gone.id)
    with pytest.raises(palaver.TurnGone):
        await there.turn((await talk.audit(kinds=["forget"]))[0].turn or "")


async def test_a_reset_and_a_deletion_travel_where_only_one_side_went_on(left: Store, right: Store) -> None:
    talk = await left.conversation("trip")
    await say(talk, ["One.", "Two."])
    await run(left, right)
    await talk.reset()
    await say(talk, ["Three."])
    assert (await run(left, right)).counts == {"updated": 1}
    assert await texts(await right.conversation("trip"), everything=True) == ["Three."]


async def test_an_erased_person_is_erased_in_both(left: Store, right: Store) -> None:
    talk = await left.conversation("team", participants=["ada", "bob"])
    await talk.append("user", "I am Ada.", actor="ada")
    await talk.append("user", "I am Bob.", actor="bob")
    own = await left.scoped(Scope.of("default", "ada")).conversation("mine")
    await run(left, right)
    await right.erase_user("ada")
    await say(talk, ["Left goes on."])
    report = await run(left, right)
    assert report.erased == 1
    for store in (left, right):
        assert await texts(await store.conversation("team"), everything=True) == ["I am Bob.", "Left goes on."]
        with pytest.raises(palaver.ConversationGone):
            await store.get(own.id)


async def test_files_come_along(left: Store, right: Store) -> None:
    talk = await left.conversation("trip")
    file = await talk.attach(b"Platform 7, coach 12", filename="ticket.txt")
    await talk.append("user", "My ticket", attachments=[file])
    await left.settle()
    await run(left, right)
    there = await right.conversation("trip")
    assert await there.read_attachment(file) == b"Platform 7, coach 12"
    assert (await there.attachment_text(file)).text == "Platform 7, coach 12"
    await say(there, ["Thank you."])
    second = await talk.attach(b"Seat 61", filename="seat.txt")
    await talk.append("user", "My seat", attachments=[second])
    await run(left, right)
    assert await there.read_attachment(second) == b"Seat 61"
    assert await talk.read_attachment(second) == b"Seat 61"
    await talk.forget((await talk.history())[0])
    await run(left, right)
    with pytest.raises(palaver.AttachmentNotFound):
        await there.read_attachment(file)


async def test_memory_comes_along(left: Store, right: Store) -> None:
    talk = await left.conversation("trip")
    await say(talk, ["My name is Ada.", "Please always answer in French.", *(f"Note {n}." for n in range(60))])
    await left.settle()
    await talk.compact(keep_tokens=50)
    await talk.remember("goals", "See the sea", by="ada")
    await run(left, right)
    there = await right.conversation("trip")
    assert await there.working_memory() == await talk.working_memory()
    assert await there.facts() == await talk.facts()
    assert [one.text for one in await there.summaries()] == [one.text for one in await talk.summaries()] != []
    await talk.remember("goals", "Left goal", by="ada")
    await there.remember("goals", "Right goal", by="ada")
    await run(left, right)
    for one in (talk, there):
        goals = {note.text for note in (await one.working_memory()).goals}
        assert {"See the sea", "Left goal", "Right goal"} <= goals


async def test_the_memory_of_a_person_comes_along(left: Store, right: Store) -> None:
    """Both stores have learnt of the same person without knowing of each other."""
    for store, text in ((left, "I live in Graz."), (right, "I play the cello.")):
        mine = store.scoped(Scope.of("default", "ada"))
        talk = await mine.conversation(text)
        await talk.append("user", text, actor="ada")
        await mine.person("ada").remember(text)
        await store.settle()
    await run(left, right)
    items = [
        sorted((item.object, item.origin) for item in await store.person("ada").facts()) for store in (left, right)
    ]
    assert items[0] == items[1]
    assert len(items[0]) >= 2


async def test_both_created_the_same_key(left: Store, right: Store) -> None:
    """Then it is one conversation, with the two versions as branches from the beginning."""
    for store, words in ((left, ["Left one.", "Left two."]), (right, ["Right one."])):
        await say(await store.conversation("support/42"), words)
    report = await run(left, right)
    assert report.counts == {"merged": 1}
    talks = [await store.conversation("support/42") for store in (left, right)]
    assert talks[0].id == talks[1].id
    for talk in talks:
        assert await texts(talk) == ["Right one."]
        assert await texts(talk, everything=True) == ["Right one.", "Left one.", "Left two."]


async def test_the_same_request_sent_to_both_is_stored_once(left: Store, right: Store) -> None:
    talk = await left.conversation("trip")
    await run(left, right)
    there = await right.conversation("trip")
    for one in (talk, there):
        await one.append("user", "Book it.", idempotency_key="order-1")
    await run(left, right)
    assert await texts(there, everything=True) == ["Book it."]


async def test_an_answer_that_is_being_written_waits(left: Store, right: Store) -> None:
    talk = await left.conversation("trip")
    turn = await talk.append_open("assistant")
    await talk.append_chunk(turn, 0, "Half an ans")
    report = await replicate(left, right)
    assert [(one.action, one.id) for one in report.conversations] == [("waiting", talk.id)]
    await talk.append_chunk(turn, 1, "wer")
    await talk.append_commit(turn)
    await run(left, right)
    assert await texts(await right.conversation("trip")) == ["Half an answer"]


async def test_an_aborted_answer_and_a_forgotten_turn_are_merged_as_such(left: Store, right: Store) -> None:
    talk = await left.conversation("trip")
    await run(left, right)
    there = await right.conversation("trip")
    await say(there, ["Right."])
    await say(talk, ["Left."])
    turn = await talk.append_open("assistant")
    await talk.append_chunk(turn, 0, "Half")
    await talk.append_abort(turn)
    secret = await talk.append("user", "A secret", idempotency_key="secret")
    await talk.forget(secret)
    await run(left, right)
    found = {turn.text: turn.status for turn in await there.history(include_superseded=True)}
    assert found == {"Right.": "complete", "Left.": "complete", "Half": "aborted"}
    with pytest.raises(palaver.TurnGone):
        await there.append("user", "A secret", idempotency_key="secret")


@pytest.mark.parametrize(("direction", "changed"), [("push", "right"), ("pull", "left")])
async def test_one_direction_changes_one_store(left: Store, right: Store, direction: str, changed: str) -> None:
    await say(await left.conversation("left"), ["Left."])
    await say(await right.conversation("right"), ["Right."])
    report = await replicate(left, right, direction=direction)  # type: ignore[arg-type]
    assert [one.to for one in report.conversations] == [changed]
    counts = [len((await store.conversations()).items) for store in (left, right)]
    assert counts == ([1, 2] if direction == "push" else [2, 1])


async def test_pushing_what_diverged_twice_adds_it_once(left: Store, right: Store) -> None:
    talk = await left.conversation("trip")
    await run(left, right)
    there = await right.conversation("trip")
    await say(talk, ["Left."])
    await say(there, ["Right."])
    for _ in range(2):
        await replicate(left, right, direction="push")
    assert await texts(there, everything=True) == ["Right.", "Left."]
    assert await texts(talk) == ["Left."]
    refused = (await replicate(left, right, direction="pull")).conversations
    assert [one.action for one in refused] == ["refused"]
    await run(left, right)


async def test_a_dry_run_changes_nothing(left: Store, right: Store) -> None:
    await say(await left.conversation("trip"), ["Left."])
    before = await logs(left), await logs(right)
    report = await replicate(left, right, dry_run=True)
    assert report.counts == {"copied": 1}
    assert (await logs(left), await logs(right)) == before


async def test_chosen_conversations_and_other_tenants(left: Store, right: Store) -> None:
    for key in ("one", "two"):
        await say(await left.conversation(key), [key])
    target = right.scoped(Scope.of("branch-office", None))
    report = await replicate(left, target, conversations=["two"])
    assert [one.key for one in report.conversations] == ["two"]
    assert [info.key for info in (await target.conversations()).items] == ["two"]
    assert not (await right.conversations()).items
    with pytest.raises(InvalidInput, match="neither store"):
        await replicate(left, right, conversations=["three"])


async def test_a_large_conversation_is_copied_in_slices(
    left: Store, right: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(side: object, id: str) -> None:
        raise AssertionError("copied as a whole")

    monkeypatch.setattr(slices, "SLICE", 7)
    monkeypatch.setattr("palaver.interchange.replication.run._whole", refuse)
    talk = await left.conversation("long")
    for n in range(5):
        async with talk.stream("assistant") as stream:
            await stream.write(f"Answer {n}.")
    await talk.append_many({"role": "user", "content": f"Turn {n}."} for n in range(40))
    await talk.remember("goals", "Arrive", by="ada")
    await run(left, right)
    await say(talk, [f"Later {n}." for n in range(20)])
    await run(left, right)
    assert await texts(await right.conversation("long")) == await texts(talk)


async def test_seals_come_along(left: Store, right: Store) -> None:
    from palaver.audit.seals import check_seals, seal_everything
    from palaver.conversations.internals import clock_of

    key = b"a key of sixteen bytes"
    talk = await left.conversation("trip")
    await say(talk, ["One."])
    await seal_everything(engine_of(left), key, clock_of(left).now())
    await run(left, right)
    assert await check_seals(engine_of(right), key, right.scope, talk.id) == 1


async def test_what_cannot_be_replicated_is_refused(left: Store, right: Store, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="same store"):
        await replicate(left, left)
    async with palaver.open(f"sqlite:///{tmp_path}/edge.db", embedder=None, worker=False) as twin:
        with pytest.raises(InvalidInput, match="same store"):
            await replicate(left, twin)
    with pytest.raises(InvalidInput, match="whole tenant"):
        await replicate(left.scoped(Scope("default", "ada", frozenset({"read", "write", "admin"}))), right)
    with pytest.raises(palaver.PermissionDenied):
        await replicate(left.scoped(Scope("default", None, frozenset({"read", "write"}), "tenant")), right)
    with pytest.raises(InvalidInput, match="direction"):
        await replicate(left, right, direction="sideways")  # type: ignore[arg-type]


async def test_memory_that_both_made_of_the_same_turns_is_made_one(left: Store, right: Store) -> None:
    """Workers in both stores log what they derive. That makes no branch, and the next run has nothing to do."""
    talk = await left.conversation("trip")
    await say(talk, ["My name is Ada.", "Please always answer in French.", *(f"Note {n}." for n in range(60))])
    file = await talk.attach(b"Platform 7", filename="ticket.txt")
    await talk.append("user", "My ticket", attachments=[file])
    await run(left, right)
    there = await right.conversation("trip")
    for store, one in ((left, talk), (right, there)):
        await store.settle()
        await one.compact(keep_tokens=50)
    report = await run(left, right)
    assert [(one.action, one.turns) for one in report.conversations if one.key == "trip"] == [("merged", 0)]
    for store in (left, right):
        await store.settle()
    await run(left, right)
    assert await there.facts() == await talk.facts()
    assert [one.text for one in await there.summaries()] == [one.text for one in await talk.summaries()] != []
    assert (await there.attachment_text(file)).text == (await talk.attachment_text(file)).text == "Platform 7"


async def test_what_joins_a_redacted_conversation_is_redacted(left: Store, right: Store) -> None:
    talk = await left.conversation("trip")
    await run(left, right)
    there = await right.conversation("trip")
    await there.update(settings={"redact": True})
    await say(talk, ["My key is sk-proj-AbCdEfGhIjKlMnOpQrStUvWxYz0123456789AbCdEfGhIjKl"])
    await run(left, right)
    for one in (talk, there):
        assert "AbCdEfGh" not in str(await texts(one, everything=True))


async def test_two_edges_and_a_main_store(left: Store, right: Store, tmp_path: Path) -> None:
    """Turns that came by way of the main store are not added again."""
    url = f"sqlite:///{tmp_path}/second.db"
    async with palaver.open(url, files=tmp_path / "second-files", embedder=None, worker=False) as second:
        await say(await left.conversation("trip"), ["Start."])
        for edge in (left, second):
            await run(edge, right)
        for store, text in ((left, "Left."), (second, "Second."), (right, "Right.")):
            await say(await store.conversation("trip"), [text])
        for edge in (left, second, left):
            await run(edge, right)
        assert_same(await logs(left), await logs(second))
        found = await texts(await second.conversation("trip"), everything=True)
        assert found == ["Start.", "Right.", "Left.", "Second."]


async def test_a_title_that_a_model_made_goes_with_its_turn_in_the_other_store(left: Store, right: Store) -> None:
    talk = await left.conversation("trip")
    await say(talk, ["My number is 4711."])
    changes = ConversationChanges(fields=frozenset({"title"}), title="Number 4711", salt=b"s" * 16, if_untitled=True)
    await engine_of(left).update(left.scope, talk.id, changes)
    await run(left, right)
    there = await right.conversation("trip")
    await there.forget((await there.history())[0])
    assert (await there.refresh()).title is None
    await run(left, right)
    assert (await talk.refresh()).title is None


async def test_a_turn_that_was_merged_under_another_id_is_deleted_with_its_origin(left: Store, right: Store) -> None:
    talk = await left.conversation("trip")
    await run(left, right)
    there = await right.conversation("trip")
    secret = await talk.append("user", "My number is 4711.")
    await say(there, ["Right."])
    await replicate(left, right, direction="push")
    assert await texts(there, everything=True) == ["Right.", "My number is 4711."]
    await talk.forget(secret)
    await replicate(left, right, direction="push")
    assert await texts(there, everything=True) == ["Right."]
    await run(left, right)


async def test_a_turn_that_the_target_stores_during_a_run_is_kept(
    left: Store, right: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk = await left.conversation("trip")
    await run(left, right)
    there = await right.conversation("trip")
    await say(talk, ["Left.", "Left goes on."])
    compare, late = _Replication._last_common, ["Right."]

    async def compare_and_write(self: _Replication, one: ConversationInfo, other: ConversationInfo) -> int:
        common = await compare(self, one, other)
        while late:
            await there.append("user", late.pop())
        return common

    monkeypatch.setattr(_Replication, "_last_common", compare_and_write)
    await run(left, right)
    assert await texts(there, everything=True) == ["Right.", "Left.", "Left goes on."]


async def test_turns_are_kept_where_an_archive_hides_the_last_common_event(left: Store, right: Store) -> None:
    talk = await left.conversation("trip")
    await run(left, right)
    there = await right.conversation("trip")
    await say(there, ["Right."])
    await say(talk, [f"Left {n}." for n in range(5)])
    later = clock_of(left).now() + timedelta(days=1)
    await archive_conversation(left, talk, later, list)
    report = await replicate(left, right)
    assert [(one.action, one.reason) for one in report.conversations] == [("refused", f"Conflict: {ARCHIVED}")]
    assert await texts(there) == ["Right."]


@pytest.mark.parametrize("changed", ["turns SET content = 'Changed.'", "facts SET object = 'cheese'"])
async def test_rows_that_are_not_what_the_log_says_are_not_copied(left: Store, right: Store, changed: str) -> None:
    talk = await left.conversation("trip")
    await run(left, right)
    await say(talk, ["I like pears."])
    await talk.extract_facts()
    sql = f"UPDATE {changed}"
    await engine_of(left).writer.submit(lambda tx: tx.run(sql))  # type: ignore[attr-defined]
    (report,) = (await replicate(left, right)).conversations
    assert (report.action, report.reason.partition(":")[0]) == ("refused", "VerificationFailed")
    assert not await texts(await right.conversation("trip"))


async def test_a_conversation_stays_in_the_tenant_of_each_store(left: Store, right: Store) -> None:
    """Continued in one store, and in both."""
    target = right.scoped(Scope.of("branch-office", None))
    talk = await left.conversation("trip")
    await replicate(left, target)
    there = await target.conversation("trip")
    await say(there, ["From there."])
    await run(left, target)
    await say(talk, ["From here."])
    await say(there, ["And from there."])
    await run(left, target)
    for store, other in ((left, left.scoped(target.scope)), (target, right)):
        assert [info.key for info in (await store.conversations()).items] == ["trip"]
        assert not (await other.conversations()).items
