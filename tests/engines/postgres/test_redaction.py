"""The database finds what the library's rules find, and refuses it from callers who bypass the library."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

import palaver
from palaver.core.identity import new_id
from palaver.engines.postgres import migrate, transports
from palaver.engines.postgres.failures import translate_errors
from palaver.errors import NotRedacted
from palaver.redaction.findings import ALL
from palaver.redaction.scan import RuleRedactor
from tests.redaction.test_rules import SAMPLES
from tests.support import postgres_server
from tests.support.postgres_server import Server
from tools import redaction_sql

RULES = RuleRedactor()
ADA = {"sub": "ada", "app_metadata": {"tenant": "acme"}}
SECRET = "Write to ada@example.org."
MASKED = "Write to [email]."


@pytest.fixture(scope="module")
def finds(postgres: Server) -> Any:
    """A function that says what the database finds in some texts."""

    async def found(texts: list[str]) -> list[str | None]:
        async with (
            postgres_server.copied_database(postgres, "redaction", _fill) as url,
            transports.open_connection(url) as connection,
        ):
            return [await connection.fetchval("SELECT palaver.find_secret($1)", text) for text in texts]

    return found


async def _fill(url: str) -> None:
    await postgres_server.migrate_with_roles(url)
    async with palaver.open(url, tenant="acme", user="ada", embedder=None, worker=False) as store:
        await store.conversation("redacted", settings={"redact": True})
        await store.conversation("plain")


def test_the_rules_in_sql_are_those_of_the_library() -> None:
    told = "run `python -m tools.redaction_sql`: the rules have changed"
    assert redaction_sql.FILE.read_text("utf-8") == redaction_sql.script(), told


async def test_the_samples_give_the_same_in_the_database(finds: Any) -> None:
    texts = [sample.text for sample in SAMPLES]
    kinds = [{finding.kind for finding in RULES.redact(text).findings} for text in texts]
    for text, kind, found in zip(texts, kinds, await finds(texts), strict=True):
        assert (found in kind) if kind else found is None, text
    assert set().union(*kinds) == ALL, "the samples have every kind"


async def test_redacted_text_passes(finds: Any) -> None:
    texts = [RULES.redact(sample.text).text for sample in SAMPLES]
    together = ["\n".join(texts[n : n + 10]) for n in range(0, len(texts), 10)]
    texts += [RULES.redact(text).text for text in together]
    texts += [f"[{kind}] my {kind}: [{kind}], {kind}=[{kind}]" for kind in sorted(ALL)]
    for text, found in zip(texts, await finds(texts), strict=True):
        assert found is None, text


async def test_a_long_text_is_searched_to_its_end(finds: Any) -> None:
    filler = "The quick brown fox jumps over the lazy dog, again and again. " * 2_000
    assert await finds([filler, f"{filler}{SECRET}"]) == [None, "email"]


# ---- refusing ------------------------------------------------------------------------------------------------------


class Caller:
    """A signed-in user who calls the functions without the library."""

    def __init__(self, connection: Any, conversations: dict[str, str]) -> None:
        self.connection, self.conversations = connection, conversations

    async def call(self, function: str, key: str = "redacted", **args: Any) -> list[Any]:
        args = {"conversation": self.conversations[key], **args}
        given = "".join(f", {name} => ${n}" for n, name in enumerate(args, 1))
        values = [json.dumps(value) if isinstance(value, dict | list) else value for value in args.values()]
        with translate_errors():
            async with self.connection.transaction():
                await self.connection.execute("SELECT set_config('request.jwt.claims', $1, true)", json.dumps(ADA))
                await self.connection.execute("SET LOCAL ROLE authenticated")
                sql = f"SELECT * FROM palaver_api.{function}(who => '{{}}'{given})"
                found: list[Any] = await self.connection.fetch(sql, *values)
                return found

    async def append(self, key: str = "redacted", **fields: Any) -> list[Any]:
        return await self.call("append", key, drafts=[draft(**fields)])


def draft(**fields: Any) -> dict[str, Any]:
    known = {"id": new_id(), "role": "user", "actor": "ada", "content": "", "is_parts": 0, "token_count": 1}
    return {**known, "salt": "\\x" + "00" * 16, "words": [], "terms": 0, **fields}


@pytest.fixture
async def caller(postgres: Server) -> AsyncIterator[Caller]:
    async with postgres_server.copied_database(postgres, "redaction", _fill) as url:
        connection = await asyncpg.connect(url)
        rows = await connection.fetch("SELECT key, id FROM palaver.conversations")
        yield Caller(connection, {row["key"]: row["id"] for row in rows})
        await connection.close()


def forms(text: str) -> list[dict[str, Any]]:
    """A text in every place of a turn that the library redacts."""
    call = [{"id": "a", "name": "b", "arguments": {"c": [text]}}]
    result = [{"id": "a", "content": {"d": text}, "is_error": False}]
    return [
        {"content": text},
        {"content": json.dumps([{"type": "text", "text": text}]), "is_parts": 1},
        {"role": "assistant", "tool_calls": json.dumps(call)},
        {"role": "tool", "tool_results": json.dumps(result)},
        {"role": "assistant", "sources": json.dumps([{"quote": text}])},
    ]


async def test_a_redacted_conversation_takes_no_secret_from_a_token(caller: Caller) -> None:
    for fields in forms(SECRET):
        with pytest.raises(NotRedacted, match="through the library") as problem:
            await caller.append(**fields)
        assert problem.value.kind == "email"
        assert "ada@" not in str(problem.value)
    for fields in forms(MASKED):
        await caller.append(**fields)
    image = json.dumps([{"type": "image", "url": "https://ada:secret@example.org/a.png"}])
    await caller.append(content=image, is_parts=1)  # an address is not redacted


async def test_other_conversations_take_every_text(caller: Caller) -> None:
    for fields in forms(SECRET):
        await caller.append("plain", **fields)


async def test_a_replacement_and_a_stream_are_searched_too(caller: Caller) -> None:
    (old,) = await caller.append(content="hello")
    with pytest.raises(NotRedacted):
        await caller.call("append", drafts=[draft(content=SECRET)], replaces=old["id"])
    (turn,) = await caller.call("stream_open", draft=draft(role="assistant", actor="bot"), lease=1_000_000)
    here = {"turn": turn["id"]}
    await caller.call("stream_chunk", **here, n=0, piece="Write to ada@exam", lease=1_000_000)
    with pytest.raises(NotRedacted):
        await caller.call("stream_chunk", **here, n=1, piece="ple.org. ", lease=1_000_000)
    await caller.call("stream_chunk", **here, n=1, piece="ple dot org", lease=1_000_000)
    seal = {"content": "Write to ada@example dot org", "token_count": 1}
    sources = json.dumps([{"quote": SECRET}])
    with pytest.raises(NotRedacted):
        await caller.call("stream_commit", **here, seal={**seal, "sources": sources}, words=[])
    await caller.call("stream_commit", **here, seal=seal, words=[])


async def test_the_application_is_trusted_to_have_redacted(caller: Caller) -> None:
    """It writes through the library, where it may have chosen a redactor of its own."""
    who = json.dumps({"tenant": "acme", "user": "ada"})
    args = (who, caller.conversations["redacted"], json.dumps([draft(content=SECRET)]))
    async with caller.connection.transaction():
        assert await caller.connection.fetch("SELECT * FROM palaver_api.append($1, $2, $3)", *args)


def test_every_check_of_a_rule_is_known_to_the_database() -> None:
    source = (Path(migrate.__file__).parent / "functions" / "redaction.sql").read_text()
    checks = {redaction_sql.check_name(rule) for rule in redaction_sql.RULES}
    for check in checks:
        kind, _, test = check.partition(":")
        assert f"WHEN '{test if kind == 'check_phone' else check}'" in source or check == "check_phone:is_national", (
            check
        )
