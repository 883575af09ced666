"""A scope sees nothing of what is not its own, through any method: not found, never forbidden, and no counts."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import palaver
from palaver import Attachment, Conversation, ConversationInfo, ErasureReceipt, Scope, Store, Turn
from palaver.conversations.internals import conversation_of
from palaver.model import Upload
from palaver.ports.queries import Record

pytestmark = pytest.mark.costly  # each case fills two tenants

WORD = "zqbcdfghjklmnp"
OWNER = Scope("acme", "ada")
READ_ONLY = replace(OWNER, rights=frozenset({"read"}))
STRANGERS = {
    "the same user of another tenant": Scope("evil", "ada"),
    "another tenant's application": Scope.of("evil", None),
    "another tenant's admin": Scope("evil", "ada", visibility="tenant").with_rights("system", "admin"),
    "another user": Scope("acme", "eve"),
    "another user who may act for others, but sees only their own": Scope("acme", "eve").with_rights("system", "admin"),
    "another user with sight of another workspace": Scope("acme", "eve", visibility="workspace", workspace="elsewhere"),
    "another user with sight of no workspace": Scope("acme", "eve", visibility="workspace"),
    "nobody, with a sight of their own": Scope("acme", None),
}


@dataclass
class Victim:
    """Ada's conversation, and what a stranger may have got hold of."""

    store: Store
    talk: Conversation
    turn: Turn
    edited: Turn
    pending: Turn
    file: Attachment
    upload: Upload
    records: list[Record]


@pytest.fixture
async def victim(database_url: str, tmp_path: Path) -> AsyncIterator[Victim]:
    async with palaver.open(database_url, scope=OWNER, files=tmp_path / "files") as store:
        talk = await store.conversation("shared-key", title=f"About {WORD}", workspace="sales", agent="bot")
        file = await talk.attach(WORD.encode(), filename=f"{WORD}.txt")
        first = await talk.append("user", WORD, attachments=[file], idempotency_key=WORD)
        edited = await talk.append("user", f"{WORD} edited", replaces=first)
        async with aclosing(talk.records()) as pages:
            records = [record async for page in pages for record in page]
        upload = await talk.open_upload("x.txt")
        pending = await talk.append_open("assistant")
        await talk.append_chunk(pending, 0, WORD)
        await store.settle()  # so that no later event is the worker's
        yield Victim(store, talk, first, edited, pending, file, upload, records)
        await talk.verify()
        assert (await talk.turn(pending)).text == WORD
        assert len(await talk.history()) == 2


async def first(source: AsyncIterator[Any]) -> Any:
    async with aclosing(source) as items:  # type: ignore[type-var]
        return await anext(items)


async def awaited(result: Awaitable[Any]) -> Any:
    return await result


async def stream(talk: Conversation, **options: Any) -> None:
    async with talk.stream("assistant", **options) as out:
        await out.write("x")


def verbs(cls: type) -> set[str]:
    return {name for name, value in inspect.getmembers(cls, callable) if not name.startswith("_")}


# ---- a conversation's verbs ----------------------------------------------------------------------------------------

Case = Callable[[Conversation, Victim], Awaitable[Any]]

