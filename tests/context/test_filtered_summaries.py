"""A context for some participants leaves out the summaries that may contain what the others said."""

from __future__ import annotations

import pytest

from palaver import Context, Conversation, Store, ToolCall, ToolResult

pytestmark = [pytest.mark.both_engines, pytest.mark.usefixtures("engine")]


async def ask(talk: Conversation) -> None:
    """End with turns that have no summary, so that all summaries are of what is before the window."""
    for _ in range(3):
        await talk.append("user", "And now?", actor="ada")


async def talk_by(store: Store, *actors: str, each: int = 12, **fields: object) -> Conversation:
    """One actor after the other, with a summary of what each said."""
    talk = await store.conversation("k", **fields)  # type: ignore[arg-type]
    for actor in actors:
        await talk.append_many(
            {"role": "user", "actor": actor, "content": f"{actor.title()} paints house number {n} in blue."}
            for n in range(each)
        )
        (last,) = await talk.history(1)
        await talk.summarize(through=last)
    await ask(talk)
    return talk


def named(context: Context) -> set[str]:
    """Return whose houses a context mentions."""
    return {name for name in ("Ada", "Bob", "Eve") if f"{name} paints" in context.text}


def notes(context: Context) -> list[str]:
    return [one for one in context.explain().notes if "filtered out" in one]


async def build(talk: Conversation, *actors: str) -> Context:
    wanted = actors or None
    return await talk.build_context(4_000, filter_participants=wanted, recent_turns=1, semantic_recall=False)


async def test_summaries_of_those_who_are_filtered_out_are_left_out(store: Store) -> None:
    talk = await talk_by(store, "ada", "bob")
    assert [one.through_seq for one in await talk.summaries()] == [12, 24]
    assert named(await build(talk)) == named(await build(talk, "ada", "bob")) == {"Ada", "Bob"}
    assert notes(await build(talk)) == notes(await build(talk, "ada", "bob")) == []
    context = await build(talk, "ada")
    assert named(context) == {"Ada"}
    assert notes(context) == [
        "1 summary of turns 12 to 23 left out, because participants who are filtered out spoke there"
    ]


async def test_a_summary_of_several_is_left_out_as_a_whole(store: Store) -> None:
    talk = await talk_by(store, "ada", "bob", "ada", "eve")
    context = await build(talk, "ada")
    assert named(context) <= {"Ada"}
    assert len(notes(context)) == 1


async def test_results_of_tools_are_nobodys_words(store: Store) -> None:
    talk = await store.conversation("k")
    await talk.append("user", "Ada paints houses.", actor="ada")
    await talk.append("assistant", "", actor="bot", tool_calls=[ToolCall("1", "look", {})])
    await talk.append("tool", "", tool_results=[ToolResult("1", "found")])
    last = await talk.append("assistant", "The zebra stripes are painted.", actor="bot")
    await talk.summarize(through=last)
    await ask(talk)
    context = await build(talk, "ada", "bot")
    assert ("zebra" in context.text, notes(context)) == (True, [])
    context = await build(talk, "ada")
    assert ("zebra" in context.text, len(notes(context))) == (False, 1)


async def test_a_superseded_turn_hides_nothing(store: Store) -> None:
    talk = await store.conversation("k")
    wrong = await talk.append("user", "Bob paints houses.", actor="bob")
    last = await talk.append("user", "Ada paints houses.", actor="ada", replaces=wrong)
    await talk.summarize(through=last)
    await ask(talk)
    context = await build(talk, "ada")
    assert (named(context), notes(context)) == ({"Ada"}, [])


async def test_turns_whose_words_were_retired_still_have_a_speaker(store: Store) -> None:
    talk = await talk_by(store, "ada", "bob", settings={"retention": "ephemeral"})
    (note,) = notes(await build(talk, "ada"))
    assert note.startswith("1 summary of turns 12 to 23")


async def test_a_filter_asks_for_no_compaction_of_what_is_summarised(store: Store) -> None:
    talk = await talk_by(store, "ada", "bob", each=30)
    before = await talk.summaries()
    for _ in range(3):
        await talk.build_context(300, filter_participants=["ada"])
    await store.settle()
    assert await talk.summaries() == before
