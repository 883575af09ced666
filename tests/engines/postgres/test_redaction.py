"""The database finds what the library's rules find, and refuses it from callers who bypass the library."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from tools.redaction_quality import SECOND, read_samples

import palaver
from palaver.core.identity import new_id
from palaver.engines.postgres import migrate, transports
from palaver.engines.postgres.failures import translate_errors
from palaver.errors import InvalidInput, NotRedacted
from palaver.memory import working_memory
from palaver.model import Note, WorkingMemory
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


@pytest.mark.costly
def test_the_rules_in_sql_are_those_of_the_library() -> None:
    told = "run `python -m tools.redaction_sql`: the rules have changed"
    assert redaction_sql.FILE.read_text("utf-8") == redaction_sql.script(), told


async def test_the_samples_give_the_same_in_the_database(finds: Any) -> None:
    texts = [sample.text for sample in (*SAMPLES, *read_samples(SECOND))]
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
        values = [
            json.dumps(value) if isinstance(value, dict | list) and name != "fields" else value
            for name, value in args.items()
        ]
        with translate_errors():
            async with self.connection.transaction():
                await self.connection.execute("SELECT set_config('request.jwt.claims', $1, true)", json.dumps(ADA))
                await self.connection.execute("SET LOCAL ROLE authenticated")
                sql = f"SELECT * FROM palaver_api.{function}(who => '{{}}'{given})"
                found: list[Any] = await self.connection.fetch(sql, *values)
                return found

    async def change(self, key: str = "redacted", **fields: Any) -> list[Any]:
        changes = {**fields, "salt": "\\x" + "00" * 16}
        return await self.call("update_conversation", key, fields=list(fields), changes=changes)

    async def create(self, spec: dict[str, Any]) -> None:
        with translate_errors():
            async with self.connection.transaction():
                await self.connection.execute("SELECT set_config('request.jwt.claims', $1, true)", json.dumps(ADA))
                await self.connection.execute("SET LOCAL ROLE authenticated")
                await self.connection.fetch("SELECT * FROM palaver_api.open_conversation('{}', $1)", json.dumps(spec))

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
        {"metadata": json.dumps({"a": [text]})},
        {"metadata": json.dumps({text: 1})},
        {"idempotency_key": text},
        {"content": json.dumps([{"type": "image", "url": f"https://example.org/?q={text}"}]), "is_parts": 1},
        {"content": json.dumps([{"type": "file", "url": "https://example.org", "filename": text}]), "is_parts": 1},
        {"content": json.dumps([{"type": "text", "text": "", "more": {"deep": text}}]), "is_parts": 1},
    ]


async def test_a_redacted_conversation_takes_no_secret_from_a_token(caller: Caller) -> None:
    for fields in forms(SECRET):
        with pytest.raises(NotRedacted, match="through the library") as problem:
            await caller.append(**fields)
        assert problem.value.kind == "email"
        assert "ada@" not in str(problem.value)
    for fields in forms(MASKED):
        await caller.append(**fields)
    bytes_of_a_file = json.dumps([{"type": "image", "url": "data:image/png;base64,ada@example.org"}])
    await caller.append(content=bytes_of_a_file, is_parts=1)
    await caller.append(idempotency_key=SECRET, hash_key=True)  # its hash is stored
    names = await caller.connection.fetch(
        "SELECT idempotency_key FROM palaver.turns WHERE idempotency_key LIKE 'sha256:%'"
    )
    assert len(names) == 1


async def test_a_field_announces_its_value(caller: Caller) -> None:
    with pytest.raises(NotRedacted) as problem:
        await caller.append(metadata=json.dumps({"password": "hunter2hunter2"}))
    assert problem.value.kind == "password"
    await caller.append(metadata=json.dumps({"password": "[password]", "colour": "hunter2hunter2"}))


async def test_a_name_with_a_secret_is_refused(caller: Caller) -> None:
    with pytest.raises(InvalidInput, match="actor: holds what looks like a secret") as problem:
        await caller.append(role="assistant", actor="ben@example.org")
    assert "ben@" not in str(problem.value)
    await caller.append("plain", role="assistant", actor="ben@example.org")
    with pytest.raises(InvalidInput, match="participants: holds"):
        await caller.change(participants=json.dumps(["ben@example.org"]))
    with pytest.raises(InvalidInput, match="agent: holds"):
        await caller.change(agent="ben@example.org")
    await caller.change("plain", agent="ben@example.org")
    with pytest.raises(InvalidInput, match="agent: holds"):
        await caller.change("plain", settings=json.dumps({"redact": True}))


async def test_details_files_and_notes_are_searched_too(caller: Caller) -> None:
    for field, value in (("title", SECRET), ("metadata", json.dumps({"a": SECRET}))):
        with pytest.raises(NotRedacted):
            await caller.change(**{field: value})
        await caller.change(**{field: value.replace(SECRET, MASKED)})
    conversation = caller.conversations["redacted"]
    file = {"id": new_id(), "owner": "ada", "media_type": "text/plain", "bytes": 1, "sha256": "0" * 64}
    for name in (SECRET, MASKED):
        expected = pytest.raises(NotRedacted) if name is SECRET else nullcontext()
        path = f"ada/{conversation}/{new_id()}"
        with expected:
            await caller.call("attach", attachment={**file, "filename": name, "path": path})
        notes = working_memory.to_json(WorkingMemory(goals=(Note(name, by="ada"),)))
        expected = pytest.raises(NotRedacted) if name is SECRET else nullcontext()
        with expected:
            await caller.call("put_working_memory", memory=notes, through_seq=-1)
    spec = {"id": new_id(), "owner": "ada", "salt": "\\x" + "00" * 16, "settings": json.dumps({"redact": True})}
    with pytest.raises(NotRedacted):
        await caller.create({**spec, "title": SECRET})
    await caller.create({**spec, "title": MASKED})


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
