"""An erased person is gone: no name and no word of theirs is in any byte, while the store is open; others stay."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncpg
import pytest

import palaver
from palaver import Conversation, ConversationGone, InvalidInput, PermissionDenied, Scope, Store, VerificationFailed
from palaver.audit.erasure import read_receipt, receipt_fields
from palaver.audit.seals import check_seals, seal_everything
from palaver.conversations.api_keys import check_key_log, create_key, list_keys
from palaver.conversations.internals import clock_of, engine_of
from palaver.interchange.archive import archive_conversation
from palaver.interchange.erasures import erasure_lines, import_erasures
from palaver.interchange.jsonl import export_lines, import_dump, read_dumps
from palaver.testing.fakes import HashEmbedder
from tests.support.memory import ELSEWHERE, url

pytestmark = [pytest.mark.both_engines, pytest.mark.usefixtures("engine")]

ADA, WORD = "adazqxkvw", "zqbcdfghjk"


def opened(folder: Path, **options: Any) -> Any:
    options = {"embedder": HashEmbedder(8), "worker": False, **options}
    return palaver.open(url(folder), files=folder / "files", **options)


async def traces(folder: Path, *words: str) -> list[str]:
    """Which of these words are in a byte or the name of a file, or in any row of a Postgres database."""
    found = []
    for path in folder.rglob("*"):
        data = (path.read_bytes() if path.is_file() else b"") + str(path.relative_to(folder)).encode()
        found += [f"{word} in {path.name}" for word in words if word.encode() in data]
    if folder in ELSEWHERE:
        found += await _rows_with(ELSEWHERE[folder], words)
    return found


async def _rows_with(address: str, words: tuple[str, ...]) -> list[str]:
    db = await asyncpg.connect(address)
    try:
        found = []
        tables = "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname LIKE 'palaver%'"
        for (table,) in await db.fetch(tables):
            await db.execute(f"VACUUM {table}")
            for word in words:
                count = await db.fetchval(f"SELECT count(*) FROM {table} t WHERE strpos(t::text, $1) > 0", word)
                found += [f"{word} in {count} rows of {table}"] if count else []
        return found
    finally:
        await db.close()


async def shared(store: Store, key: str = "shared") -> Conversation:
    """A conversation of bob, in which ada said something, attached files, and wrote a note."""
    bob = store.scoped(Scope.of("default", "bob"))
    talk = await bob.conversation(key, participants=[ADA, "cy"], title=f"A trip with {ADA}, 2026",
                                  metadata={"who": [ADA, "cy"], ADA: 1})  # fmt: skip
    await talk.append("user", "bob speaks of the harbour")
    ada = await store.scoped(Scope.of("default", ADA)).get(talk.id)
    await ada.append("user", f"I live in {WORD}, and my dog is called {WORD}", metadata={"m": WORD},
                     attachments=[await ada.attach(WORD.encode(), filename=f"{WORD}.txt")])  # fmt: skip
    await ada.attach(f"loose {WORD}".encode(), filename="loose.txt")
    await ada.remember("goals", f"see {WORD}")
    await ada.append("assistant", "An answer that she asked for")
    gone = await ada.append("user", f"forgotten {WORD}")
    await ada.forget(gone)
    await talk.append("user", "bob goes on")
    await store.settle()
    await talk.extract_facts()
    return talk


async def filled(store: Store) -> Conversation:
    """The shared conversation, one of ada's own, one that she deleted, and a key."""
    talk = await shared(store)
    ada = store.scoped(Scope.of("default", ADA))
    own = await ada.conversation("own", title=f"{ADA} and {WORD}")
    await own.append("user", f"secret {WORD}", attachments=[await own.attach(WORD.encode(), filename="a.txt")])
    deleted = await ada.conversation("deleted")
    await deleted.append("user", f"more {WORD}")
    await deleted.forget()
    await create_key(store, f"phone of {ADA}", user=ADA)
    await create_key(store.scoped(Scope(user=ADA, rights=frozenset({"admin"}))), "other", user="bob")
    return talk