# Called on a conversation that the scope cannot see.
ON_A_STRANGERS: dict[str, Case] = {
    "refresh": lambda talk, v: talk.refresh(),
    "append": lambda talk, v: talk.append("user", "x"),
    "append_many": lambda talk, v: talk.append_many([{"role": "user", "content": "x"}]),
    "stream": lambda talk, v: stream(talk),
    "append_open": lambda talk, v: talk.append_open("assistant"),
    "append_chunk": lambda talk, v: talk.append_chunk(v.pending, 1, "x"),
    "append_commit": lambda talk, v: talk.append_commit(v.pending),
    "append_abort": lambda talk, v: talk.append_abort(v.pending),
    "append_renew": lambda talk, v: talk.append_renew(v.pending),
    "history": lambda talk, v: talk.history(),
    "turn": lambda talk, v: talk.turn(v.turn),
    "search": lambda talk, v: talk.search(WORD),
    "branches": lambda talk, v: talk.branches(),
    "switch": lambda talk, v: talk.switch(v.turn),
    "update": lambda talk, v: talk.update(title="x"),
    "rename": lambda talk, v: talk.rename("x"),
    "forget": lambda talk, v: talk.forget(),
    "reset": lambda talk, v: talk.reset(),
    "attach": lambda talk, v: talk.attach(b"x", filename="x.txt"),
    "attachment": lambda talk, v: talk.attachment(v.file),
    "read_attachment": lambda talk, v: talk.read_attachment(v.file),
    "data_url": lambda talk, v: talk.data_url(v.file),
    "attachments": lambda talk, v: talk.attachments(),
    "read_attachment_range": lambda talk, v: talk.read_attachment_range(v.file, 0, 1),
    "attachment_text": lambda talk, v: talk.attachment_text(v.file),
    "open_upload": lambda talk, v: talk.open_upload("x.txt"),
    "put_upload": lambda talk, v: talk.put_upload(v.upload, b"x"),
    "complete_upload": lambda talk, v: talk.complete_upload(v.upload),
    "subscribe": lambda talk, v: first(talk.subscribe()),
    "audit": lambda talk, v: talk.audit(),
    "verify": lambda talk, v: talk.verify(),
    "records": lambda talk, v: first(talk.records()),
    "recall": lambda talk, v: awaited(talk.recall(WORD)),
    "build_context": lambda talk, v: talk.build_context(1_000, query=WORD),
    "summarize": lambda talk, v: talk.summarize(),
    "summaries": lambda talk, v: talk.summaries(),
    "compact": lambda talk, v: talk.compact(),
    "working_memory": lambda talk, v: talk.working_memory(),
    "remember": lambda talk, v: talk.remember("goals", "x"),
    "correct": lambda talk, v: talk.correct("goals", 0, "x"),
    "drop_note": lambda talk, v: talk.drop_note("goals", 0),
    "extract_facts": lambda talk, v: talk.extract_facts(),
    "facts": lambda talk, v: talk.facts(),
    "correct_fact": lambda talk, v: talk.correct_fact("0" * 26, "Rome"),
    "forget_fact": lambda talk, v: talk.forget_fact("0" * 26),
    "generate": lambda talk, v: talk.generate("x"),
    "generate_stream": lambda talk, v: first(talk.generate_stream(None)),
    "stop": lambda talk, v: talk.stop(),
    "ask_to_stop": lambda talk, v: talk.ask_to_stop(),
    "requests": lambda talk, v: talk.requests(),
}
# Not verbs: what the verbs themselves use, and nothing of a conversation is in it.
TOOLS: set[str] = set()

# Called on the scope's own conversation, with ids out of the other one.
WITH_A_STRANGERS_IDS: dict[str, Case] = {
    "append replaces": lambda talk, v: talk.append("user", "x", replaces=v.edited),
    "append replaces, discarding": lambda talk, v: talk.append("user", "x", replaces=v.edited.id, discard_after=True),
    "append attachments": lambda talk, v: talk.append("user", "x", attachments=[v.file]),
    "append_open replaces": lambda talk, v: talk.append_open("user", replaces=v.edited),
    "append_chunk": lambda talk, v: talk.append_chunk(v.pending, 1, "x"),
    "append_commit": lambda talk, v: talk.append_commit(v.pending),
    "append_abort": lambda talk, v: talk.append_abort(v.pending),
    "append_renew": lambda talk, v: talk.append_renew(v.pending),
    "history before": lambda talk, v: talk.history(before=v.turn),
    "history after": lambda talk, v: talk.history(after=v.turn.id),
    "history in all": lambda talk, v: talk.history(after=v.turn, include_superseded=True),
    "turn": lambda talk, v: talk.turn(v.turn.id),
    "branches": lambda talk, v: talk.branches(v.turn),
    "switch": lambda talk, v: talk.switch(v.turn),
    "forget": lambda talk, v: talk.forget(v.turn),
    "attachment": lambda talk, v: talk.attachment(v.file),
    "read_attachment": lambda talk, v: talk.read_attachment(v.file.id),
    "data_url": lambda talk, v: talk.data_url(v.file),
    "read_attachment_range": lambda talk, v: talk.read_attachment_range(v.file, 0, 1),
    "attachment_text": lambda talk, v: talk.attachment_text(v.file.id),
    "put_upload": lambda talk, v: talk.put_upload(v.upload, b"x"),
    "complete_upload": lambda talk, v: talk.complete_upload(v.upload),
}


