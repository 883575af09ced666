"""In a redacted conversation no field keeps a secret, and names of people are refused rather than changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import palaver
from palaver import Conversation, Store
from palaver.conversations.internals import services_of
from palaver.errors import IdempotencyConflict, InvalidInput, TurnGone
from palaver.model import Image
from palaver.redaction import RuleRedactor
from palaver.redaction.apply import redact_content, redact_json
from tests.support.memory import traces, url

pytestmark = [pytest.mark.both_engines, pytest.mark.usefixtures("engine")]

CARD, MAIL, WORD = "4111 1111 1111 1111", "ada.lovelace@example.com", "hunter2hunter2"
REDACT = {"redact": True}
RULES = RuleRedactor().redact


@pytest.fixture
async def talk(store: Store) -> Conversation:
    return await store.conversation(settings=REDACT)


def no_trace(folder: Path) -> bool:
    return not any(traces(folder, secret) for secret in (CARD, MAIL, WORD, "lovelace"))


async def test_metadata_of_a_turn_is_redacted_with_its_names(tmp_path: Path, talk: Conversation) -> None:
    metadata = {MAIL: 1, "b@example.org": 2, "to": [MAIL, {"card": CARD}], "password": WORD, "kept": "as it is"}
    turn = await talk.append("user", "hi", metadata=metadata)
    to = ["[email]", {"card": "[card]"}]
    assert turn.metadata == {"[email]": 1, "[email] 2": 2, "to": to, "password": "[password]", "kept": "as it is"}
    async with talk.stream("assistant") as out:
        await out.write("hi")
        out.finish(metadata={"mail": MAIL})
    assert out.turn is not None
    assert out.turn.metadata == {"mail": "[email]"}
    assert (await talk.turn(turn)).metadata == turn.metadata
    assert no_trace(tmp_path)
    await talk.verify()


async def test_urls_and_other_fields_of_parts_are_redacted(tmp_path: Path, talk: Conversation) -> None:
    address = f"https://ada:{WORD}@example.org/a.png"
    png = "data:image/png;base64,iVBORw0KGgo="
    parts: list[Any] = [
        {"type": "image", "url": address, "note": MAIL},
        Image(url=f"https://example.org/?mail={MAIL}", extra={"card": CARD}),
        {"type": "image", "url": png},
        {"type": "reasoning", "text": f"ask {MAIL}", "signature": "c2lnbmF0dXJlMTIzNDU2Nzg5MA=="},
    ]
    stored = await talk.append("assistant", parts)
    first, second, third, fourth = stored.content
    assert isinstance(first, Image)
    assert (first.url, first.extra) == ("https://ada:[password]@example.org/a.png", {"note": "[email]"})
    assert second == Image(url="https://example.org/?mail=[email]", extra={"card": "[card]"})
    assert third == Image(url=png)
    assert vars_of(fourth) == ("ask [email]", "c2lnbmF0dXJlMTIzNDU2Nzg5MA==")
    assert no_trace(tmp_path)
    await talk.verify()


def vars_of(part: Any) -> tuple[str, str]:
    return part.text, part.signature


async def test_names_of_fields_announce_what_is_in_tool_calls_results_and_sources(
    tmp_path: Path, talk: Conversation
) -> None:
    call = {"id": "c", "name": "login", "arguments": {"password": WORD, MAIL: "x"}}
    turn = await talk.append("assistant", "", tool_calls=[call], sources=[{"url": f"https://a.example/?m={MAIL}"}])
    assert turn.tool_calls[0].arguments == {"password": "[password]", "[email]": "x"}
    assert turn.sources[0] == {"url": "https://a.example/?m=[email]"}
    result = await talk.append("tool", "", tool_results=[{"id": "c", "content": {"passwd": WORD}}])
    assert result.tool_results[0].content == {"passwd": "[password]"}
    assert no_trace(tmp_path)


async def test_title_and_metadata_of_a_conversation_are_redacted(tmp_path: Path, store: Store) -> None:
    talk = await store.conversation(title=f"About {MAIL}", metadata={"card": CARD, MAIL: 1}, settings=REDACT)
    assert talk.info.title == "About [email]"
    assert talk.info.metadata == {"card": "[card]", "[email]": 1}
    assert (await talk.rename(f"{CARD} is my card")).title == "[card] is my card"
    assert (await talk.update(metadata={"to": MAIL})).metadata == {"to": "[email]"}
    assert no_trace(tmp_path)
    plain = await store.conversation(title="x")
    changed = await plain.update(title=f"About {MAIL}", settings=REDACT)
    assert changed.title == "About [email]", "the settings that it has from now on count"
    await talk.verify()


async def test_file_names_are_redacted_and_keep_their_ending(tmp_path: Path, talk: Conversation) -> None:
    file = await talk.attach(b"hello", filename=f"card {CARD}.txt", media_type="text/plain")
    other = await talk.attach(b"hello", filename=f"{MAIL}.txt")
    assert file.filename == "card [card].txt"
    assert "lovelace" not in other.filename
    upload = await talk.append("user", "here", attachments=[file, other])
    assert [one.filename for one in upload.attachments] == [file.filename, other.filename]
    assert no_trace(tmp_path)
    await talk.verify()


async def test_notes_of_a_person_are_redacted_in_every_conversation(tmp_path: Path, store: Store) -> None:
    talk = await store.conversation()
    notes = await talk.remember("goals", f"Write to {MAIL}")
    assert [note.text for note in notes.goals] == ["Write to [email]"]
    notes = await talk.correct("goals", 0, f"Pay with {CARD}")
    assert [note.text for note in notes.goals] == ["Pay with [card]"]
    assert no_trace(tmp_path)


# ---- idempotency keys ----------------------------------------------------------------------------------------------


async def test_a_key_with_a_secret_is_stored_as_its_hash_and_a_retry_is_recognised(
    tmp_path: Path, talk: Conversation
) -> None:
    first = await talk.append("user", "hi", idempotency_key=f"order of {MAIL}")
    assert await talk.append("user", "hi", idempotency_key=f"order of {MAIL}") == await talk.turn(first)
    with pytest.raises(IdempotencyConflict):
        await talk.append("user", "something else", idempotency_key=f"order of {MAIL}")
    opened = await talk.append_open("assistant", idempotency_key=CARD)
    assert (await talk.append_open("assistant", idempotency_key=CARD)).id == opened.id
    await talk.append_commit(opened)
    edit = await talk.append("user", "ho", idempotency_key=f"edit {MAIL}", replaces=first)
    assert (await talk.append("user", "ho", idempotency_key=f"edit {MAIL}", replaces=first)).id == edit.id
    assert (await talk.append("user", "x", idempotency_key="plain")).idempotency_key == "plain"
    assert no_trace(tmp_path)
    await talk.verify()


async def test_a_retry_of_a_forgotten_turn_with_a_hashed_key_is_refused(talk: Conversation) -> None:
    first = await talk.append("user", "hi", idempotency_key=f"order of {MAIL}")
    await talk.forget(first)
    with pytest.raises(TurnGone):
        await talk.append("user", "hi", idempotency_key=f"order of {MAIL}")
    await talk.verify()


async def test_a_retry_of_a_turn_that_was_stored_with_its_plain_key_is_recognised(store: Store) -> None:
    """Rows of earlier versions, and of the time before the conversation was redacted, hold the key as it was given."""
    talk = await store.conversation()
    first = await talk.append("user", "hi", idempotency_key=f"order of {MAIL}")
    await talk.update(settings=REDACT)
    assert await talk.append("user", "hi", idempotency_key=f"order of {MAIL}") == first


# ---- names ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["agent", "participants"])
async def test_a_name_with_a_secret_is_refused_and_the_error_names_the_field(store: Store, field: str) -> None:
    value: Any = [MAIL] if field == "participants" else MAIL
    with pytest.raises(InvalidInput, match=field) as problem:
        await store.conversation(settings=REDACT, **{field: value})
    assert "email" in str(problem.value)
    assert "lovelace" not in str(problem.value)
    talk = await store.conversation(settings=REDACT)
    with pytest.raises(InvalidInput, match=field):
        await talk.update(**{field: value})
    plain = await store.conversation(**{field: value})
    with pytest.raises(InvalidInput, match=field):
        await plain.update(settings=REDACT)


async def test_an_actor_with_a_secret_is_refused(talk: Conversation) -> None:
    for attempt in (
        talk.append("user", "hi", actor=MAIL),
        talk.append_many([{"role": "assistant", "content": "hi", "actor": CARD}]),
        talk.append_open("assistant", actor=CARD),
        talk.remember("goals", "be kind", by=MAIL),
    ):
        with pytest.raises(InvalidInput, match="holds what looks like a secret") as problem:
            await attempt
        assert problem.value.field in ("actor", "by")
    assert (await talk.append("user", "hi", actor="ada")).actor == "ada"


async def test_an_owner_with_a_secret_is_refused_and_one_from_before_goes_on(tmp_path: Path) -> None:
    async with palaver.open(url(tmp_path), user=MAIL, embedder=None, worker=False) as store:
        with pytest.raises(InvalidInput, match="owner"):
            await store.conversation(settings=REDACT)
        talk = await store.conversation("old")
        services = services_of(talk)  # as a version stored it that did not check names
        services.redaction.handle.info.settings["redact"] = True
        turn = await talk.append("user", f"write to {MAIL}")
        assert (turn.actor, turn.text) == (MAIL, "write to [email]")


# ---- values --------------------------------------------------------------------------------------------------------


def test_redacted_values_stay_as_they_are() -> None:
    value = {"password": WORD, MAIL: [CARD, {"token": "8f14e45fceea167a5a36dedd4bea2543", "n": 1}], "x": None}
    once = redact_json(value, RULES)
    assert once == {"password": "[password]", "[email]": ["[card]", {"token": "[token]", "n": 1}], "x": None}
    assert redact_json(once, RULES) == once
    parts = redact_content([{"type": "text", "text": "call 5550142 soon"}], RULES)
    assert redact_content(parts, RULES) == parts
