"""The fuzzer with all of its checks. Each report that remains is listed here with the reason."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import Phase, settings
from schemathesis.checks import CHECKS, load_all_checks
from schemathesis.core.failures import Failure, FailureGroup

from palaver.server.settings import ServerSettings
from palaver.testing.providers import LoopbackProvider
from tests.server.conftest import PATIENCE, Running, ok, running
from tests.server.rest.test_openapi import LIVE, bounded, schema

pytestmark = pytest.mark.slow

load_all_checks()
# They need a stateful run, which this is not; ignored_auth needs a server with keys, as in tests/server/test_auth.py.
STATEFUL = {"use_after_free", "ensure_resource_availability", "object_level_authorization", "ignored_auth"}
ALL = [check for check in CHECKS.get_all() if check.__name__ not in STATEFUL]

REJECTED, ACCEPTED = "RejectedPositiveData", "AcceptedNegativeData"
INSIDE = (
    r"tools|tool_choice|messages|message|items|input|content|metadata|tool_calls|tool_results|sources|tokens|receipt"
    r"|policy|settings|where|semantic_recall|context_management|palaver|palaver\.context|system|history|context|conversation"
)
# (the report, what it is about, the reason). The second is searched in "METHOD /path STATUS detail".
REASONS: tuple[tuple[str, str, str], ...] = (
    (REJECTED, r" (404|410|412) ", "states: something was deleted, or changed since the ETag that was sent"),
    (ACCEPTED, r" (410|412) ", "not accepted: refused with a status that the fuzzer does not expect"),
    (REJECTED, r" 409 ", "states: the key is in use, or a stream has ended"),
    (REJECTED, r" 415 |body: must be the file of an export", "a file is what its bytes are, which no schema describes"),
    (REJECTED, r"control characters|line breaks|U\+0000|surrogate|invisible", "text that no schema describes in full"),
    (REJECTED, rf" 4(00|22) (?:turns\.\d+\.)?(?:{INSIDE})(?:[.:]|$)",
     "objects of a provider's or of a setting's own shape"),
    (ACCEPTED, r"POST /v1/.* 200 ", "fields of other protocols that this call does not use, or that are empty"),
    (REJECTED, r"cannot be (?:combined|used together)|give one|needs |with `|summaries cover|only |either |a tool turn",
     "rules between fields; the error names both"),
    (REJECTED, r" (model|name|kind|agent|cursor|index|key|turn|through|question|replaces|after|before|attachments): ",
     "names, positions and pages that this server does not have"),
    (REJECTED, r" timezone: ", "names of zones are those of the time zone database"),
    (REJECTED, r"secret|redact", "a conversation with `redact` refuses a secret in a name"),
    (REJECTED, r" 503 |501 ", "needs a bucket or a key of audit that this server does not have"),
    ("AllowHeaderMismatch", r"/(find|extract|batch|compact|input_tokens|verify) ",
     "the last word also matches a pattern such as {conversation}, and both methods are allowed"),
    ("UndefinedContentType", r"/content ", "pictures and PDFs are sent with their own type, so that pages show them"),
)  # fmt: skip


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, dict[str, str]]]:
    folder = tmp_path_factory.mktemp("all-checks")
    with LoopbackProvider() as provider:
        made = ServerSettings(
            url=f"sqlite:///{folder}/chat.db?synchronous=NORMAL",
            files=str(folder / "files"),
            embedder="none",
            model="chat",
            models=provider.models(),
            generate={"titles": False, "retry_pause": 0.001},
        )
        with running(made) as server, server.client() as client:
            talk = ok(client.post("/api/conversations", json={"key": "fuzz"}))["id"]
            path = f"/api/conversations/{talk}"
            turn = ok(client.post(f"{path}/turns", json={"role": "user", "content": "My name is Ada."}))["id"]
            yield server, {"conversation": talk, "turn": turn}


@schema.parametrize()
@settings(bounded(25), phases=[Phase.explicit, Phase.generate])
def test_every_report_of_the_fuzzer_is_explained(
    case: schemathesis.Case, fuzzed: tuple[Running, dict[str, str]]
) -> None:
    server, ids = fuzzed
    operation = case.operation.definition.raw["operationId"]
    if operation in LIVE or case.method.upper() == "TRACE":
        return
    is_safe = not operation.startswith(("delete", "reset", "forget", "erase"))
    if is_safe and not _is_negative(case) and isinstance(case.path_parameters, dict):
        known = {name: ids[name] for name in case.path_parameters if name in ids}
        case.path_parameters = {**case.path_parameters, **known}
    response = case.call(base_url=server.url, timeout=PATIENCE)
    about = f"{case.method} {case.path} {response.status_code} {_detail(response)}"
    assert [one for one in _failures(case, response) if not _is_explained(one, about)] == [], about


def _failures(case: schemathesis.Case, response: Any) -> tuple[Any, ...]:
    try:
        case.validate_response(response, checks=ALL)
    except FailureGroup as group:
        return tuple(group.exceptions)
    except Failure as one:
        return (one,)
    return ()


def _is_negative(case: schemathesis.Case) -> bool:
    return case.meta is not None and case.meta.generation.mode.is_negative


def _is_explained(failure: Any, about: str) -> bool:
    return any(kind == type(failure).__name__ and re.search(pattern, about) for kind, pattern, _ in REASONS)


def _detail(response: Any) -> str:
    try:
        body = response.json()
    except ValueError:
        return ""
    error = body.get("error") if isinstance(body, dict) else None
    return str(error.get("message") if isinstance(error, dict) else isinstance(body, dict) and body.get("detail"))
