"""`history(include_summaries=True)`: summaries in their place, the turns with them."""

from __future__ import annotations

import pytest

from palaver import Store, Summary, Turn
from palaver.errors import InvalidInput
from palaver.memory.compaction import FAN_OUT
from tests.support.memory import talk_on

pytestmark = [pytest.mark.both_engines, pytest.mark.usefixtures("engine")]


async def test_each_summary_stands_before_the_span_that_it_covers_and_turns_stay(store: Store) -> None:
    talk = await store.conversation()
    turns = await talk_on(talk, 25 * FAN_OUT + 60)
    await store.settle()
    shown = await talk.history(limit=1_000, include_summaries=True)
    assert [one for one in shown if isinstance(one, Turn)] == turns
    summaries = [one for one in shown if isinstance(one, Summary)]
    assert [one.level for one in summaries][:1] == [1], "the widest only"
    assert [(one.from_seq, one.through_seq) for one in summaries][:1] == [(0, 25 * FAN_OUT)]
    for place, one in enumerate(shown):
        if isinstance(one, Summary):
            assert shown[place + 1].position == one.from_seq


async def test_a_page_begins_with_the_summaries_of_what_came_before(store: Store) -> None:
    talk = await store.conversation()
    turns = await talk_on(talk, 260)
    await store.settle()
    whole = await talk.history(limit=1_000, include_summaries=True)
    for limit in (1, 5, 120, 250):
        page = await talk.history(limit=limit, include_summaries=True)
        assert [one for one in page if isinstance(one, Turn)] == turns[-limit:]
        first = page.index(turns[-limit])
        assert page[:first] == [one for one in whole[: whole.index(turns[-limit])] if isinstance(one, Summary)], (
            "all that stand before it"
        )
        assert page[0].from_seq == 0
    (only,) = await talk.history(limit=1, before=turns[0], include_summaries=True) or [None]
    assert only is None


async def test_page_by_page_each_summary_comes_once_after_those_of_earlier_pages(store: Store) -> None:
    talk = await store.conversation()
    await talk_on(talk, 260)
    await store.settle()
    whole = await talk.history(limit=1_000, include_summaries=True)
    pages, before = [], None
    while page := await talk.history(limit=30, before=before, include_summaries=True):
        before = next(one for one in page if isinstance(one, Turn))
        earlier = await talk.history(limit=1, before=before)
        start = earlier[0].position if earlier else -1
        pages = [*(one for one in page if isinstance(one, Turn) or one.from_seq > start), *pages]
    assert pages == whole


async def test_what_is_superseded_has_no_summary(store: Store) -> None:
    talk = await store.conversation()
    with pytest.raises(InvalidInput):
        await talk.history(include_summaries=True, include_superseded=True)
    assert await talk.history(include_summaries=True) == []


async def test_the_summary_of_retired_turns_stands_where_they_were(store: Store) -> None:
    talk = await store.conversation(settings={"retention": "ephemeral"})
    await talk_on(talk, 60)
    await store.settle()
    shown = await talk.history(limit=1_000, include_summaries=True)
    assert isinstance(shown[0], Summary)
    assert shown[0].through_seq == shown[1].position == 25