def test_every_verb_of_a_conversation_has_a_case() -> None:
    assert verbs(Conversation) - TOOLS == set(ON_A_STRANGERS)


@pytest.mark.parametrize("who", STRANGERS)
async def test_a_method_on_another_users_conversation_finds_nothing(
    victim: Victim, who: str, subtests: pytest.Subtests
) -> None:
    store = victim.store.scoped(STRANGERS[who])
    for verb, case in ON_A_STRANGERS.items():
        for info in (victim.talk.info, replace(victim.talk.info, owner=STRANGERS[who].user or "")):
            with subtests.test(verb, owner=info.owner):
                await finds_nothing_more_than_a_missing_one(case, store, info, victim)


async def finds_nothing_more_than_a_missing_one(
    case: Case, store: Store, info: ConversationInfo, victim: Victim
) -> None:
    """The error is the same as for an id that never existed."""
    with pytest.raises(palaver.ConversationNotFound) as problem:
        await case(conversation_of(store, info), victim)
    with pytest.raises(palaver.ConversationNotFound) as same:
        await case(conversation_of(store, replace(info, id="0" * 26)), victim)
    assert str(problem.value) == str(same.value).replace("0" * 26, info.id)


@pytest.mark.parametrize("who", ["the same user of another tenant", "another user"])
async def test_ids_of_another_users_conversation_lead_nowhere(
    victim: Victim, who: str, subtests: pytest.Subtests
) -> None:
    own = await victim.store.scoped(STRANGERS[who]).conversation("own")
    await own.append_many([{"role": "user", "content": "own"}] * 4)
    for name, case in WITH_A_STRANGERS_IDS.items():
        with subtests.test(name):
            with pytest.raises((palaver.TurnNotFound, palaver.AttachmentNotFound)):
                await case(own, victim)
            assert [turn.text for turn in await own.history()] == ["own"] * 4
    await own.verify()


@pytest.mark.parametrize("who", ["the same user of another tenant", "another user"])
async def test_an_audit_by_another_users_turn_is_empty(victim: Victim, who: str) -> None:
    own = await victim.store.scoped(STRANGERS[who]).conversation("own")
    assert await own.audit(turn=victim.turn) == []


# ---- the store's verbs ---------------------------------------------------------------------------------------------


async def lists_nothing(store: Store, v: Victim) -> None:
    assert (await store.conversations()).items == ()
    assert (await store.conversations(owner="ada", workspace="sales", agent="bot")).items == ()
    page = await v.store.conversations(limit=1)
    assert page.items[0].id == v.talk.id


async def finds_nothing(store: Store, v: Victim) -> None:
    for text in (WORD, WORD[:6], f"about {WORD}", "About", "edited"):
        assert await store.search(text) == []


async def reports_nothing(store: Store, victim: Victim) -> None:
    assert await store.usage() == []


async def counts_nothing(store: Store, v: Victim) -> None:
    stats = await store.stats()
    counts = (stats.conversations, stats.turns, stats.tokens, stats.events, stats.attachments, stats.attachment_bytes)
    assert counts == (0,) * 6
    assert stats.storage["open_streams"] == 0


async def expires_nothing(store: Store, v: Victim) -> None:
    assert await store.expire() == []


async def finds_no_such_key(store: Store, v: Victim) -> None:
    await not_found(store.find("shared-key"))
    await not_found(store.find("shared-key", owner="ada"))


async def sweeps_nothing(store: Store, v: Victim) -> None:
    swept = await store.sweep(retention_minutes=0.000_001)
    assert (swept.conversations, swept.turns) == ((), 0)


async def gets_another_one(store: Store, v: Victim) -> None:
    if store.scope.user is None and "admin" not in store.scope.rights:
        with pytest.raises(palaver.PermissionDenied):  # it is nobody, so it can own nothing
            await store.conversation("shared-key")
        return
    talk = await store.conversation("shared-key")
    assert talk.id != v.talk.id
    assert (talk.info.title, await talk.history()) == (None, [])
    assert (await store.stats()).conversations == 1


