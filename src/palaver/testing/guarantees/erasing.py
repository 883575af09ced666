"""Erasing a person."""

from __future__ import annotations

from dataclasses import replace

from palaver.conversations.conversation import Conversation
from palaver.conversations.store import Store
from palaver.errors import ConversationGone, PermissionDenied, TurnGone, VerificationFailed
from palaver.interchange.erasures import erasure_lines, import_erasures
from palaver.interchange.jsonl import export_lines, import_dump, read_dumps
from palaver.model import RIGHTS, Scope
from palaver.testing.guarantees.proof import rows
from palaver.testing.kit import Database, guarantee, refused

ADA = "ada-zanzibar"


async def shared_talk(store: Store) -> Conversation:
    """A conversation of bob in which ada takes part."""
    tenant = store.scope.tenant
    bob, ada = store.scoped(Scope.of(tenant, "bob")), store.scoped(Scope.of(tenant, ADA))
    talk = await bob.conversation("k", participants=[ADA, "cy"], title=f"Trip of {ADA}", metadata={"with": ADA})
    await talk.append("user", "from bob")
    hers = await ada.get(talk.id)
    await hers.append("user", "mafia island", metadata={"m": "mafia"})
    await hers.forget(await hers.append("user", "mafia again"))
    await hers.remember("goals", "see mafia island")
    await talk.append("user", "bob again")
    return talk


@guarantee
async def an_erased_person_is_nowhere(db: Database) -> None:
    """Conversations that a person owns are deleted; their turns, notes and name are in no row of others, which stay."""
    async with db.open() as store:
        talk = await shared_talk(store)
        own = await store.scoped(Scope.of(store.scope.tenant, ADA)).conversation("own")
        await own.append("user", "mafia")
        receipt = await store.erase_user(ADA)
        async with refused(ConversationGone):
            await store.get(own.id)
        assert receipt.erased["conversations"] == (own.id,)
        assert len(receipt.erased["turns"]) == 1
        said = repr([await rows(talk), await talk.audit(), await store.audit(own.id), await talk.working_memory()])
        assert ADA not in said
        assert "mafia" not in said
        assert [turn.text for turn in await talk.history()] == ["from bob", "bob again"]
        assert (talk.info.participants, (await talk.refresh()).participants) == ((ADA, "cy"), ("cy",))
        assert (talk.info.title, talk.info.metadata) == ("Trip of [erased]", {"with": "[erased]"})
        async with refused(TurnGone):
            await talk.turn(receipt.erased["turns"][0].partition("/")[2])


@guarantee
async def a_log_without_the_name_is_proved(db: Database) -> None:
    """`verify` accepts the events that lost an erased person's name, and the receipt can be checked."""
    async with db.open() as store:
        talk = await shared_talk(store)
        before = await talk.audit()
        receipt = await store.erase_user(ADA)
        await talk.verify()
        await store.check_erasure(receipt)
        after = await talk.audit()
        assert [event.hash for event in after[: len(before)]] == [event.hash for event in before]
        assert len({event.actor for event in after if event.actor.startswith("erased:")}) == 1
        assert after[-1].kind == "erase"


@guarantee
async def erasing_again_finds_nothing(db: Database) -> None:
    """Erasing the same person again changes nothing."""
    async with db.open() as store:
        talk = await shared_talk(store)
        await store.erase_user(ADA)
        events = await talk.audit()
        assert (await store.erase_user(ADA)).erased == {}
        assert await talk.audit() == events


@guarantee
async def an_import_brings_no_erased_person_back(db: Database) -> None:
    """An export from before an erasure is imported without the person, and a receipt notices what came back."""
    async with db.open(tenant="from") as source, db.open(tenant="to") as target:
        talk = await shared_talk(source)
        lines = [line async for line in export_lines(talk)]
        receipt = await source.erase_user(ADA)
        assert not await import_erasures(target, await erasure_lines(source))
        [dump] = read_dumps(lines)
        copy = await import_dump(target, dump)
        assert copy is not None
        assert ADA not in repr([await rows(copy), await copy.audit()])
        await copy.verify()
        async with refused(VerificationFailed):
            await target.check_erasure(replace(receipt, tenant="to", erased={"conversations": (copy.id,)}))


@guarantee
async def only_an_admin_erases(db: Database) -> None:
    """A user without the right `admin` erases nobody, not even themself."""
    async with db.open() as store:
        talk = await shared_talk(store)
        for user, rights in ((ADA, RIGHTS[:2]), ("bob", RIGHTS[:2]), (None, RIGHTS[:2])):
            scope = Scope(store.scope.tenant, user, frozenset(rights), "tenant")
            async with refused(PermissionDenied):
                await store.scoped(scope).erase_user(ADA)
        assert len(await talk.history()) == 3
