"""The document, and a fuzzer that believes it: nothing undocumented, nothing broken."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from palaver.server.app import create_app
from palaver.server.operations import COMPAT_OPERATIONS, REST_OPERATIONS
from palaver.server.settings import ServerSettings
from tests.server.conftest import PATIENCE, Running, ok, running

DOCUMENT = create_app(ServerSettings()).openapi()
CHECKS = (not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance)
LIVE = {"follow_conversation", "follow_conversations"}  # they do not end: of them the beginning is looked at
EVERY_OTHER = itertools.cycle((True, False))
schema = schemathesis.openapi.from_dict(DOCUMENT)


def operations() -> Iterator[dict[str, Any]]:
    for path in DOCUMENT["paths"].values():
        yield from path.values()


def test_every_face_is_in_the_document_by_its_name() -> None:
    assert {one["operationId"] for one in operations()} == {
        face.name for face in (*REST_OPERATIONS, *COMPAT_OPERATIONS)
    }


def test_every_operation_says_what_it_does_and_what_may_go_wrong() -> None:
    for one in operations():
        assert one["description"], one["operationId"]
        assert one["tags"], one["operationId"]
        of_a_provider = one["tags"][0] in ("OpenAI", "Anthropic")
        wrong, form = ("400", "application/json") if of_a_provider else ("422", "application/problem+json")
        assert {"401", "403", wrong, "429", "503"} <= one["responses"].keys(), one["operationId"]
        assert not (of_a_provider and "409" in one["responses"]), one["operationId"]
        for status, response in one["responses"].items():
            if int(status) >= 400:
                assert form in response["content"]


def test_every_body_has_an_example_that_fits_it() -> None:
    for part in DOCUMENT["components"]["schemas"].values():
        for example in part.get("examples", ()):
            whole = {**part, "components": DOCUMENT["components"]}
            jsonschema.validate(example, whole)


def test_the_document_refers_to_nothing_that_is_not_in_it() -> None:
    text = json.dumps(DOCUMENT)
    known = DOCUMENT["components"]["schemas"]
    for reference in {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}:
        assert reference in known


@pytest.fixture(scope="module")
def fuzzed(shared_url: str) -> Iterator[tuple[Running, dict[str, Any]]]:
    with running(ServerSettings(url=shared_url, files="files", embedder="none")) as server:
        with server.client() as client:
            talk = ok(client.post("/api/conversations", json={"key": "fuzz"}))["id"]
            path = f"/api/conversations/{talk}"
            turn = ok(client.post(f"{path}/turns", json={"role": "user", "content": "My name is Ada."}))["id"]
            file = ok(client.post(f"{path}/attachments", params={"filename": "a.txt"}, content=b"x"))["id"]
        yield server, {"conversation": talk, "turn": turn, "attachment": file}


def bounded(examples: int) -> settings:
    return settings(
        max_examples=examples,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        derandomize=True,
    )


@schema.parametrize()
@bounded(12)
def test_no_request_breaks_it_or_gets_an_undocumented_answer(
    case: schemathesis.Case, fuzzed: tuple[Running, dict[str, Any]]
) -> None:
    _send(case, *fuzzed)


@pytest.mark.slow
@schema.parametrize()
@bounded(200)
def test_no_request_breaks_it_the_long_form(case: schemathesis.Case, fuzzed: tuple[Running, dict[str, Any]]) -> None:
    _send(case, *fuzzed)


def _send(case: schemathesis.Case, server: Running, ids: dict[str, Any]) -> None:
    operation = case.operation.definition.raw["operationId"]
    # Half of the requests reach something that is there.
    if operation not in ("delete_conversation", "reset_conversation", "forget_turn") and next(EVERY_OTHER):
        case.path_parameters = {**(case.path_parameters or {}), **_known(case, ids)}
    if operation in LIVE:
        _begin(case, server)
    else:
        case.call_and_validate(base_url=server.url, checks=list(CHECKS), timeout=PATIENCE)


def _begin(case: schemathesis.Case, server: Running) -> None:
    """Of an answer without an end: its status and its kind are documented."""
    with requests.request(**case.as_transport_kwargs(base_url=server.url), stream=True, timeout=PATIENCE) as answer:
        documented = case.operation.definition.raw["responses"]
        assert str(answer.status_code) in documented
        assert answer.status_code < 500
        if "x-request-id" in answer.headers:  # a request that is not HTTP does not get this far
            kind = answer.headers["content-type"].partition(";")[0]
            assert kind in documented[str(answer.status_code)]["content"]


def _known(case: schemathesis.Case, ids: dict[str, Any]) -> dict[str, Any]:
    return {name: ids[name] for name in (case.path_parameters or {}) if name in ids}