def contents(v: Victim) -> dict[str, bytes]:
    return {record.row["id"]: WORD.encode() for record in v.records if record.kind == "attachment"}


async def brings_in_a_copy_of_its_own(store: Store, v: Victim) -> None:
    if "admin" not in store.scope.rights or store.scope.visibility != "tenant":
        with pytest.raises(palaver.PalaverError):
            await store.restore(v.records, contents(v))
        return
    copy = await store.restore(v.records, contents(v))
    assert copy is not None
    await copy.append("user", "only here")
    await copy.forget()
    assert await v.talk.read_attachment(v.file) == WORD.encode()


def is_admin_of_another_tenant(store: Store) -> bool:
    return "admin" in store.scope.rights and store.scope.tenant != OWNER.tenant


async def learns_nothing_from_a_receipt(store: Store, v: Victim) -> None:
    now = v.turn.created
    receipt = ErasureReceipt(
        tenant=store.scope.tenant, salt="", digest="", started=now, finished=now, erased={"conversations": (v.talk.id,)}
    )
    if is_admin_of_another_tenant(store):
        await store.check_erasure(receipt)  # as if it were not there
    elif "admin" not in store.scope.rights:
        await denied(store.check_erasure(receipt))


async def erases_nobody_elsewhere(store: Store, v: Victim) -> None:
    """The right `admin` covers everybody of its own tenant, so an admin of the victim's is left out."""
    if is_admin_of_another_tenant(store):
        await store.erase_user("ada")
        assert (await v.talk.history())[0].text == f"{WORD} edited"
    elif "admin" not in store.scope.rights:
        await denied(store.erase_user("ada"))


def is_admin_of_the_victim(store: Store) -> bool:
    """Budgets and memories of the whole tenant are for its admins."""
    return "admin" in store.scope.rights and store.scope.tenant == OWNER.tenant


async def reads_no_memory_of_others(store: Store, v: Victim) -> None:
    subjects: dict[str, Callable[[Store], Any]] = {
        "person": lambda one: one.person("ada"),
        "subject": lambda one: one.subject("project", "apollo"),
    }
    for subject in () if is_admin_of_the_victim(store) else subjects.values():
        await subject(v.store.scoped(Scope.of(OWNER.tenant, None))).remember(WORD)
        try:
            assert await subject(store).facts() == []
        except (palaver.PermissionDenied, palaver.NotFound):
            pass


async def reads_no_budget_of_others(store: Store, v: Victim) -> None:
    application = v.store.scoped(Scope.of(OWNER.tenant, None))
    await application.set_budget("user", "ada", requests_per_day=200)
    if "admin" in store.scope.rights or store.scope.user == "ada":
        assert is_admin_of_the_victim(store) or await store.budgets(user="ada") == []
    else:
        await denied(store.budgets(user="ada"))


async def sets_no_budget_of_others(store: Store, v: Victim) -> None:
    if is_admin_of_the_victim(store):
        return
    if "admin" in store.scope.rights:
        await store.set_budget("user", "ada", requests_per_day=1)
    else:
        await denied(store.set_budget("user", "ada", requests_per_day=1))
    assert [line.limit for line in await v.store.budgets()] == [200]


async def denied(work: Awaitable[Any]) -> None:
    with pytest.raises(palaver.PermissionDenied):
        await work


async def not_found(work: Awaitable[Any]) -> None:
    with pytest.raises(palaver.ConversationNotFound):
        await work


STORE_CASES: dict[str, Callable[[Store, Victim], Awaitable[None]]] = {
    "get": lambda store, v: not_found(store.get(v.talk.id)),
    "find": finds_no_such_key,
    "sweep": sweeps_nothing,
    "conversations": lists_nothing,
    "search": finds_nothing,
    "audit": lambda store, v: not_found(store.audit(v.talk.id)),
    "generate": lambda store, v: not_found(store.generate(v.talk.id, "x")),
    "generate_stream": lambda store, v: not_found(first(store.generate_stream(v.talk.id, "x"))),
    "requests": lambda store, v: not_found(store.requests(v.talk.id)),
    "expire": expires_nothing,
    "stats": counts_nothing,
    "usage": reports_nothing,
    "check_erasure": learns_nothing_from_a_receipt,
    # These leave conversations of the stranger's own behind, and the last one removes some of them.
    "restore": brings_in_a_copy_of_its_own,
    "conversation": gets_another_one,
    "budgets": reads_no_budget_of_others,
    "set_budget": sets_no_budget_of_others,
    "person": reads_no_memory_of_others,
    "subject": reads_no_memory_of_others,
    "erase_user": erases_nobody_elsewhere,
}
# Not about anybody's conversation: they take a scope, check a value, or do postponed work for the whole file.
HOUSEKEEPING = {"aclose", "scoped", "settle", "signed_in"}


