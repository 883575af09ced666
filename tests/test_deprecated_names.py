"""Public names that were renamed: the old name does the same for one more release, and warns at the caller's line."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import palaver
from palaver import Scope
from palaver.conversations.api_keys import create_key
from palaver.errors import InvalidInput
from palaver.models.tokens import BpeCounter
from palaver.ports.models import ModelRequest
from palaver.testing import ScriptedModel


@contextmanager
def deprecated(name: str) -> Iterator[None]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    (one,) = [one for one in caught if name in str(one.message)]
    assert (one.category, one.filename) == (DeprecationWarning, __file__)


@pytest.mark.parametrize(("old", "new"), [("Found", "ConversationMatch"), ("Match", "TurnMatch"), ("Hit", "RecallHit")])
def test_classes_have_their_old_names(old: str, new: str) -> None:
    import palaver.model

    for module in (palaver, palaver.model):
        with deprecated(f"{module.__name__}.{old} is deprecated"):
            assert getattr(module, old) is getattr(module, new)


def test_sight_is_visibility() -> None:
    with deprecated("Scope(sight=…)"):
        scope = Scope("acme", "ada", sight="tenant")
    assert scope == Scope("acme", "ada", visibility="tenant")
    with deprecated("Scope.sight"):
        assert scope.sight == "tenant"


async def test_sight_of_a_key_is_its_visibility() -> None:
    async with palaver.open("memory:") as store:
        with deprecated("create_key(sight=…)"):
            _, key = await create_key(store, "phone", sight="tenant")
        assert key.scope.visibility == "tenant"


async def test_counter_is_token_counter() -> None:
    with deprecated("counter"):
        async with palaver.open("memory:", counter=BpeCounter()) as store:
            await store.stats()


def test_a_request_to_a_model_has_its_old_names() -> None:
    named = ModelRequest(messages=(), tool_choice={"name": "look"}, reasoning={"call": ({"type": "thinking"},)})
    with deprecated("ModelRequest.may_call"):
        assert named.may_call
    with deprecated("ModelRequest.must_call"):
        assert named.must_call == "look"
    with deprecated("ModelRequest.thoughts"):
        assert named.thoughts == named.reasoning


OLD_OPTIONS = [
    {"may_call": False},
    {"must_call": True},
    {"must_call": "lookup"},
    {"tell_all": True},
    {"marks": {"a": 1}},
    {"thoughts": {}},
]


@pytest.mark.parametrize("old", OLD_OPTIONS, ids=str)
async def test_options_of_generate_have_their_old_names(old: dict[str, object]) -> None:
    async with palaver.open("memory:", models={"m": ScriptedModel(["Hello."])}, model="m") as store:
        talk = await store.conversation()
        with deprecated(next(iter(old))):
            answer = await talk.generate("Hi", **old)  # type: ignore[arg-type]
        assert answer.text == "Hello."
        if "marks" in old:
            assert answer.metadata["a"] == 1


@pytest.mark.parametrize("choice", ["always", True, {"tool": "x"}, {"name": 1}])
async def test_a_tool_choice_is_checked(choice: object) -> None:
    async with palaver.open("memory:") as store:
        talk = await store.conversation()
        with pytest.raises(InvalidInput, match="tool_choice"):
            await talk.generate("Hi", tool_choice=choice)  # type: ignore[arg-type]
