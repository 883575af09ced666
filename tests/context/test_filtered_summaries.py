"""A context for some participants leaves out the summaries that may tell what the others said."""

from __future__ import annotations

import pytest

from palaver import Context, Conversation, Store, Summary, ToolCall, ToolResult

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


def shown(context: Context, summaries: list[Summary]) -> list[Summary]:
    return [one for one in summaries if one.text in context.text]


async def build(talk: Conversation, *actors: str) -> Context:
    wanted = actors or None
    return await talk.build_context(4_000, filter_participants=wanted, recent_turns=1, semantic_recall=False)


async def test_summaries_of_those_who_are_filtered_out_are_left_out(store: Store) -> None:
    talk = await talk_by(store, "ada", "bob")
    of_ada, of_bob = (one for one in await talk.summaries() if one.level == 0)
    assert shown(await build(talk), [of_ada, of_bob]) == [of_ada, of_bob]
    context = await build(talk, "ada")
    assert shown(context, [of_ada, of_bob]) == [of_ada]
    assert "Bob" not in context.text
    (note,) = [one for one in context.explain().notes if "filtered out" in one]
    assert note.startswith("1 summary of turns 12 to 23 left out")
    assert shown(await build(talk, "ada", "bob"), [of_ada, of_bob]) == [of_ada, of_bob]
    assert not [one for one in (await build(talk, "ada", "bob")).explain().notes if "filtered out" in one]


async def test_a_summary_of_several_is_left_out_as_a_whole(store: Store) -> None:
    talk = await talk_by(store, "ada", "bob", "ada", "eve")
    for one in await talk.summaries():
        if one.level == 1:
            assert one.text not in (await build(talk, "ada")).text
    context = await build(talk, "ada")
    assert "Bob" not in context.text
    assert "Eve" not in context.text


async def test_results_of_tools_are_nobodys_words(store: Store) -> None:
    talk = await store.conversation("k")
    await talk.append("user", "Ada paints houses.", actor="ada")
    await talk.append("assistant", "", actor="bot", tool_calls=[ToolCall("1", "look", {})])
    await talk.append("tool", "", tool_results=[ToolResult("1", "found")])
    last = await talk.append("assistant", "Painted.", actor="bot")
    await talk.summarize(through=last)
    await ask(talk)
    assert "Ada paints houses." in (await build(talk, "ada", "bot")).text
    assert "Ada paints houses." not in (await build(talk, "ada")).text


async def test_a_superseded_turn_hides_nothing(store: Store) -> None:
    talk = await store.conversation("k")
    wrong = await talk.append("user", "Bob paints houses.", actor="bob")
    last = await talk.append("user", "Ada paints houses.", actor="ada", replaces=wrong)
    await talk.summarize(through=last)
    await ask(talk)
    assert "Ada paints houses." in (await build(talk, "ada")).text


async def test_turns_whose_words_were_retired_still_have_a_speaker(store: Store) -> None:
    talk = await talk_by(store, "ada", "bob", settings={"retention": "ephemeral"})
    (note,) = [one for one in (await build(talk, "ada")).explain().notes if "filtered out" in one]
    assert note.startswith("1 summary of turns 12 to 23")


async def test_a_filter_asks_for_no_compaction_of_what_is_summarised(store: Store) -> None:
    talk = await talk_by(store, "ada", "bob", each=30)
    before = await talk.summaries()
    for _ in range(3):
        await talk.build_context(300, filter_participants=["ada"])
    await store.settle()
    assert await talk.summaries() == before
