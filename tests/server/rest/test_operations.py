"""Every method is available over HTTP, or has a reason why not."""

from __future__ import annotations

import inspect

import pytest

from palaver import errors
from palaver.conversations.conversation import Conversation
from palaver.conversations.store import Store
from palaver.conversations.subjects import Subject
from palaver.server.mcp.tools import ELSEWHERE, TOOLS, WITHOUT_TOOL
from palaver.server.operations import COMPAT_OPERATIONS, NOT_OVER_HTTP
from palaver.server.operations import REST_OPERATIONS as OWN_FACES

REST_OPERATIONS = (*OWN_FACES, *COMPAT_OPERATIONS)


def public_verbs() -> set[str]:
    return {
        f"{owner.__name__}.{name}"
        for owner in (Store, Conversation, Subject)
        for name, value in vars(owner).items()
        if not name.startswith("_") and inspect.isfunction(value)
    }


def test_every_public_verb_has_a_face_or_a_reason() -> None:
    faced = {verb for face in REST_OPERATIONS for verb in face.verbs}
    assert public_verbs() - faced - NOT_OVER_HTTP.keys() == set()


def test_the_table_names_only_verbs_that_exist() -> None:
    named = {verb for face in REST_OPERATIONS for verb in face.verbs} | NOT_OVER_HTTP.keys()
    assert named - public_verbs() == set()


def test_no_verb_has_both_a_face_and_an_excuse() -> None:
    assert {verb for face in REST_OPERATIONS for verb in face.verbs} & NOT_OVER_HTTP.keys() == set()


def test_every_verb_with_a_face_over_http_is_in_mcp_too_or_has_a_reason() -> None:
    as_tools = {verb for face in TOOLS for verb in face.verbs}
    assert public_verbs() - NOT_OVER_HTTP.keys() == as_tools | ELSEWHERE.keys() | WITHOUT_TOOL.keys()
    assert not (as_tools | ELSEWHERE.keys()) & WITHOUT_TOOL.keys()


def test_operations_have_names_of_their_own_and_say_what_they_do() -> None:
    names = [face.name for face in REST_OPERATIONS]
    assert len(set(names)) == len(names)
    assert [face.name for face in REST_OPERATIONS if not face.handler.__doc__] == []


ERRORS = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)]


@pytest.mark.parametrize("kind", [one for one in ERRORS if one is not errors.ScrubPending], ids=lambda k: k.__name__)
def test_every_error_has_a_status_and_a_title(kind: type[errors.PalaverError]) -> None:
    status, slug = errors._http(kind.__new__(kind))
    assert status in errors.TITLES
    assert slug
