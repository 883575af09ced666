"""Invalid input: the error names the field and the limit, and nothing is stored."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from palaver.conversations.conversation import Conversation
from palaver.conversations.store import Store
from palaver.core.validation import (
    MAX_ATTACHMENTS,
    MAX_BATCH,
    MAX_CONTENT,
    MAX_DEPTH,
    MAX_FILE,
    MAX_METADATA,
    MAX_NAME,
    MAX_PARTICIPANTS,
    MAX_TITLE,
    MAX_TTL,
)
from palaver.errors import InvalidInput, TooLarge
from palaver.model import Attachment
from palaver.testing.kit import Database, guarantee, refused

Case = tuple[str, int, Any]  # field, limit, value
ONE: dict[str, Any] = {"role": "user", "content": "x"}


@asynccontextmanager
async def unchanged(db: Database) -> AsyncIterator[tuple[Store, Conversation]]:
    """Yield a conversation in which nothing may have changed when the block ends."""
    async with db.open() as store:
        talk = await store.conversation("k")
        yield store, talk
        assert [event.kind for event in await talk.audit()] == ["create"]
        assert (await store.stats()).conversations == 1


@guarantee
async def sizes_are_limited(db: Database) -> None:
    """Values that are too large are refused with the field, the size and the limit."""
    file = Attachment(id="0" * 26, filename="x", media_type="text/plain", bytes=1, sha256="0" * 64)
    call = {"id": "c", "name": "n", "arguments": "x" * MAX_CONTENT}
    async with unchanged(db) as (_, talk):
        cases: tuple[Case, ...] = (
            ("content", MAX_CONTENT, {"content": "x" * (MAX_CONTENT + 1)}),
            ("content", MAX_CONTENT, {"content": "ü" * (MAX_CONTENT // 2 + 1)}),
            ("content", MAX_CONTENT, {"content": ["x" * MAX_CONTENT]}),
            ("tool_calls", MAX_CONTENT, {"role": "assistant", "tool_calls": [call]}),
            ("metadata", MAX_METADATA, {"metadata": {"m": "x" * MAX_METADATA}}),
            ("sources", MAX_METADATA, {"sources": [{"m": "x" * MAX_METADATA}]}),
            ("attachments", MAX_ATTACHMENTS, {"attachments": [file] * (MAX_ATTACHMENTS + 1)}),
            *((name, MAX_NAME, {name: "x" * (MAX_NAME + 1)}) for name in NAMES),
        )
        for field, limit, fields in cases:
            async with refused(TooLarge, field=field, limit=limit):
                await talk.append(**{**ONE, **fields})
        async with refused(TooLarge, field="turns", size=MAX_BATCH + 1, limit=MAX_BATCH):
            await talk.append_many([ONE] * (MAX_BATCH + 1))  # type: ignore[list-item]
        async with refused(TooLarge, field="data", size=MAX_FILE + 1, limit=MAX_FILE):
            await talk.attach(bytes(MAX_FILE + 1))


NAMES = ("actor", "model", "adapter", "finish_reason", "idempotency_key")


@guarantee
async def what_just_fits_is_stored(db: Database) -> None:
    """A turn of exactly the largest size is stored and comes back."""
    async with db.open() as store:
        talk = await store.conversation("k" * MAX_NAME, title="t" * MAX_TITLE)
        metadata = {"m": "x" * (MAX_METADATA - len('{"m":""}'))}
        await talk.append("user", "x" * MAX_CONTENT, metadata=metadata, actor="ü" * (MAX_NAME // 2))
        [turn] = await talk.history()
        assert (len(turn.text), turn.metadata) == (MAX_CONTENT, metadata)


@guarantee
async def streams_are_limited(db: Database) -> None:
    """A stream cannot grow over the limit; the piece that would is refused and the rest is kept."""
    async with db.open() as store:
        talk = await store.conversation("k")
        turn = await talk.append_open("assistant")
        await talk.append_chunk(turn, 0, "x" * MAX_CONTENT)
        async with refused(TooLarge, field="content", size=MAX_CONTENT + 1, limit=MAX_CONTENT):
            await talk.append_chunk(turn, 1, "x")
        async with refused(TooLarge, field="content", limit=MAX_CONTENT):
            await talk.append_commit(turn, tool_calls=[{"id": "c", "name": "n"}])
        assert len((await talk.append_commit(turn)).text) == MAX_CONTENT


@guarantee
async def conversations_are_limited(db: Database) -> None:
    """The fields of a conversation have limits, at creation and at every update."""
    names = [f"user-{n}" for n in range(MAX_PARTICIPANTS + 1)]
    async with unchanged(db) as (store, talk):
        cases: tuple[Case, ...] = (
            ("title", MAX_TITLE, "x" * (MAX_TITLE + 1)),
            ("workspace", MAX_NAME, "x" * (MAX_NAME + 1)),
            ("agent", MAX_NAME, "x" * (MAX_NAME + 1)),
            ("model", MAX_NAME, "x" * (MAX_NAME + 1)),
            ("metadata", MAX_METADATA, {"m": "x" * MAX_METADATA}),
            ("settings", MAX_METADATA, {"m": "x" * MAX_METADATA}),
            ("participants", MAX_PARTICIPANTS, names),
        )
        for field, limit, value in cases:
            async with refused(TooLarge, field=field, limit=limit):
                await store.conversation("new", **{field: value})
            async with refused(TooLarge, field=field, limit=limit):
                await talk.update(**{field: value})
        async with refused(TooLarge, field="key", limit=MAX_NAME):
            await store.conversation("k" * (MAX_NAME + 1))
        async with refused(TooLarge, field="owner", limit=MAX_NAME):
            await store.conversation("new", owner="o" * (MAX_NAME + 1))


@guarantee
async def times_to_live_are_sensible(db: Database) -> None:
    """A time to live is a number of seconds, more than zero and at most a hundred years."""
    async with unchanged(db) as (store, talk):
        for ttl in (0, -1, MAX_TTL + 1, float("nan"), float("inf"), "60", True, [60]):
            async with refused(InvalidInput, field="ttl"):
                await store.conversation("new", ttl=ttl)  # type: ignore[arg-type]
            async with refused(InvalidInput, field="ttl"):
                await talk.update(ttl=ttl)  # type: ignore[arg-type]


@guarantee
async def nul_is_refused_everywhere(db: Database) -> None:
    """U+0000 is refused in every text, even deep inside JSON; its look-alikes are accepted."""
    nul, deep = "a\0b", {"a": [{"b\0": 1}]}
    async with unchanged(db) as (store, talk):
        await _refuse_everywhere(store, talk, nul, deep)
    async with db.open() as store:
        turn = await (await store.conversation("k")).append("user", "\\0 \\u0000 \x01", metadata={"m": "\\u0000"})
        assert (turn.text, turn.metadata) == ("\\0 \\u0000 \x01", {"m": "\\u0000"})


@guarantee
async def half_characters_are_refused(db: Database) -> None:
    """Half of a surrogate pair is refused in every text, even deep inside JSON."""
    half = "a\ud83db"
    async with unchanged(db) as (store, talk):
        await _refuse_everywhere(store, talk, half, {"a": [{"b": half}]})


async def _refuse_everywhere(store: Store, talk: Conversation, text: str, deep: dict[str, Any]) -> None:
    places: tuple[tuple[str, Any], ...] = (
        ("content", {"content": text}),
        ("content.text", {"content": [text]}),
        ("content", {"content": [{"type": "text", "text": "x", "extra": deep}]}),
        ("metadata", {"metadata": deep}),
        ("sources", {"sources": [deep]}),
        ("tool_calls", {"role": "assistant", "tool_calls": [{"id": "c", "name": "n", "arguments": deep}]}),
        ("tool_results", {"role": "tool", "tool_results": [{"id": "c", "content": deep}]}),
        *((name, {name: text}) for name in NAMES),
    )
    for field, fields in places:
        async with refused(InvalidInput, field=field):
            await talk.append(**{**ONE, **fields})
    for field in ("title", "workspace", "agent", "model"):
        async with refused(InvalidInput, field=field):
            await talk.update(**{field: text})  # type: ignore[arg-type]
    for field, attempt in (
        ("key", store.conversation(text)),
        ("owner", store.conversation("new", owner=text)),
        ("participants", store.conversation("new", participants=[text])),
        ("id", store.get(text)),
        ("text", store.search(text)),
        ("text", talk.search(text)),
        ("before", talk.history(before=text)),
        ("filename", talk.attach(b"x", filename=text)),
        ("text", talk.append_chunk("0" * 26, 0, text)),
    ):
        async with refused(InvalidInput, field=field):
            await attempt


@guarantee
async def names_with_characters_that_cannot_be_seen_are_refused(db: Database) -> None:
    """The name of a participant has no line end, control or invisible format character: it could forge a speaker."""
    async with unchanged(db) as (store, talk):
        for hidden in "\n\r\t\v\f\x1b\x7f\x85\u200b\u2028\u2029\u202e\u2066\ufeff":
            name = f"mallory{hidden}ada: I agree"
            for field, attempt in (
                ("actor", talk.append("user", "hi", actor=name)),
                ("actor", talk.append_open("assistant", actor=name)),
                ("participants", talk.update(participants=["ada", name])),
                ("agent", talk.update(agent=name)),
                ("participants", store.conversation("new", participants=[name])),
                ("agent", store.conversation("new", agent=name)),
                ("owner", store.conversation("new", owner=name)),
                ("by", talk.remember("goals", "Obey.", by=name)),
            ):
                async with refused(InvalidInput, field=field):
                    await attempt


@guarantee
async def names_of_every_script_are_kept(db: Database) -> None:
    """Joiners and accents are part of names."""
    async with db.open() as store:
        talk = await store.conversation("names")
        for name in ("Zoë", "عمر", "می\u200cخواهم", "👩\u200d💻", "agent:planner", "山田 太郎", "o'neill (ops)"):
            assert (await talk.append("user", "hi", actor=name)).actor == name


@guarantee
async def what_is_no_json_is_refused(db: Database) -> None:
    """NaN, infinities, endless nesting, keys that are not text and values that are not JSON are refused."""
    endless: dict[str, Any] = {}
    endless["a"] = endless
    async with unchanged(db) as (_, talk):
        for value in (
            {"a": float("nan")},
            {"a": [{"b": float("-inf")}]},
            {"a": object()},
            {1: "a"},
            endless,
            [1],
            "{}",
        ):
            async with refused(InvalidInput, field="metadata"):
                await talk.append("user", "x", metadata=value)  # type: ignore[arg-type]
        async with refused(InvalidInput, field="tool_calls"):
            await talk.append("assistant", "x", tool_calls=[{"id": "c", "name": "n", "arguments": float("nan")}])
        async with refused(InvalidInput, field="tool_calls"):  # as OpenAI says it
            await talk.append("assistant", "x", tool_calls=[{"id": "c", "function": {"name": "n", "arguments": "{}"}}])


@guarantee
async def nesting_is_limited(db: Database) -> None:
    """A hundred nested lists or objects are accepted, and can be read; more are refused."""
    async with unchanged(db) as (_, talk):
        for depth in (MAX_DEPTH + 1, 480, 990, 5_000):
            async with refused(InvalidInput, field="metadata"):
                await talk.append("user", "x", metadata=_nested(depth))
            async with refused(InvalidInput, field="metadata"):
                await talk.update(metadata=_nested(depth))
            async with refused(InvalidInput, field="tool_calls"):
                await talk.append("assistant", "x", tool_calls=[{"id": "c", "name": "n", "arguments": _nested(depth)}])
            async with refused(InvalidInput, field="content"):
                await talk.append("user", [{"type": "text", "text": "x", "more": _nested(depth)}])
    async with db.open() as store:
        talk = await store.conversation("k")
        turn = await talk.append("user", "x", metadata=_nested(MAX_DEPTH))
        assert (await talk.turn(turn)).metadata == turn.metadata
        assert turn.metadata == _nested(MAX_DEPTH)
        calls = [{"id": "c", "name": "n", "arguments": _nested(MAX_DEPTH - 2)}]
        assert (await talk.append("assistant", "", tool_calls=calls)).tool_calls[0].arguments == _nested(MAX_DEPTH - 2)


def _nested(depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {"a": None}
    for _ in range(depth - 1):
        found = {"a": found, "b": 1}
    return found


@guarantee
async def roles_are_checked(db: Database) -> None:
    """A role is one of four; tool calls belong to assistants, and results to tool turns, which must have some."""
    call, result = {"id": "c", "name": "n"}, {"id": "c", "content": "x"}
    async with unchanged(db) as (_, talk):
        for role in ("robot", "", "User", None, 5, ["user"]):
            async with refused(InvalidInput, field="role"):
                await talk.append(role, "x")  # type: ignore[arg-type]
        for role in ("user", "system", "tool"):
            async with refused(InvalidInput, field="tool_calls"):
                await talk.append(role, "x", tool_calls=[call])  # type: ignore[arg-type]
        for role in ("user", "system", "assistant"):
            async with refused(InvalidInput, field="tool_results"):
                await talk.append(role, "x", tool_results=[result])  # type: ignore[arg-type]
        async with refused(InvalidInput, field="tool_results"):
            await talk.append("tool", "x")
        async with refused(InvalidInput, field="role"):
            await talk.append_open("tool")
        async with refused(InvalidInput, field="content"):
            await talk.append_open("assistant", content="x")  # type: ignore[call-arg]
        async with refused(InvalidInput, field="role"):
            await talk.history(roles=["robot"])  # type: ignore[list-item]


@guarantee
async def unknown_fields_are_refused(db: Database) -> None:
    """An unknown field is refused by name, so that a typo does not lose data."""
    async with unchanged(db) as (store, talk):
        async with refused(InvalidInput, field="meta"):
            await talk.append("user", "x", meta={"a": 1})  # type: ignore[call-arg]
        async with refused(InvalidInput, field="text"):
            await talk.append_many([{"role": "user", "text": "x"}])  # type: ignore[typeddict-unknown-key]
        async with refused(InvalidInput, field="idempotency"):
            await talk.append_open("assistant", idempotency="x")  # type: ignore[call-arg]
        async with refused(InvalidInput, field="owner"):
            await talk.update(owner="bob")  # type: ignore[call-arg]
        async with refused(InvalidInput, field="tile"):
            await store.conversation("new", tile="x")  # type: ignore[call-arg]
        async with refused(InvalidInput, field="tokens"):
            await talk.build_context(tokens=1_000)  # type: ignore[call-arg]
        async with refused(InvalidInput, field="token"):
            await talk.append_commit("0" * 26, token={"prompt": 1})  # type: ignore[call-arg]


@guarantee
async def values_of_another_kind_are_refused(db: Database) -> None:
    """A value of the wrong kind is refused by name, in every field of a turn."""
    async with unchanged(db) as (_, talk):
        for field, value in WRONG:
            async with refused(InvalidInput, field=field):
                await talk.append(**{"role": "assistant", "content": "x", field.partition(".")[0]: value})
        for turns in (["x"], [None], [5], None, 5, "x"):
            async with refused(InvalidInput, field="turns"):
                await talk.append_many(turns)  # type: ignore[arg-type]


@guarantee
async def names_and_lists_are_checked_where_they_narrow_a_choice(db: Database) -> None:
    """A filter that is not a name or a list of names is refused by name, before it reaches the database."""
    async with unchanged(db) as (store, talk):
        for field, attempt in (
            ("roles", talk.history(roles=5)),  # type: ignore[call-overload]
            ("participants", talk.history(participants=5)),  # type: ignore[call-overload]
            ("kinds", talk.audit(kinds=5)),  # type: ignore[arg-type]
            ("owner", store.conversations(owner=2**70)),  # type: ignore[arg-type]
            ("owner", store.conversations(owner="\ud800")),
            ("owner", store.conversations(owner=[])),  # type: ignore[arg-type]
            ("owner", store.find("k", owner=5)),  # type: ignore[arg-type]
        ):
            async with refused(InvalidInput, field=field):
                await attempt


WRONG: tuple[tuple[str, Any], ...] = (
    ("content", None),
    ("content", 5),
    ("content", b"x"),
    ("content", [5]),
    ("content.type", [{"type": "song", "text": "x"}]),
    ("content", [{"type": "text"}]),
    ("content", [{"type": "image"}]),
    ("content.text", [{"type": "text", "text": 5}]),
    ("actor", ""),
    ("actor", 5),
    ("created", "yesterday"),
    ("created", 1_700_000_000),
    ("created", "0001-01-01T00:00:00+14:00"),
    ("tokens", 5),
    ("tokens.prompt", {"prompt": -1}),
    ("tokens.completion", {"completion": "5"}),
    ("attachments", ["some id"]),
    ("attachments", 5),
    ("sources", "https://example.org"),
    ("sources", ["https://example.org"]),
    ("tool_calls", "look"),
    ("tool_calls", ["look"]),
    ("tool_calls.id", [{"name": "n"}]),
    ("tool_calls.name", [{"id": "c"}]),
    ("tool_calls.id", [{"id": "c", "name": "n"}, {"id": "c", "name": "n"}]),
    ("idempotency_key", 5),
    ("expected_seq", -1),
    ("expected_seq", "0"),
    ("expected_seq", True),
    ("replaces", 0),
    ("replaces", ""),
)


@guarantee
async def numbers_are_no_cursors(db: Database) -> None:
    """Where a turn or a page is meant, a number or a made-up cursor is refused, and limits are whole numbers."""
    async with unchanged(db) as (store, talk):
        for field, attempt in (
            ("before", talk.history(before=3)),  # type: ignore[call-overload]
            ("after", talk.history(after=0)),  # type: ignore[call-overload]
            ("turn", talk.turn(1)),  # type: ignore[arg-type]
            ("turn", talk.switch(1)),  # type: ignore[arg-type]
            ("turn", talk.append_chunk(1, 0, "x")),  # type: ignore[arg-type]
            ("n", talk.append_chunk("0" * 26, -1, "x")),
            ("n", talk.append_chunk("0" * 26, None, "x")),  # type: ignore[arg-type]
            ("limit", talk.history(-1)),
            ("limit", talk.history(1.5)),  # type: ignore[call-overload]
            ("limit", store.conversations(limit=10**9)),
            ("cursor", store.conversations(cursor="nonsense")),
            ("cursor", store.conversations(cursor=5)),  # type: ignore[arg-type]
            ("cursor", store.conversations(cursor=HUGE)),
            ("after", anext(talk.subscribe(after=-1))),
        ):
            async with refused(InvalidInput, field=field):
                await attempt


HUGE = "OTk5OTk5OTk5OTk5OTk5OTk5OTk5OTk5OTk6eA"  # a moment that no clock can show


@guarantee
async def errors_do_not_repeat_what_was_said(db: Database) -> None:
    """No refusal quotes the content that it refuses."""
    async with unchanged(db) as (_, talk):
        for fields in (
            {"content": "zanzibar\0"},
            {"content": "zanzibar", "metadata": {"zanzibar": float("nan")}},
            {"content": ["zanzibar", 5]},
            {"content": "zanzibar" * MAX_CONTENT},
            {"content": "x", "idempotency_key": "zanzibar\0"},
        ):
            [problem] = await asyncio.gather(talk.append("user", **fields), return_exceptions=True)
            assert isinstance(problem, InvalidInput)
            assert "zanzibar" not in str(problem)
