"""The model that a call of `compact` names writes its summaries."""

from __future__ import annotations

import palaver
from palaver.testing import ScriptedModel


async def test_the_summarizer_model_of_the_call_writes() -> None:
    models = {"usual": ScriptedModel(["By the usual one."] * 9), "other": ScriptedModel(["By the other one."] * 9)}
    async with palaver.open("memory:", model="usual", models=models, worker=False) as store:
        talk = await store.conversation("k")
        await talk.append_many({"role": "user", "content": f"Thing number {n}."} for n in range(12))
        await talk.compact(policy={"trigger_turns": 10, "summarizer_model": "other"})
        assert {one.text for one in await talk.summaries()} == {"By the other one."}