def test_every_verb_of_a_store_has_a_case() -> None:
    assert verbs(Store) == set(STORE_CASES) | HOUSEKEEPING


@pytest.mark.parametrize("who", STRANGERS)
async def test_a_store_shows_nothing_of_another_user(victim: Victim, who: str, subtests: pytest.Subtests) -> None:
    for verb, case in STORE_CASES.items():
        with subtests.test(verb):
            await case(victim.store.scoped(STRANGERS[who]), victim)


async def test_what_is_gone_is_not_found_by_strangers_either(victim: Victim) -> None:
    talk = await victim.store.conversation("short")
    await talk.append("user", WORD)
    await talk.forget()
    with pytest.raises(palaver.ConversationGone):
        await victim.store.get(talk.id)
    for scope in STRANGERS.values():
        await not_found(victim.store.scoped(scope).get(talk.id))
        await not_found(victim.store.scoped(scope).audit(talk.id))


async def test_a_page_cursor_of_another_user_shows_nothing(victim: Victim) -> None:
    for n in range(3):
        await victim.store.conversation(f"more {n}")
    cursor = (await victim.store.conversations(limit=1)).cursor
    assert cursor is not None
    for scope in STRANGERS.values():
        assert (await victim.store.scoped(scope).conversations(cursor=cursor)).items == ()


async def test_the_same_key_in_another_tenant_or_of_another_owner_is_another_conversation(victim: Victim) -> None:
    scopes = [OWNER, Scope("evil", "ada"), Scope("acme", "eve"), Scope.of("acme", None), Scope.of("evil", None)]
    ids = [(await victim.store.scoped(scope).conversation("shared-key")).id for scope in scopes]
    assert len(set(ids)) == len(ids)
    assert ids[0] == victim.talk.id


# ---- who does see --------------------------------------------------------------------------------------------------


async def sees(store: Store, id: str) -> bool:
    """By every way in: by id, in the list, by search and in the counts; all or none of them."""
    listed = id in {info.id for info in (await store.conversations()).items}
    found = id in {hit.conversation.id for hit in await store.search(WORD)}
    counted = (await store.stats()).conversations > 0
    try:
        await (await store.get(id)).history()
        got = True
    except palaver.ConversationNotFound:
        got = False
    assert listed == found == counted == got
    return got


async def test_a_participant_sees_until_removed(victim: Victim) -> None:
    bob = victim.store.scoped(Scope("acme", "bob"))
    assert not await sees(bob, victim.talk.id)
    await victim.talk.update(participants=["bob", "carol"])
    assert await sees(bob, victim.talk.id)
    assert not await sees(victim.store.scoped(Scope("evil", "bob")), victim.talk.id)
    theirs = await bob.get(victim.talk.id)
    said = await theirs.append("user", "from bob")
    assert said.actor == "bob"
    await victim.talk.forget(said)
    await victim.talk.update(participants=["carol"])
    assert not await sees(bob, victim.talk.id)
    for case in ON_A_STRANGERS.values():
        with pytest.raises(palaver.ConversationNotFound):
            await case(theirs, victim)


async def test_what_concerns_the_whole_conversation_is_not_for_participants(victim: Victim) -> None:
    await victim.talk.update(participants=["bob"])
    theirs = await victim.store.scoped(Scope("acme", "bob")).get(victim.talk.id)
    for verb in ("update", "rename", "forget", "reset"):
        with pytest.raises(palaver.PermissionDenied):
            await ON_A_STRANGERS[verb](theirs, victim)


