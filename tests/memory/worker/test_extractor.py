"""Facts and notes that a model proposes: checked against the turns, asked once more, never trusted blindly."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import palaver
from palaver.model import Turn
from tests.support.memory import talk_on, url

pytestmark = [pytest.mark.both_engines, pytest.mark.usefixtures("engine")]


class Proposer:
    """An Extractor with a script: each answer is made from the turns that it is shown."""

    name = "scripted"

    def __init__(self, *answers: Any) -> None:
        self.answers, self.calls = list(answers), 0

    async def extract(self, turns: Sequence[Turn], schema: Mapping[str, Any]) -> str:
        self.calls += 1
        if "facts" not in json.dumps(schema):
            return "{}"
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, str) else json.dumps(answer(turns))


def facts(*proposed: dict[str, Any]):
    return lambda turns: {"facts": [{**one, "turn_ids": [turns[0].id]} for one in proposed]}


TRUE = {"subject": "ada", "predicate": "keeps", "object": "seven bees", "confidence": 0.9}
INVENTED = {"subject": "ada", "predicate": "owns", "object": "a yacht in Monaco", "confidence": 0.9}


async def extracted(tmp_path: Path, extractor: Proposer) -> list[palaver.Fact]:
    async with palaver.open(url(tmp_path), user="ada", embedder=None, worker=False, extractor=extractor) as store:
        talk = await store.conversation("garden")
        await talk.append("user", "There are seven bees on the roof, Ada counted them.")
        return await talk.extract_facts()


async def test_a_proposed_fact_is_kept_when_its_turn_bears_it_out(tmp_path):
    found = await extracted(tmp_path, Proposer(facts(TRUE, INVENTED)))
    assert [fact.object for fact in found] == ["seven bees"]
    assert found[0].source_turn is not None
    assert found[0].by == "model:scripted"


async def test_an_answer_that_is_no_json_is_asked_for_once_more(tmp_path):
    extractor = Proposer("Sure! Here are the facts.", facts(TRUE))
    found = await extracted(tmp_path, extractor)
    assert [fact.object for fact in found] == ["seven bees"]
    assert extractor.calls == 2


async def test_a_model_that_never_answers_in_json_leaves_the_rules(tmp_path):
    extractor = Proposer("no", "no")
    assert await extracted(tmp_path, extractor) == []
    assert extractor.calls == 2


async def test_whatever_a_model_raises_the_rules_go_on(tmp_path):
    extractor = Proposer(RuntimeError("an error of some client"))
    assert await extracted(tmp_path, extractor) == []
    assert extractor.calls == 1


async def test_an_extractor_that_fails_leaves_a_mark_in_working_memory_and_a_line_in_the_log(tmp_path, caplog):
    extractor = Proposer(RuntimeError("quotes: seven bees"), facts(TRUE))
    async with palaver.open(url(tmp_path), user="ada", embedder=None, worker=False, extractor=extractor) as store:
        talk = await store.conversation("garden")
        await talk.append("user", "There are seven bees on the roof, Ada counted them.")
        assert await talk.extract_facts() == []
        assert (await talk.working_memory()).extractor_failure == "scripted: RuntimeError"
        (line,) = [record.getMessage() for record in caplog.records if record.name == "palaver.worker"]
        assert "scripted" in line
        assert "RuntimeError" in line
        assert talk.id in line
        assert "bees" not in line, "types and ids, never content"

        assert len(await talk.extract_facts()) == 1
        assert (await talk.working_memory()).extractor_failure is None, "it works again"


@pytest.mark.parametrize("with_facts", [True, False], ids=["facts", "notes"])
async def test_the_background_leaves_the_same_mark(tmp_path, with_facts):
    async with palaver.open(url(tmp_path), embedder=None, worker=False, extractor=Unavailable()) as store:
        talk = await store.conversation("garden", settings={"facts": with_facts})
        await talk_on(talk, 60)
        await store.settle()
        memory = await talk.working_memory()
        assert memory.through_seq > 0, "the rules have read on"
        assert memory.extractor_failure == "unavailable: ConnectionError"


class Unavailable:
    """An extractor whose provider cannot be reached."""

    name = "unavailable"

    async def extract(self, turns: Sequence[Turn], schema: Mapping[str, Any]) -> str:
        raise ConnectionError(turns[0].text)
