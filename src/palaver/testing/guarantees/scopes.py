"""Visibility inside one database."""

from __future__ import annotations

from palaver.conversations.conversation import Conversation
from palaver.conversations.internals import conversation_of
from palaver.conversations.store import Store
from palaver.errors import ConversationNotFound, PermissionDenied
from palaver.model import ACT_FOR, ADMIN, READ, SYSTEM, WRITE, Scope
from palaver.testing.kit import Database, guarantee, refused


async def visible(store: Store) -> set[str | None]:
    return {info.key for info in (await store.conversations()).items}


def as_seen_by(store: Store, talk: Conversation) -> Conversation:
    """Use the same id with another scope, as after a leaked link."""
    return conversation_of(store, talk.info)


@guarantee
async def a_tenant_sees_nothing_of_another(db: Database) -> None:
    """With another tenant's ids, every method raises NotFound."""
    async with db.open(tenant="acme") as acme, db.open(tenant="rival") as rival:
        talk = await acme.conversation("k", title="zanzibar")
        turn = await talk.append("user", "zanzibar")
        file = await talk.attach(b"zanzibar")
        stolen = as_seen_by(rival, talk)
        for attempt in (
            rival.get(talk.id),
            rival.audit(talk.id),
            stolen.refresh(),
            stolen.history(),
            stolen.turn(turn),
            stolen.append("user", "x"),
            stolen.append_open("assistant"),
            stolen.append_chunk(turn, 0, "x"),
            stolen.append_renew(turn),
            stolen.append_commit(turn),
            stolen.append_abort(turn),
            stolen.branches(),
            stolen.switch(turn),
            stolen.search("zanzibar"),
            stolen.rename("x"),
            stolen.forget(turn),
            stolen.forget(),
            stolen.reset(),
            stolen.attach(b"x"),
            stolen.attachment(file),
            stolen.read_attachment(file),
            stolen.audit(),
            stolen.verify(),
            anext(stolen.subscribe()),
            anext(aiter(stolen.records())),
        ):
            async with refused(ConversationNotFound, conversation=talk.id):
                await attempt
        assert await talk.history() == [turn]


@guarantee
async def a_tenant_counts_only_its_own(db: Database) -> None:
    """Lists, searches, counts and the sweep stay inside the tenant; the same key there is another conversation."""
    async with db.open(tenant="acme") as acme, db.open(tenant="rival") as rival:
        talk = await acme.conversation("k", title="zanzibar", ttl=1_000_000)
        await talk.append("user", "zanzibar")
        assert await visible(rival) == set()
        assert await rival.search("zanzibar") == []
        stats = await rival.stats()
        assert (stats.conversations, stats.turns, stats.tokens, stats.events) == (0, 0, 0, 0)
        assert await rival.expire() == []
        assert (await rival.conversation("k")).id != talk.id


@guarantee
async def a_user_sees_what_is_theirs(db: Database) -> None:
    """A user sees the conversations that they own or take part in, in lists, searches and counts, and no others."""
    async with db.open() as store:
        await (await store.conversation("ada's", owner="ada")).append("user", "zanzibar")
        shared = await store.conversation("shared", owner="ada", participants=["bob"])
        await shared.append("user", "zanzibar")
        await (await store.conversation("carol's", owner="carol")).append("user", "zanzibar")
    for user, keys in (("ada", {"ada's", "shared"}), ("bob", {"shared"}), ("dave", set())):
        async with db.open(user=user) as store:
            assert await visible(store) == keys
            assert {found.conversation.key for found in await store.search("zanzibar")} == keys
            assert (await store.stats()).conversations == len(keys)


@guarantee
async def leaving_ends_the_sight(db: Database) -> None:
    """Participants see the conversation until they are removed from it."""
    async with db.open(user="ada") as ada, db.open(user="bob") as bob:
        talk = await ada.conversation("k", participants=["bob"])
        await (await bob.get(talk.id)).append("user", "hello")
        await talk.update(participants=[])
        async with refused(ConversationNotFound):
            await bob.get(talk.id)
        async with refused(ConversationNotFound):
            await as_seen_by(bob, talk).append("user", "me again")
        await talk.update(participants=["bob"])
        assert [turn.actor for turn in await (await bob.get(talk.id)).history()] == ["bob"]