async def test_sight_of_a_workspace_or_of_the_tenant_shows_what_is_there_and_no_more(victim: Victim) -> None:
    private = await victim.store.conversation("private", title=WORD)
    sales = victim.store.scoped(Scope("acme", "eve", visibility="workspace", workspace="sales"))
    assert await sees(sales, victim.talk.id)
    with pytest.raises(palaver.ConversationNotFound):
        await sales.get(private.id)
    assert len((await sales.conversations()).items) == 1
    tenant = victim.store.scoped(Scope("acme", "eve", visibility="tenant"))
    assert len((await tenant.conversations()).items) == 2
    await victim.talk.update(workspace="elsewhere")
    assert not await sees(sales, victim.talk.id)


async def test_acting_for_another_owner_needs_the_admin_right(victim: Victim) -> None:
    eve = Scope("acme", "eve")
    with pytest.raises(palaver.PermissionDenied):
        await victim.store.scoped(eve).conversation("shared-key", owner="ada")
    with pytest.raises(palaver.PermissionDenied):
        await victim.store.scoped(eve).conversation("no-such-key", owner="ada")
    admin = victim.store.scoped(replace(eve, rights=eve.rights | {"admin"}, visibility="tenant"))
    assert (await admin.conversation("shared-key", owner="ada")).id == victim.talk.id
    assert (await victim.store.conversation("shared-key", owner="ada")).id == victim.talk.id


# ---- rights --------------------------------------------------------------------------------------------------------

READING = {
    "refresh", "history", "turn", "search", "branches", "attachment", "read_attachment", "data_url", "subscribe",
    "attachments", "read_attachment_range", "attachment_text",
    "audit", "verify", "records", "recall", "build_context", "summaries", "working_memory", "facts",
    "requests",
}  # fmt: skip
MORE_WAYS_TO_WRITE: dict[str, Case] = {
    "forget one turn": lambda talk, v: talk.forget(v.turn),
    "stream, kept at its end": lambda talk, v: stream(talk, flush="end"),
}


async def test_a_scope_that_may_only_read_cannot_write_by_any_verb(victim: Victim, subtests: pytest.Subtests) -> None:
    talk = await victim.store.scoped(READ_ONLY).get(victim.talk.id)
    before = len(await victim.talk.audit())
    writing = {verb: case for verb, case in ON_A_STRANGERS.items() if verb not in READING}
    for verb, case in {**writing, **MORE_WAYS_TO_WRITE}.items():
        with subtests.test(verb):
            with pytest.raises(palaver.PermissionDenied) as problem:
                await case(talk, victim)
            assert problem.value.right == "write"
            assert len(await victim.talk.audit()) == before


async def test_a_scope_that_may_only_read_can_read_by_every_verb(victim: Victim, subtests: pytest.Subtests) -> None:
    talk = await victim.store.scoped(READ_ONLY).get(victim.talk.id)
    before = len(await victim.talk.audit())
    for verb in sorted(READING):
        with subtests.test(verb):
            await ON_A_STRANGERS[verb](talk, victim)
            assert len(await victim.talk.audit()) == before


async def test_a_store_that_may_only_read_creates_expires_and_imports_nothing(victim: Victim) -> None:
    store = victim.store.scoped(READ_ONLY)
    for write in (
        lambda: store.conversation("shared-key"),
        lambda: store.conversation("new"),
        lambda: store.expire(),
        lambda: store.sweep(),
        lambda: store.restore(victim.records, contents(victim)),
    ):
        with pytest.raises(palaver.PermissionDenied):
            await write()
    assert (await victim.store.stats()).conversations == 1


async def test_a_scope_that_may_only_write_reads_nothing(victim: Victim) -> None:
    talk = conversation_of(victim.store.scoped(replace(OWNER, rights=frozenset({"write"}))), victim.talk.info)
    for verb in READING:
        with pytest.raises(palaver.PermissionDenied):
            await ON_A_STRANGERS[verb](talk, victim)


async def test_system_turns_need_their_own_right(victim: Victim) -> None:
    talk = await victim.store.scoped(replace(OWNER, rights=frozenset({"read", "write"}))).get(victim.talk.id)
    for write in (
        lambda: talk.append("system", "obey"),
        lambda: talk.append_many([{"role": "system", "content": "obey"}]),
        lambda: talk.append_open("system"),
        lambda: talk.append("system", "obey", replaces=victim.edited),
    ):
        with pytest.raises(palaver.PermissionDenied):
            await write()
