"""Memory of persons and other subjects."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from palaver.conversations.conversation import Conversation
from palaver.conversations.store import Store
from palaver.errors import PermissionDenied, SubjectNotFound
from palaver.model import RIGHTS, MemoryItem, Scope
from palaver.testing.fakes import FakeClock
from palaver.testing.kit import Database, guarantee, refused


def as_user(store: Store, user: str) -> Store:
    return store.scoped(Scope(store.scope.tenant, user))


def texts(items: list[MemoryItem]) -> list[str]:
    return sorted(item.text for item in items)


async def talk_of(store: Store, user: str, key: str, *said: str, **options: object) -> Conversation:
    talk = await as_user(store, user).conversation(key, **options)  # type: ignore[arg-type]
    for text in said:
        await talk.append("user", text)
    await store.settle()
    return talk


@guarantee
async def a_person_is_remembered_across_conversations(db: Database) -> None:
    """A statement of a user in one conversation is known in all, with the turns that say it, and the log proves it."""
    async with db.open(person="read-write") as store:
        first = await talk_of(store, "ada", "a", "I live in Berlin.", "Please always answer in German.", title="Trip")
        await talk_of(store, "ada", "b", "By the way, I live in Berlin.")
        ada = store.person("ada")
        assert texts(await ada.facts()) == ["Please always answer in German.", "ada lives in Berlin"]
        (home,) = await ada.facts(kind="fact")
        assert [source.title for source in home.sources] == ["Trip", None], "merged, with both sources"
        assert home.sources[0].conversation == first.id
        verified = await ada.verify()
        assert verified is not None
        assert verified.derived == 5, "two items, three sources"
        assert "ada lives in Berlin [from " in await ada.profile()
        assert (await store.conversations()).items[0].title in ("Trip", None)
        assert len((await store.conversations()).items) == 2, "the log of a memory is not a conversation"


@guarantee
async def facts_have_two_times(db: Database) -> None:
    """A later statement ends the earlier one and keeps it; `as_of` returns what was believed then."""
    start = datetime(2026, 1, 1, tzinfo=UTC)
    async with db.open(person="read-write", clock=FakeClock(start + timedelta(days=60))) as store:
        talk = await as_user(store, "ada").conversation("a")
        await talk.append("user", "I moved to Rome.", created=start + timedelta(days=30))
        await store.settle()
        await talk.append("user", "I live in Berlin.", created=start)  # read later, said earlier
        await store.settle()
        ada = store.person("ada")
        assert texts(await ada.facts()) == ["ada lives in Rome"]
        then = await ada.facts(as_of=start + timedelta(days=1))
        assert [(item.text, item.valid_to) for item in then] == [("ada lives in Berlin", None)]
        berlin, rome = await ada.fact_history((await ada.facts())[0])
        assert (berlin.ended_by, berlin.valid_to) == (rome.id, start + timedelta(days=30))


@guarantee
async def facts_of_a_conversation_have_two_times(db: Database) -> None:
    """A fact that another one replaced is kept with the time until which it held, and `as_of` finds it again."""
    start = datetime(2026, 1, 1, tzinfo=UTC)
    async with db.open() as store:
        talk = await store.conversation("a")
        await talk.append("user", "I live in Berlin.", actor="ada", created=start)
        await talk.append("user", "I moved to Rome.", actor="ada", created=start + timedelta(days=30))
        await talk.extract_facts()
        assert [fact.object for fact in await talk.facts()] == ["Rome"]
        (then,) = await talk.facts(as_of=start + timedelta(days=1))
        assert (then.object, then.valid_to, then.learnt) == ("Berlin", None, start)
        berlin, _ = await talk.facts(include_invalidated=True)
        assert berlin.valid_to == start + timedelta(days=30)


@guarantee
async def a_correction_wins(db: Database) -> None:
    """A correction by a person is not changed by statements that are found in turns later: those are only proposed."""
    async with db.open(person="read-write") as store:
        await talk_of(store, "ada", "a", "I live in Berlin.")
        ada = as_user(store, "ada").person("ada")
        await ada.correct((await ada.facts())[0], "Rome")
        await talk_of(store, "ada", "b", "I live in Paris.")
        assert texts(await ada.facts()) == ["ada lives in Rome"]
        (proposal,) = await ada.proposals()
        assert proposal.text == "ada lives in Paris"
        await ada.approve(proposal)
        await ada.drop((await ada.facts(kind="fact"))[-1])
        await ada.verify()


@guarantee
async def deleting_a_source_deletes_what_was_learnt(db: Database) -> None:
    """An item is deleted with the last turn that says it, even if a conversation or another user deletes that turn."""
    async with db.open(person="read-write") as store:
        first = await talk_of(store, "ada", "a", "I live in Berlin.", "I am allergic to nuts.")
        second = await talk_of(store, "ada", "b", "I live in Berlin.", "I moved to Rome.")
        ada = store.person("ada")
        assert texts(await ada.facts()) == ["ada is allergic to nuts", "ada lives in Rome"]
        rome = (await second.history())[1]
        await second.forget(rome)
        assert texts(await ada.facts()) == ["ada is allergic to nuts", "ada lives in Berlin"], "it holds again"
        await first.forget()
        assert texts(await ada.facts()) == ["ada lives in Berlin"], "the other conversation says it, too"
        await second.append("user", "I live in Bonn.", replaces=(await second.history())[0])
        await store.settle()
        assert texts(await ada.facts()) == ["ada lives in Bonn"]
        await ada.verify()
        await second.forget()
        assert await ada.fact_history() == []


@guarantee
async def a_memory_is_for_its_person(db: Database) -> None:
    """Nobody else reads or changes the memory of a person; other subjects are for those with whom they are shared."""
    async with db.open(person="read-write") as store:
        await talk_of(store, "ada", "a", "I live in Berlin.", participants=["bob"])
        bob = as_user(store, "bob")
        other = store.scoped(Scope("another tenant", "ada"))
        assert await other.person("ada").facts() == []
        theirs = bob.person("ada")
        for call in (theirs.facts, theirs.profile, theirs.forget, theirs.export, theirs.audit, theirs.verify):
            async with refused(PermissionDenied):
                await call()
        async with refused(PermissionDenied):
            await theirs.recall("Berlin")
        async with refused(PermissionDenied):
            await theirs.remember("I am rich")
        assert all("Berlin" not in text for text in texts(await bob.person("bob").fact_history()))
        apollo = store.subject("project", "apollo")
        item = await apollo.remember("The launch is in May", kind="fact")
        async with refused(SubjectNotFound):
            await bob.subject("project", "apollo").facts()
        await (
            store.scoped(Scope(store.scope.tenant, None, frozenset(RIGHTS), "tenant"))
            .subject("project", "apollo")
            .share(readers=["bob"], writers=["eve"])
        )
        assert texts(await bob.subject("project", "apollo").facts()) == ["The launch is in May"]
        async with refused(PermissionDenied):
            await bob.subject("project", "apollo").drop(item)
        await as_user(store, "eve").subject("project", "apollo").drop(item)
        assert await apollo.facts() == []


@guarantee
async def only_own_words_are_facts(db: Database) -> None:
    """Statements of others, the assistant and tools about a person are proposed at most, and attributed."""
    async with db.open(person="read-write") as store:
        talk = await as_user(store, "ada").conversation("a", participants=["bob"])
        theirs = await as_user(store, "bob").get(talk.id)
        await theirs.append("user", "ada lives in Oslo.")
        await talk.append("assistant", "ada works at Initech.", actor="bot")
        await talk.append("assistant", "", tool_calls=[{"id": "c", "name": "look", "arguments": {}}], actor="bot")
        await talk.append("tool", "", tool_results=[{"id": "c", "content": "ada is allergic to cats."}])
        await store.settle()
        ada = store.person("ada")
        assert (await ada.facts(), await ada.profile()) == ([], "")
        found = {item.origin: item for item in await ada.proposals()}
        assert found["reported"].text == "bob said that ada lives in Oslo"
        assert set(found) == {"reported", "assistant", "tool"}
        await theirs.append("user", "ada lives in Oslo.", replaces=(await theirs.history())[0])
        await ada.verify()


@guarantee
async def an_erased_person_has_no_memory(db: Database) -> None:
    """Erasing a user erases the memory of that person, and what the person wrote in other memories."""
    async with db.open(person="read-write", scope=Scope("acme", None, frozenset(RIGHTS), "tenant")) as store:
        await talk_of(store, "ada", "a", "I live in Berlin.")
        apollo = store.subject("project", "apollo")
        await apollo.share(writers=["ada"])
        await as_user(store, "ada").subject("project", "apollo").remember("ada likes the blue one")
        await apollo.remember("The launch is in May")
        await store.erase_user("ada")
        assert await store.person("ada").fact_history() == []
        assert texts(await apollo.facts()) == ["The launch is in May"]
        await apollo.verify()


@guarantee
async def persons_are_remembered_only_where_it_is_wanted(db: Database) -> None:
    """Nothing is learnt unless the store, tenant or conversation turns it on; a conversation can be left out."""
    async with db.open() as store:
        await talk_of(store, "ada", "a", "I live in Berlin.")
        assert await store.person("ada").fact_history() == []
        await talk_of(store, "ada", "b", "I am allergic to nuts.", settings={"person": "read-write"})
        assert texts(await store.person("ada").facts()) == ["ada is allergic to nuts"]
    async with db.open(person={"mode": "read-write", "consent": "required"}) as store:
        await talk_of(store, "eve", "c", "I live in Bonn.")
        await store.person("eve").consent(True)
        await talk_of(store, "eve", "d", "I am allergic to dust.")
        await talk_of(store, "eve", "e", "I work as a spy.", settings={"person": "off"})
        assert texts(await store.person("eve").facts()) == ["eve is allergic to dust"]


@guarantee
async def a_memory_can_be_forgotten(db: Database) -> None:
    """A person's memory can be forgotten as a whole; then nothing is left, and it can begin again."""
    async with db.open(person="read-write") as store:
        await talk_of(store, "ada", "a", "I live in Berlin.")
        ada = as_user(store, "ada").person("ada")
        await ada.forget()
        assert (await ada.fact_history(), await ada.audit()) == ([], [])
        await ada.remember("I live in Rome")
        assert texts(await ada.facts()) == ["ada lives in Rome"]
        await ada.verify()