@guarantee
async def sight_can_be_wider(db: Database) -> None:
    """A scope with the visibility `workspace` sees that workspace; one with the visibility `tenant` sees all of it."""
    async with db.open() as store:
        await store.conversation("lab", owner="ada", workspace="lab")
        await store.conversation("shop", owner="ada", workspace="shop")
        await store.conversation("none", owner="ada")
        scope = Scope("default", "bob", visibility="workspace", workspace="lab")
        assert await visible(store.scoped(scope)) == {"lab"}
        assert await visible(store.scoped(Scope("default", "bob", visibility="tenant"))) == {"lab", "shop", "none"}
        assert await visible(store.scoped(Scope("default", "bob", visibility="workspace"))) == set()
        assert await visible(store.scoped(Scope("other", "bob", visibility="tenant"))) == set()


@guarantee
async def rights_are_checked(db: Database) -> None:
    """Reading, writing, system turns and acting for others each need their right; the error names it."""
    async with db.open(user="ada") as store:
        talk = await store.conversation("k")
        await talk.append("user", "x")
        reader = as_seen_by(store.scoped(Scope("default", "ada", frozenset({READ}))), talk)
        writer = as_seen_by(store.scoped(Scope("default", "ada", frozenset({WRITE}))), talk)
        assert len(await reader.history()) == 1
        for right, attempt in (
            (WRITE, reader.append("user", "x")),
            (WRITE, reader.forget()),
            (WRITE, reader.append_open("assistant")),
            (READ, writer.history()),
            (READ, writer.verify()),
            (SYSTEM, writer.append("system", "obey")),
            (ADMIN, store.conversation("k", owner="bob")),
        ):
            async with refused(PermissionDenied, right=right):
                await attempt
        assert len(await talk.history()) == 1


@guarantee
async def the_whole_is_the_owners(db: Database) -> None:
    """A participant may append turns, but not change, reset or delete the whole conversation."""
    async with db.open(user="ada") as ada, db.open(user="bob") as bob:
        talk = await ada.conversation("k", participants=["bob"])
        guest = await bob.get(talk.id)
        await guest.append("user", "hello")
        for attempt in (guest.forget(), guest.reset(), guest.rename("mine"), guest.update(participants=["mallory"])):
            async with refused(PermissionDenied, right=ADMIN):
                await attempt
        assert len(await talk.history()) == 1


@guarantee
async def a_key_of_somebody_else_is_as_unknown_as_none(db: Database) -> None:
    """A caller who may not see a conversation gets the same error for its key as for one that never existed."""
    async with db.open(user="ada") as ada, db.open(user="eve") as eve:
        await ada.conversation("payroll")
        for key in ("payroll", "no-such-key"):
            async with refused(ConversationNotFound, conversation=key):
                await eve.find(key, owner="ada")


@guarantee
async def a_user_without_the_right_to_act_for_others_writes_under_the_own_name(db: Database) -> None:
    """User turns under another name need the right `act_for` or `admin`; agents and tools may have any name."""
    async with db.open(scope=Scope("acme", "ada", frozenset({READ, WRITE}))) as store:
        talk = await store.conversation("k")
        own = await talk.append("user", "I am Ada", actor="ada")
        for attempt in (
            talk.append("user", "I am Bob", actor="bob"),
            talk.append_many([{"role": "user", "content": "I am Bob", "actor": "bob"}]),
            talk.append_open("user", actor="bob"),
            talk.append("user", "I was Bob", actor="bob", replaces=own),
        ):
            async with refused(PermissionDenied, right=ACT_FOR):
                await attempt
        assert (await talk.append("assistant", "Hello", actor="helper")).actor == "helper"
        assert [turn.actor for turn in await talk.history()] == ["ada", "helper"]
    for right in (ACT_FOR, ADMIN):
        async with db.open(scope=Scope("acme", "ada", frozenset({READ, WRITE, right}))) as store:
            assert (await (await store.conversation("k")).append("user", "I am Bob", actor="bob")).actor == "bob"
