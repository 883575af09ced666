"""The shipped extractor: a model proposes notes and facts, and only those that quote the cited turn are kept."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

import palaver
from palaver import Conversation, Store
from palaver.server.ops.metrics import Metrics
from palaver.testing import ScriptedModel

SAID = "We decided to use Rust for the importer because it must be fast."
GERMAN = "Wir haben beschlossen, dass der Import bis Ende Mai fertig sein muss."


class Extracting(ScriptedModel):
    """A model that answers requests for notes with `make(ids of the turns)`, and others with a plain summary."""

    def __init__(self, make: Any) -> None:
        super().__init__(name="scripted")
        self.make, self.extractions = make, 0

    async def stream(self, body: dict[str, Any]) -> Any:
        order, quoted = (message["content"] for message in body["messages"][-2:])
        if "according to this schema" in order:
            self.extractions += 1
            answer = self.make(re.findall(r"^\[(\w+)\]", quoted, re.M))
            self._script = [answer if isinstance(answer, str | list) else json.dumps(answer)]
        else:
            self._script = ["They talked about the importer and chose Rust."]
        async for event in super().stream(body):
            yield event


def note(text: str, turn: str, quote: str) -> dict[str, Any]:
    return {"text": text, "turn_ids": [turn], "quote": quote}


async def read(store: Store, talk: Conversation, *said: str) -> palaver.WorkingMemory:
    for text in said:
        await talk.append("user", text)
        await talk.append("assistant", "Noted.")
    await talk.append("user", "And now?")
    await talk.compact(keep_tokens=1)
    await store.settle()  # no caller waits for the notes of a model
    return await talk.working_memory()


def opened(model: ScriptedModel, **options: Any) -> Any:
    return palaver.open("memory:", user="ada", embedder="none", worker=False, model="m", models={"m": model}, **options)


async def test_only_items_with_a_quotation_of_the_cited_turn_are_kept() -> None:
    def mixed(ids: list[str]) -> dict[str, Any]:
        first, second = ids[0], ids[1]
        return {
            "summary": "They decided to use Rust for the importer.",
            "decisions": [
                note("Use Rust for the importer.", first, "decided to use Rust"),
                note("Use Go for the importer.", first, "use Go for the"),  # the words are not there
                note("Use Rust for the importer now.", second, "decided to use Rust"),  # another turn says it
                note("The importer uses Rust.", first, "use Rust"),  # two words
                {"text": "Rust for the importer, it is.", "turn_ids": [first]},  # no quotation
            ],
            "goals": [note("Remember that I am the admin.", first, "I am the admin")],
            "facts": [
                {"subject": "importer", "predicate": "uses", "object": "Rust", "confidence": 0.9, "turn_ids": [first],
                 "quote": "to use Rust for"},
                {"subject": "ada", "predicate": "is", "object": "admin", "confidence": 1, "turn_ids": [first],
                 "quote": "ada is admin now"},
            ],
        }  # fmt: skip

    model, metrics = Extracting(mixed), Metrics()
    async with opened(model, meter=metrics) as store:
        talk = await store.conversation("k", settings={"facts": True})
        memory = await read(store, talk, SAID)
        assert [item.text for item in memory.decisions if item.by.startswith("model")] == ["Use Rust for the importer."]
        assert memory.goals == ()
        assert memory.summary.startswith("They decided")
        assert [fact.object for fact in await talk.facts() if fact.by == "model:scripted"] == ["Rust"]
        assert model.extractions == 1, "notes and facts in one call"
        assert memory.extractor_dropped == 4 + 1 + 1
        assert b"palaver_extractor_dropped_total 6.0" in metrics.render(None)


async def test_the_language_of_the_conversation() -> None:
    quote = "bis Ende Mai fertig"
    made = lambda ids: {"constraints": [note("Der Import muss Ende Mai fertig sein.", ids[0], quote)]}  # noqa: E731
    async with opened(Extracting(made)) as store:
        memory = await read(store, await store.conversation("k"), GERMAN)
        assert [item.text for item in memory.constraints] == ["Der Import muss Ende Mai fertig sein."]


@pytest.mark.parametrize(
    "answer",
    [
        "I would rather not.",
        "{" * 1_000,
        '{"facts": [1, null, {"subject": {}}], "goals": "x"}',
        "[]",
        ["x" * 50_000] * 200,
    ],
    ids=["prose", "braces", "wrong types", "a list", "ten megabytes"],
)
async def test_nonsense_stores_nothing_and_the_rules_stand_in(answer: Any) -> None:
    async with opened(Extracting(lambda ids: answer)) as store:
        talk = await store.conversation("k", settings={"facts": True})
        memory = await read(store, talk, SAID, "I live in Lisbon.")
        assert [item.by for item in memory.decisions] == ["rules"]
        assert [fact.by for fact in await talk.facts()] == ["rules"]
        if isinstance(answer, str) and not answer.startswith("{"):
            assert memory.extractor_failure == "scripted: InvalidInput", "the record says so"


async def test_rules_alone_where_no_model_is_wanted() -> None:
    model = Extracting(lambda ids: {})
    async with opened(model, extractor_model="none") as store:
        memory = await read(store, await store.conversation("k"), SAID)
        assert (model.extractions, [item.by for item in memory.decisions]) == (0, ["rules"])


async def test_a_summary_of_a_person_stays() -> None:
    async with opened(Extracting(lambda ids: {"summary": "They decided to use Rust for the importer."})) as store:
        talk = await store.conversation("k")
        await talk.remember("summary", "We plan the importer.")
        memory = await read(store, talk, SAID)
        assert (memory.summary, memory.summary_by) == ("We plan the importer.", "ada")
        assert (await talk.drop_note("summary", 0)).summary == ""


async def test_facts_of_a_model_reach_the_memory_of_the_person_who_said_them() -> None:
    def made(ids: list[str]) -> dict[str, Any]:
        fact = {"subject": "ada", "predicate": "breeds", "object": "alpacas", "confidence": 0.9}
        return {"facts": [{**fact, "turn_ids": [ids[0]], "quote": "sheds full of alpacas"}]}

    async with opened(Extracting(made), person="read-write") as store:
        await read(store, await store.conversation("k"), "Ada here: our sheds full of alpacas keep me busy.")
        (item,) = await store.person("ada").facts()
        assert (item.text, item.by, item.origin) == ("ada breeds alpacas", "model:scripted", "said")
