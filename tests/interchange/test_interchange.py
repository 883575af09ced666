"""Conversations as lines of JSON: what the file looks like, and what a reader makes of a bad one.

That nothing is lost from one database to another is in the conformance kit, under `export_import`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import palaver
from palaver.errors import InvalidInput, PalaverError, VerificationFailed
from palaver.interchange.jsonl import _hash, export_lines, import_dump, read_dumps, read_messages
from palaver.ports.queries import Record
from palaver.testing.guarantees.proof import SIGNED, busy_talk


@pytest.fixture
async def lines(tmp_path: Path) -> list[str]:
    async with palaver.open(f"sqlite:///{tmp_path}/from.db") as store:
        talk = await store.conversation("k", title="A title", metadata={"ü": 1})
        await busy_talk(talk)
        await talk.append("user", "I live in Berlin.")
        await talk.extract_facts()
        await talk.remember("goals", "ship by zanzibar")
        return [line async for line in export_lines(talk)]


def kinds(lines: list[str]) -> list[str]:
    return [json.loads(line)["kind"] for line in lines]


def changed(line: str, name: str, value: Any) -> str:
    data = json.loads(line)
    data["row"][name] = value
    return json.dumps(data)


def test_a_file_is_the_conversation_its_log_its_turns_its_files_and_an_end(lines: list[str]) -> None:
    order = list(dict.fromkeys(kinds(lines)))
    assert order == ["conversation", "event", "turn", "attachment", "file", "working_memory", "fact", "end"]
    end = json.loads(lines[-1])["row"]
    assert (end["format"], end["rows"]) == ("palaver/1", len(lines) - 1 - kinds(lines).count("file"))
    assert len(end["remembered"]) == 64


def test_every_line_is_one_line_of_readable_json(lines: list[str]) -> None:
    assert all("\n" not in line for line in lines)
    assert '{\\"ü\\":1}' in lines[0]


def test_no_line_says_whose_database_it_came_from(lines: list[str]) -> None:
    for line in lines:
        assert not {"tenant", "path", "cid", "tid", "aid", "fid", "vector"} & json.loads(line)["row"].keys()


def test_several_conversations_fit_in_one_file(lines: list[str]) -> None:
    dumps = list(read_dumps([*lines, "", "  \n", *lines]))
    assert len(dumps) == 2
    assert dumps[0] == dumps[1]
    assert list(read_dumps([])) == []


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "line 2: is not JSON"),
        ("[1]", "line 2: is not a JSON object"),
        ('{"kind": "turn"}', "line 2: is not a row"),
        ('{"kind": "turn", "row": [1]}', "line 2: is not a row"),
        ('{"kind": "event", "row": {"hash": "@"}}', "line 2: is not a row"),
        ('{"kind": "event", "row": {"hash": 5}}', "line 2: is not a row"),
        ('{"kind": "poem", "row": {}}', "line 2: this version does not know the kind"),
        ('{"kind": "file", "row": {"id": "x"}}', "line 2: a file needs"),
        ('{"kind": "conversation", "row": {}}', "line 2: the conversation before it has no end"),
        ('{"kind": "end", "row": {"rows": 7}}', "line 2: rows are missing"),
    ],
)
def test_a_line_that_makes_no_sense_is_refused_by_number(lines: list[str], line: str, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        list(read_dumps([lines[0], line]))


def test_a_file_must_begin_with_a_conversation(lines: list[str]) -> None:
    with pytest.raises(InvalidInput, match="line 1: a conversation line should come first"):
        list(read_dumps(lines[1:]))


async def refused(tmp_path: Path, lines: list[str]) -> PalaverError:
    """Import into an empty database, which must stay empty."""
    async with palaver.open(f"sqlite:///{tmp_path}/to.db") as store:
        with pytest.raises(PalaverError) as caught:
            await import_dump(store, next(read_dumps(lines)))
        assert (await store.stats()).conversations == 0
    assert not list((tmp_path / "to.db-files").rglob("*.*"))
    return caught.value


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        ("conversation", "title", "Another title"),
        ("conversation", "owner", "mallory"),
        ("conversation", "turn_count", 1),
        ("conversation", "next_seq", 1_000),
        ("conversation", "preview", "I owe you money"),
        ("conversation", "updated", 0),
        ("event", "actor", "mallory"),
        ("event", "at", 0),
        ("event", "kind", "forget"),
        ("turn", "content", "I owe you money"),
        ("turn", "role", "system"),
        ("turn", "active", 0),
        ("turn", "position", 5),
        ("turn", "superseded_by", "x"),
        ("attachment", "filename", "other.exe"),
        ("attachment", "sha256", "0" * 64),
        ("attachment", "bytes", 1),
        ("working_memory", "memory", "{}"),
        ("fact", "object", "Rome"),
        ("fact", "source_turn", None),
        ("end", "remembered", None),
        ("end", "remembered", "0" * 64),
    ],
)
async def test_a_changed_field_is_refused(
    lines: list[str], tmp_path: Path, kind: str, name: str, value: object
) -> None:
    at = kinds(lines).index(kind)
    problem = await refused(tmp_path, [*lines[:at], changed(lines[at], name, value), *lines[at + 1 :]])
    assert isinstance(problem, VerificationFailed | InvalidInput)


@pytest.mark.costly
@pytest.mark.parametrize("kind", ["conversation", "event", "turn", "attachment"])
async def test_a_row_without_a_field_or_with_a_wrong_one_is_refused(
    lines: list[str], tmp_path: Path, kind: str
) -> None:
    at = kinds(lines).index(kind)
    for name in SIGNED.get(kind, ("id", "owner", "filename", "media_type", "bytes", "sha256", "created", "turn")):
        data = json.loads(lines[at])
        del data["row"][name]
        await refused(tmp_path, [*lines[:at], json.dumps(data), *lines[at + 1 :]])
        await refused(tmp_path, [*lines[:at], changed(lines[at], name, {"a": []}), *lines[at + 1 :]])


def summed(lines: list[str]) -> list[str]:
    """The lines as a careful forger writes them: the end fits what comes before it."""
    records = [Record(**json.loads(line)) for line in lines[:-1] if json.loads(line)["kind"] != "file"]
    return [*lines[:-1], changed(changed(lines[-1], "remembered", _hash(records)), "rows", len(records))]


NOTE = {"text": "x", "turn": "01K00000000000000000000000", "by": "ada"}


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        ("fact", "source_turn", NOTE["turn"]),
        ("fact", "subject", 5),
        ("fact", "confidence", "high"),
        ("fact", "valid_from", 2**80),
        ("fact", "fid", 2**60),
        ("fact", "vector", "AAAA"),
        ("fact", "object", "a\0b"),
        ("working_memory", "memory", '{"goals":[{"text":"a\\u0000b"}]}'),
        ("working_memory", "memory", "not JSON"),
        ("working_memory", "memory", '{"goals":["x"]}'),
        ("working_memory", "memory", '{"through_seq":1e30}'),
        ("working_memory", "memory", json.dumps({"goals": [NOTE]})),
        ("working_memory", "cid", 1),
    ],
)
async def test_a_note_or_a_fact_that_does_not_fit_is_refused(
    lines: list[str], tmp_path: Path, kind: str, name: str, value: object
) -> None:
    at = kinds(lines).index(kind)
    told = summed([*lines[:at], changed(lines[at], name, value), *lines[at + 1 :]])
    assert isinstance(await refused(tmp_path, told), InvalidInput)
    await refused(tmp_path, summed([*lines[:at], lines[at], *lines[at:]]))
    assert summed(lines) == [*lines[:-1], json.dumps(json.loads(lines[-1]))]


async def test_notes_and_facts_come_last(lines: list[str], tmp_path: Path) -> None:
    at = kinds(lines).index("working_memory")
    told = [*lines[: at - 2], *lines[at:-1], *lines[at - 2 : at], lines[-1]]
    assert "should come last" in str(await refused(tmp_path, told))


async def test_what_came_by_an_import_is_forgotten_to_the_last_byte(lines: list[str], tmp_path: Path) -> None:
    async with palaver.open(f"sqlite:///{tmp_path}/to.db") as store:
        talk = await import_dump(store, next(read_dumps(lines)))
        assert talk is not None
        assert _holding(tmp_path, b"zanzibar")
        await talk.forget()
        assert not _holding(tmp_path, b"zanzibar")


def _holding(folder: Path, word: bytes) -> list[Path]:
    return [path for path in folder.glob("to.db*") if path.is_file() and word in path.read_bytes()]


async def test_changed_or_missing_bytes_of_a_file_are_refused(lines: list[str], tmp_path: Path) -> None:
    at = kinds(lines).index("file")
    assert "bytes of attachment" in str(await refused(tmp_path, lines[:at] + lines[at + 1 :]))
    assert "bytes of attachment" in str(
        await refused(tmp_path, [*lines[:at], changed(lines[at], "data", "AAAA"), *lines[at + 1 :]])
    )


async def test_numbers_of_another_database_are_not_taken_over(lines: list[str], tmp_path: Path) -> None:
    told = [changed(line, "tid", 2**60) if json.loads(line)["kind"] == "turn" else line for line in lines]
    told[0] = changed(told[0], "cid", 2**60)
    async with palaver.open(f"sqlite:///{tmp_path}/to.db") as store:
        for dump in read_dumps(told):
            talk = await import_dump(store, dump)
        assert talk is not None
        await talk.append("user", "zanzibar")
        assert len(await store.search("zanzibar")) == 1
        await talk.verify()


async def test_a_conversation_that_was_never_used_travels(tmp_path: Path) -> None:
    async with palaver.open(f"sqlite:///{tmp_path}/chat.db") as store:
        lines = [line async for line in export_lines(await store.conversation("k"))]
        other = store.scoped(palaver.Scope.of("other", None))
        for dump in read_dumps(lines):
            assert await import_dump(other, dump) is not None
        assert (await (await other.conversation("k")).verify()).events == 1


# ---- plain messages ------------------------------------------------------------------------------------------------


def test_messages_are_read_as_they_are() -> None:
    rows = ['{"role": "user", "content": "hi", "metadata": {"hash": "plain text"}}', "", '{"role": "tool"}']
    assert list(read_messages(rows)) == [
        {"role": "user", "content": "hi", "metadata": {"hash": "plain text"}},
        {"role": "tool"},
    ]


@pytest.mark.parametrize(("line", "problem"), [('{"content": "x"}', "role"), ("nope", "is not JSON"), ("5", "object")])
def test_a_line_that_is_no_message_is_refused_by_number(line: str, problem: str) -> None:
    with pytest.raises(InvalidInput, match=f"line 2.*{problem}"):
        list(read_messages(['{"role": "user"}', line]))
