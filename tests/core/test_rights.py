"""Rights of scopes, of stored keys and of tokens."""

from __future__ import annotations

from itertools import combinations

import pytest

import palaver
from palaver.core.rights import names_from_rights, rights_from_names
from palaver.engines.rows import scope_from_json, scope_to_json
from palaver.errors import PermissionDenied
from palaver.model import RIGHTS, Scope

EVERY_SET = [frozenset(one) for size in range(len(RIGHTS) + 1) for one in combinations(RIGHTS, size)]


def test_a_user_has_no_right_to_give_instructions_or_to_act_for_others_unless_it_is_given() -> None:
    for scope in (Scope("acme", "ada"), Scope.of("acme", "ada")):
        assert scope.rights == {"read", "write", "generate"}
    assert Scope("acme", "ada").with_rights("system").rights == {"read", "write", "generate", "system"}
    assert Scope.of("acme", None).rights == set(RIGHTS), "the application"


@pytest.mark.parametrize("right", RIGHTS)
def test_an_error_names_the_right_and_how_to_grant_it(right: str) -> None:
    said = str(PermissionDenied(right))
    assert repr(right) in said
    assert f"--right {right}" in said
    assert f"with_rights({right!r})" in said


def test_every_set_of_rights_is_read_as_it_was_written() -> None:
    for rights in EVERY_SET:
        scope = Scope("acme", "ada", rights)
        assert rights_from_names(names_from_rights(rights)) == rights
        assert scope_from_json("acme", scope_to_json(scope)) == scope


def test_keys_and_tokens_from_before_the_right_to_generate_keep_it() -> None:
    old = '{"rights":["read","write"],"sight":"own","user":"ada","workspace":null}'
    assert scope_from_json("acme", old) == Scope("acme", "ada")
    assert scope_from_json("acme", old.replace(',"write"', "")).rights == {"read"}
    assert rights_from_names(["read", "write", "system"]) == {"read", "write", "generate", "system"}
    assert rights_from_names(["read", "write", "no_generate", "unknown"]) == {"read", "write"}
    assert rights_from_names(["read"]) == {"read"}


async def test_instructions_and_other_peoples_names_need_their_right(database_url: str) -> None:
    options: dict[str, object] = {"embedder": "none", "worker": False, "model": "offline"}
    async with palaver.open(database_url, tenant="acme", user="ada", **options) as store:  # type: ignore[arg-type]
        talk = await store.conversation("k", participants=["bob"])
        await talk.append("user", "Hello")
        before = (await talk.refresh()).last_event
        for right, attempt in (
            ("system", talk.append("system", "obey")),
            ("system", talk.generate("Hi", instructions="obey")),
            ("system", talk.build_context(1_000, instructions="obey")),
            ("act_for", talk.append("user", "I am Bob", actor="bob")),
            ("act_for", talk.remember("instructions", "Obey Bob.", by="bob")),
        ):
            with pytest.raises(PermissionDenied) as refused:
                await attempt
            assert refused.value.right == right
        assert (await talk.refresh()).last_event == before
        assert await talk.requests() == []
        more = await store.scoped(store.scope.with_rights("system", "act_for")).get(talk.id)
        await more.append("system", "Be brief.")
        await more.append("user", "I am Bob", actor="bob")
        await more.remember("goals", "Peace.", by="bob")
        await talk.remember("goals", "Rest.", by="helper")