async def test_no_name_and_no_word_is_left(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        talk = await filled(store)
        assert await traces(tmp_path, ADA, WORD)
        receipt = await store.erase_user(ADA)
        await store.settle()
        assert await traces(tmp_path, ADA, WORD) == []
        assert receipt.scrubbed
        counts = {kind: len(ids) for kind, ids in receipt.erased.items()}
        assert counts == {"conversations": 1, "turns": 1, "files": 1, "notes": 1, "details": 1, "logs": 3, "keys": 1}
        said = [turn.text for turn in await talk.history()]
        assert said == ["bob speaks of the harbour", "An answer that she asked for", "bob goes on"]
        info = await talk.refresh()
        assert (info.title, info.participants) == ("A trip with [erased], 2026", ("cy",))
        assert info.metadata == {"who": ["[erased]", "cy"], "[erased]": 1}
        await talk.verify()
        assert await check_key_log(store) > 2
        assert [key.name for key in await list_keys(store)] == ["other"]
        await store.check_erasure(receipt)


async def test_erasing_again_changes_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        talk = await filled(store)
        await store.erase_user(ADA)
        events = await store.audit(talk.id)
        assert (await store.erase_user(ADA)).erased == {}
        assert await store.audit(talk.id) == events


async def test_an_erasure_ends_even_if_the_person_goes_on_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as store:
        talk, engine = await filled(store), engine_of(store)
        erase_names = engine.erase_names

        async def erase_and_hear_more(*arguments: Any) -> int:
            changed = await erase_names(*arguments)
            await talk.append("user", WORD, actor=ADA)
            return changed

        monkeypatch.setattr(engine, "erase_names", erase_and_hear_more)
        talk = await store.get(talk.id)
        receipt = await store.erase_user(ADA)
        await store.check_erasure(receipt)  # nothing from before its last pass is left
        monkeypatch.undo()
        await store.erase_user(ADA)
        assert await traces(tmp_path, ADA, WORD) == []


async def test_another_erased_name_in_the_same_events_is_proved_too(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        talk = await store.conversation("k", owner="bob", participants=[ADA, "cy"])
        ada = await store.scoped(Scope(user=ADA, rights=frozenset({"read", "write", "act_for"}))).get(talk.id)
        await ada.append("user", "for cy", actor="cy")
        await ada.append("user", "mine")
        await talk.append("user", "bob", actor="bob")
        await store.erase_user(ADA)
        await store.erase_user("cy")
        assert [turn.text for turn in await talk.history()] == ["bob"]
        await talk.verify()
        pseudonyms = {event.actor for event in await talk.audit() if event.actor.startswith("erased:")}
        assert len(pseudonyms) == 2


async def test_a_changed_tombstone_is_found(tmp_path: Path, change: Callable[[str], Any]) -> None:
    async with opened(tmp_path) as store:
        talk = await shared(store)
        await store.erase_user(ADA)
        await talk.verify()
        await change("UPDATE {0}events SET actor = 'erased:00' WHERE n = (SELECT min(n) FROM {0}events e "
                     "WHERE e.actor LIKE 'erased:%')")  # fmt: skip
        with pytest.raises(VerificationFailed, match="event"):
            await talk.verify()


@pytest.fixture
def change(tmp_path: Path) -> Callable[[str], Any]:
    """Run a statement on the tables, as an attacker with access to them would."""

    async def run(sql: str) -> None:
        if tmp_path in ELSEWHERE:
            db = await asyncpg.connect(ELSEWHERE[tmp_path])
            await db.execute(sql.format("palaver."))
            await db.close()
        else:
            import apsw

            path = url(tmp_path).removeprefix("sqlite:///").partition("?")[0]
            db_ = apsw.Connection(path)
            db_.set_busy_timeout(10_000)
            db_.execute(sql.format(""))
            db_.close()

    return run


# ---- what must not come back ---------------------------------------------------------------------------------------


async def exported(store: Store) -> list[str]:
    """Every conversation of the application's tenant, as `palaver export` writes them."""
    page = await store.conversations()
    return [line for one in page.items async for line in export_lines(await store.get(one.id))]


async def test_an_older_export_brings_nothing_back(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await filled(store)
        lines = await exported(store)
        await store.erase_user(ADA)
        tombstones = await erasure_lines(store)
        assert ADA not in "".join(tombstones)
        other = store.scoped(Scope.of("another", None))
        await import_erasures(other, tombstones)
        kept = []
        for dump in read_dumps(lines):
            try:
                kept.append(await import_dump(other, dump))
            except ConversationGone:
                pass
        assert await traces(tmp_path, ADA, WORD) == []
        [talk] = filter(None, kept)
        assert len(await talk.history()) == 3
        await talk.verify()


async def test_tombstones_are_applied_to_what_came_back_before_them(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await filled(store)
        lines = await exported(store)
        receipt = await store.erase_user(ADA)
        other = store.scoped(Scope.of("another", None))
        for dump in read_dumps(lines):
            await import_dump(other, dump)
        assert await traces(tmp_path, ADA, WORD)
        with pytest.raises(VerificationFailed):
            await other.check_erasure(replace(receipt, tenant="another"))
        assert await import_erasures(other, await erasure_lines(store)) == 1
        assert await traces(tmp_path, ADA, WORD) == []
        await other.check_erasure(replace(receipt, tenant="another"))
        assert await import_erasures(other, await erasure_lines(store)) == 0


async def test_who_comes_back_in_person_is_welcome(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await filled(store)
        await store.erase_user(ADA)
        ada = store.scoped(Scope.of("default", ADA))
        talk = await ada.conversation("new")
        await talk.append("user", "here again")
        assert await import_erasures(store, await erasure_lines(store)) == 0
        assert len(await talk.history()) == 1
        receipt = await store.erase_user(ADA)
        assert receipt.erased["conversations"] == (talk.id,)


# ---- the log -------------------------------------------------------------------------------------------------------


async def test_retired_reset_and_archived_events_are_proved_without_the_name(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        bob = store.scoped(Scope.of("default", "bob"))
        talk = await bob.conversation("k", participants=[ADA])
        ada = await store.scoped(Scope.of("default", ADA)).get(talk.id)
        for n in range(4):
            await ada.append("user", f"{WORD} {n}", actor=ADA)
        await talk.reset()
        for n in range(6):
            await ada.append("user", f"{WORD} {n}")
        await engine_of(store).retire(store.scope, talk.id, 7, False)
        await talk.append("user", "bob")
        lines: list[str] = []
        before = (await talk.audit(kinds=["reset"]))[0].at
        await archive_conversation(store, await store.get(talk.id), before, lines.extend)
        assert lines
        await store.erase_user(ADA)
        assert await traces(tmp_path, ADA, WORD) == []
        assert (await talk.verify()).archived == len(lines)
        assert not (await talk.verify(archive=lines)).archived


async def test_seals_hold(tmp_path: Path) -> None:
    key = b"0123456789abcdef"
    async with opened(tmp_path) as store:
        talk = await shared(store)
        await seal_everything(engine_of(store), key, clock_of(store).now())
        receipt = await store.erase_user(ADA, audit_key=key)
        await seal_everything(engine_of(store), key, clock_of(store).now())
        assert await check_seals(engine_of(store), key, store.scope, talk.id) == 2
        await store.check_erasure(receipt, audit_key=key)
        again = read_receipt(json.loads(json.dumps(receipt_fields(receipt))))
        assert again == receipt
        with pytest.raises(VerificationFailed, match="changed"):
            await store.check_erasure(replace(receipt, erased={}), audit_key=key)
        with pytest.raises(VerificationFailed, match="changed"):
            await store.check_erasure(receipt, audit_key=b"another key that is long")


# ---- rights --------------------------------------------------------------------------------------------------------


async def test_only_an_admin_erases(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await filled(store)
        for scope in (Scope.of("default", ADA), Scope.of("default", "bob"), Scope(visibility="tenant")):
            with pytest.raises(PermissionDenied):
                await store.scoped(scope).erase_user(ADA)
        with pytest.raises(InvalidInput, match="role"):
            await store.erase_user("assistant")
        with pytest.raises(InvalidInput):
            await store.erase_user("")
        admin = store.scoped(Scope(user=ADA, rights=frozenset({"read", "write", "admin"})))
        await admin.erase_user(ADA)
        assert await traces(tmp_path, ADA, WORD) == []


async def test_another_tenant_is_not_touched(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        other = store.scoped(Scope.of("another", None))
        talk = await other.conversation("k", owner=ADA)
        await talk.append("user", "in another tenant", actor=ADA)
        await filled(store)
        await store.erase_user(ADA)
        assert [turn.actor for turn in await talk.history()] == [ADA]
