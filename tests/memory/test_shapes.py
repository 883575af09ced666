"""Fields that an application names for the memory of a subject, and what is never remembered."""

from __future__ import annotations

import pytest

import palaver
from palaver import InvalidInput
from palaver.memory.shapes import clean_shapes

SHAPE = {"fields": {"newsletter": ["daily", "weekly"], "born": "date", "shoe size": "number"}, "never": ["allergic"]}


async def test_fields_are_typed_and_words_are_left_out() -> None:
    options = {"user": "ada", "person": "read-write", "embedder": "none", "subjects": {"person": SHAPE}}
    async with palaver.open("memory:", **options) as store:  # type: ignore[arg-type]
        ada = store.person("ada")
        item = await ada.remember("weekly", kind="newsletter")
        assert [one.id for one in await ada.facts(kind="newsletter")] == [item.id]
        assert "Newsletter:" in await ada.profile()
        for kind, text in (("newsletter", "hourly"), ("born", "in May"), ("shoe size", "large"), ("mood", "good")):
            with pytest.raises(InvalidInput):
                await ada.remember(text, kind=kind)
        with pytest.raises(InvalidInput):
            await ada.remember("I am allergic to nuts")
        talk = await store.conversation("a")
        await talk.append("user", "I am allergic to nuts. I live in Rome.")
        await store.settle()
        assert [one.text for one in await ada.facts(kind="fact")] == ["ada lives in Rome"]


@pytest.mark.parametrize(
    "given",
    [5, {"person": 5}, {"p": {"feilds": {}}}, {"p": {"fields": {"x": "float"}}}, {"p": {"version": 0}}],
)
def test_a_shape_that_means_nothing_is_refused(given: object) -> None:
    with pytest.raises(InvalidInput):
        clean_shapes(given)
