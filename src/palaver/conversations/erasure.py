"""Erasing a person. This is the one list of what it removes; the engines' `erasure` modules implement the last three.

| of the person                                        | what happens to it                                          |
|------------------------------------------------------|-------------------------------------------------------------|
| conversations that they own                          | deleted, as `Conversation.forget()` does                    |
| their turns in conversations of others               | forgotten, with all that was derived from them              |
| turns of others that carry a file which they stored  | forgotten: a turn cannot be kept without its file           |
| notes that they wrote or said                        | deleted                                                     |
| what is remembered about them, across conversations  | deleted with its log                                        |
| what they wrote in the memory of another subject     | deleted                                                     |
| their place among the participants                   | removed                                                     |
| their name in titles and metadata of conversations   | replaced by `[erased]`, where it is a word of its own       |
| in which they take part                              |                                                             |
| bodies of requests to models that name them          | deleted                                                     |
| files that no turn has                               | deleted                                                     |
| their API keys                                       | deleted                                                     |
| their name in the logs, and in what is left of turns | replaced by a pseudonym whose key is deleted                |

The memory of a person is a conversation that this person owns, and so are its items and their sources.

The words of others about the person stay. So do keys, workspaces and settings of conversations of others: they are
names that the application chose.

The order: note in the database that the erasure is under way, with the name; erase one conversation after the other,
each step a transaction of its own, until a pass finds nothing; then replace the name with a digest. A crash in between
loses nothing: a sweep, or the same call, continues. The digest stays, so that nothing comes back with an old backup or
export: see `apply_erasures` and `Store.restore`.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace

from palaver.audit.erasure import (
    ErasedPersons,
    check_signature,
    conversation_digest,
    new_key,
    person_digest,
    pseudonym,
    receipt_of,
    sign,
)
from palaver.audit.seals import clean_sealing_key
from palaver.conversations.components import Components
from palaver.conversations.conversation import Conversation
from palaver.conversations.deletion import delete_pending_blobs
from palaver.conversations.internals import services_of
from palaver.core.identity import from_json, micros
from palaver.core.rights import require_right
from palaver.core.validation import clean_name
from palaver.errors import AlreadyImported, ConversationGone, InvalidInput, NotFound, TurnGone, VerificationFailed
from palaver.model import ADMIN, RIGHTS, ROLES, ErasureReceipt, Scope
from palaver.ports.engine import TokenEngine
from palaver.ports.queries import ConversationNames, ErasedName, Erasure, Record
from palaver.ports.subjects import MEMORY_KEYS

PAGE = 100  # conversations that are searched for names in one call
EVER = 2**62  # later than every row
MAX_PASSES = 4  # a person who keeps writing is erased up to the last pass
ERASED_WORD = "[erased]"


@dataclass(frozen=True, slots=True)
class Eraser:
    """Erases persons from one tenant."""

    components: Components
    scope: Scope

    async def erase_user(self, user: str, audit_key: bytes | None) -> ErasureReceipt:
        require_right(self.scope, ADMIN)
        if not self._may_erase():
            raise InvalidInput("user", "can be erased only with the project's secret key, not with a user's token")
        user = clean_name("user", user)
        if user in ROLES:
            raise InvalidInput("user", "is also the name of a role: turns under it may belong to several people")
        key = None if audit_key is None else clean_sealing_key(audit_key)
        receipt = await self._complete(await self._begin(user))
        return receipt if key is None else sign(receipt, key)

    async def resume(self) -> None:
        """Continue the erasures that a crash has interrupted."""
        if not self._may_erase():
            return
        for erasure in await self.components.engine.erasures(self.scope):
            if erasure.user is not None:
                await self._complete(erasure)

    def _may_erase(self) -> bool:
        engine = self.components.engine
        reaches = not isinstance(engine, TokenEngine) or engine.is_service
        return reaches and ADMIN in self.scope.rights

    def _acting(self, user: str) -> Scope:
        """Return the scope that erases: it sees everything, and leaves no trace of the erased person in the log."""
        by = self.scope.user if self.scope.user != user else None
        return Scope(self.scope.tenant, by, frozenset(RIGHTS), "tenant")

    # ---- one erasure

    async def _begin(self, user: str) -> Erasure:
        """Note that the erasure is under way; one that was interrupted is continued."""
        engine = self.components.engine
        known = await engine.erasures(self.scope)
        for erasure in known:
            if erasure.user == user:
                return erasure
        earlier = ErasedPersons(known).find(user)
        salt = earlier.salt if earlier else known[0].salt if known else secrets.token_hex(16)
        new = Erasure(person_digest(salt, user), salt, self._now()) if earlier is None else earlier
        begun = replace(new, started=self._now(), user=user, key=new_key())
        await engine.put_erasure(self.scope, begun)
        return begun

    def _now(self) -> int:
        return micros(self.components.clock.now())

    async def _complete(self, erasure: Erasure) -> ErasureReceipt:
        """Erase everything; after an old backup or export is restored, only what is older than the erasure."""
        name = _name(erasure)
        scope = self._acting(name.user)
        await self._erase_elsewhere(scope, name)  # first: with a key, the person could keep writing
        since = self._now()
        for _ in range(MAX_PASSES):
            since = self._now()
            if not await self._pass(scope, name, since):
                break
        await self._erase_elsewhere(scope, name)
        return await self._finish(erasure, since)

    async def _erase_elsewhere(self, scope: Scope, name: ErasedName) -> None:
        """Erase what belongs to no conversation."""
        while any(await self.components.engine.erase_keys(scope, name)):
            pass

    async def _finish(self, erasure: Erasure, since: int) -> ErasureReceipt:
        """Drop the name and the key of the pseudonym, and return the receipt. Nothing from before `since` is left."""
        engine = self.components.engine
        await delete_pending_blobs(engine, self.components.blobs)
        items: dict[str, list[str]] = {}
        for kind, item in await engine.erased_items(self.scope, erasure.digest):
            items.setdefault(kind, []).append(item)
        deleted = {conversation_digest(erasure.salt, id) for id in items.get("conversations", ())}
        done = replace(
            erasure,
            at=erasure.at if _is_repeated(erasure) else since,
            user=None,
            key=None,
            conversations=tuple(sorted({*erasure.conversations, *deleted})),
        )
        await engine.put_erasure(self.scope, done)
        scrubbed = await engine.scrub()
        return replace(receipt_of(self.scope.tenant, erasure, since, items), scrubbed=scrubbed)

    # ---- conversations

    async def _pass(self, scope: Scope, name: ErasedName, since: int) -> bool:
        """Go through the conversations from before a time once. Returns whether anything was erased.

        If so, more may have been written in the meantime; a conversation from after that time counts as such.
        """
        engine, after, changed = self.components.engine, "", False
        await engine.finish_deletions(scope)  # those that a crash interrupted
        while (await engine.expire(scope)).conversations:
            pass
        while page := await engine.conversation_names(scope, after, PAGE):
            for one in page:
                if name.user in one.names:
                    changed |= one.created >= since or await self._erase_from(scope, one, name)
            after = page[-1].id
        return changed

    async def _erase_from(self, scope: Scope, one: ConversationNames, name: ErasedName) -> bool:
        changed = False
        with suppress(ConversationGone):  # another process has deleted it; the log is left
            if one.gone:
                pass
            elif one.owner == name.user and one.created < name.before:
                await self._delete(scope, one.id, name)
                changed = True
            else:
                changed = await self._leave(scope, one, name)
        return await self.components.engine.erase_names(scope, one.id, name) > 0 or changed

    async def _delete(self, scope: Scope, id: str, name: ErasedName) -> None:
        engine = self.components.engine
        await engine.note_erased(scope, name.digest, "conversations", [id])
        await engine.erase_conversation(scope, id)
        self.components.generation.provider_threads.drop(scope.tenant, id)
        await delete_pending_blobs(engine, self.components.blobs)

    async def _leave(self, scope: Scope, one: ConversationNames, name: ErasedName) -> bool:
        """Erase a person from a conversation that another user owns."""
        engine = self.components.engine
        talk = Conversation(self.components, scope, await engine.conversation(scope, one.id))
        changed, more, turns = False, True, 0
        while more and turns <= talk.info.next_seq:  # the next pass finds those that are appended now
            erased = await engine.erase_turns(scope, one.id, name)
            changed, more = changed or bool(erased.turns or erased.files), erased.more
            turns += len(erased.turns)
        if changed:
            self.components.generation.provider_threads.drop(scope.tenant, one.id)
            await delete_pending_blobs(engine, self.components.blobs)
        if one.updated < name.before:
            changed |= await self._drop_notes(talk, name)
            changed |= await self._drop_corrections(scope, talk, name)
            changed |= await self._drop_items(scope, talk, name)
            changed |= await self._change_details(talk, name)
        return changed

    async def _drop_notes(self, talk: Conversation, name: ErasedName) -> bool:
        memory = services_of(talk).memory
        if not await memory.names(name.user):
            return False
        await self.components.engine.note_erased(self.scope, name.digest, "notes", [talk.id])
        await memory.drop_notes_of(name.user)
        return True

    async def _drop_corrections(self, scope: Scope, talk: Conversation, name: ErasedName) -> bool:
        """Drop the facts that the person wrote; those that they had replaced hold again."""
        found = await services_of(talk).memory.corrections_by(name.user)
        for fact in found:
            await self.components.engine.drop_fact(scope, talk.id, fact)
        return bool(found)

    async def _drop_items(self, scope: Scope, talk: Conversation, name: ErasedName) -> bool:
        """Drop what the person wrote in the memory of another subject, or said about that one."""
        if not (talk.key or "").startswith(MEMORY_KEYS):
            return False
        found = await self.components.engine.items_of_author(scope, talk.id, name.user)
        if found:
            await self.components.engine.note_erased(self.scope, name.digest, "items", found)
            await self.components.engine.drop_items(scope, talk.id, found)
        return bool(found)

    async def _change_details(self, talk: Conversation, name: ErasedName) -> bool:
        info = await talk.refresh()
        participants = [one for one in info.participants if one != name.user]
        title = None if info.title is None else _without_word(info.title, name.user)
        metadata = _without_word_in_all(info.metadata, name.user)
        if (participants, title, metadata) == (list(info.participants), info.title, info.metadata):
            return False
        await self.components.engine.note_erased(self.scope, name.digest, "details", [talk.id])
        await talk.update(participants=participants, title=title, metadata=metadata)
        return True

    # ---- what must not come back

    async def apply_erasures(self, erasures: Sequence[Erasure]) -> int:
        """Take over tombstones from elsewhere, and erase again what an old backup brought back.

        Returns how many persons were found.
        """
        require_right(self.scope, ADMIN)
        engine = self.components.engine
        known = {one.digest: one for one in await engine.erasures(self.scope)}
        for erasure in erasures:
            known[erasure.digest] = merged = _merge(known.get(erasure.digest), erasure)
            await engine.put_erasure(self.scope, merged)
        persons = ErasedPersons(known.values())
        found: dict[str, Erasure] = {}
        after = ""
        while page := await engine.conversation_names(self._acting(""), after, PAGE):
            for one in page:
                await self._delete_again(one, persons)
                found |= _older(one, persons)
            after = page[-1].id
        for user, erasure in found.items():
            await self._complete(await self._begin_again(user, erasure))
        return len(found)

    async def _begin_again(self, user: str, erasure: Erasure) -> Erasure:
        if erasure.user is not None:
            return erasure
        begun = replace(erasure, started=erasure.at, user=user, key=new_key())
        await self.components.engine.put_erasure(self.scope, begun)
        return begun

    async def _delete_again(self, one: ConversationNames, persons: ErasedPersons) -> None:
        """Delete a conversation that was deleted with its owner, even if it has another owner now."""
        if not one.gone and persons.is_deleted(one.id):
            with suppress(ConversationGone):
                await self.components.engine.erase_conversation(self._acting(""), one.id)

    @asynccontextmanager
    async def importing(self, records: Sequence[Record]) -> AsyncIterator[None]:
        """Refuse the conversation of an erased person; erase such persons from others, once they are stored.

        It is noted before: an import that is interrupted is continued by a sweep.
        """
        one = _names_in(records)
        persons = ErasedPersons(await self.components.engine.erasures(self.scope) if self._may_erase() else ())
        owner = persons.find(one.owner)
        if persons.is_deleted(one.id) or (owner is not None and one.created < owner.at):
            raise ConversationGone(one.id)
        found = _older(one, persons)
        begun = [await self._begin_again(user, erasure) for user, erasure in found.items()]
        own = [erasure for erasure in begun if erasure not in found.values()]  # others are under way elsewhere
        try:
            yield
        except (AlreadyImported, ConversationGone, InvalidInput):  # nothing was stored
            await self._finish_all(own)
            raise
        for name in map(_name, begun):
            while await self._erase_from(self._acting(name.user), one, name):
                pass
        await self._finish_all(own)

    async def _finish_all(self, erasures: Sequence[Erasure]) -> None:
        for erasure in erasures:
            await self._finish(erasure, self._now())

    # ---- checking a receipt

    async def check(self, receipt: ErasureReceipt, audit_key: bytes | None) -> None:
        """Raise `VerificationFailed` if a receipt was changed, or something that it lists is there."""
        require_right(self.scope, ADMIN)
        if audit_key is not None:
            check_signature(receipt, clean_sealing_key(audit_key))
        if receipt.tenant != self.scope.tenant:
            raise InvalidInput("receipt", f"is of another tenant, {receipt.tenant}")
        for id in receipt.erased.get("conversations", ()):
            await self._require_gone(id)
        for item in receipt.erased.get("turns", ()):
            conversation, _, turn = item.partition("/")
            await self._require_gone(conversation, turn)
        await self._require_no_name(receipt)

    async def _require_gone(self, conversation: str, turn: str | None = None) -> None:
        engine, scope = self.components.engine, self._acting("")
        with suppress(ConversationGone, TurnGone, NotFound):
            if turn is None:
                await engine.conversation(scope, conversation)
            else:
                await engine.turn(scope, conversation, turn)
            row = f"turn {turn}" if turn else "conversation"
            raise VerificationFailed(conversation, row, "it was erased, but exists again")

    async def _require_no_name(self, receipt: ErasureReceipt) -> None:
        erasure = Erasure(receipt.digest, receipt.salt, micros(receipt.started), micros(receipt.finished))
        persons, after = ErasedPersons([erasure]), ""
        while page := await self.components.engine.conversation_names(self._acting(""), after, PAGE):
            for one in page:
                if _older(one, persons):
                    raise VerificationFailed(
                        one.id, "conversation", "a row from before the erasure still names the person"
                    )
            after = page[-1].id


def _name(erasure: Erasure) -> ErasedName:
    assert erasure.user is not None
    assert erasure.key is not None
    before = erasure.at if _is_repeated(erasure) else EVER
    return ErasedName(erasure.user, pseudonym(erasure.key, erasure.user), erasure.digest, before)


def _is_repeated(erasure: Erasure) -> bool:
    """Return whether an erasure only repeats an earlier one, on rows that came back."""
    return erasure.at > 0 and erasure.started <= erasure.at


def _merge(known: Erasure | None, other: Erasure) -> Erasure:
    if known is None:
        return other
    conversations = tuple(sorted({*known.conversations, *other.conversations}))
    return replace(known, at=max(known.at, other.at), conversations=conversations)


def _older(one: ConversationNames, persons: ErasedPersons) -> dict[str, Erasure]:
    """Return the erased persons whom a conversation names in rows from before their erasure."""
    found = {name: persons.find(name) for name in one.names}
    return {name: erasure for name, erasure in found.items() if erasure is not None and one.names[name] < erasure.at}


def _names_in(records: Sequence[Record]) -> ConversationNames:
    """Return whom the rows of an export name."""
    row = records[0].row
    names = {row["owner"], *from_json(row["participants"])}
    for record in records[1:]:
        names |= {record.row.get("actor"), record.row.get("owner")}
        if record.kind == "event" and record.row["payload"]:
            names.add(from_json(record.row["payload"]).get("by"))
        if record.kind == "working_memory":
            names |= {note.get(one) for note in _notes(record.row["memory"]) for one in ("by", "actor")}
    found = {name: row["created"] for name in names if isinstance(name, str)}  # it is enough that none is later
    return ConversationNames(row["id"], False, row["owner"], row["created"], row["updated"], found)


def _notes(memory: str) -> list[Mapping[str, object]]:
    lists = (one for one in from_json(memory).values() if isinstance(one, list))
    return [note for one in lists for note in one if isinstance(note, dict)]


def _without_word(text: str, user: str) -> str:
    return re.sub(rf"(?<!\w){re.escape(user)}(?!\w)", ERASED_WORD, text)


def _without_word_in_all(fields: Mapping[str, object], user: str) -> dict[str, object]:
    return {_without_word(key, user): _without_word_in(one, user) for key, one in fields.items()}


def _without_word_in(value: object, user: str) -> object:
    """Replace a name in every text of a JSON value, the names of its fields included."""
    if isinstance(value, str):
        return _without_word(value, user)
    if isinstance(value, Mapping):
        return _without_word_in_all(value, user)
    if isinstance(value, list | tuple):
        return [_without_word_in(one, user) for one in value]
    return value
