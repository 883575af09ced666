"""The table of permissions: the rights that each method needs, and which methods are for a conversation's owner alone.

Over HTTP and in MCP an operation needs the rights of the methods behind it, and `read` for the conversation that it
names. Tests go through every operation and every kind of caller, and compare the table with what Postgres enforces
(`palaver.function_rights`). Some arguments need a right of their own: see `ARGUMENTS`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from palaver.model import ADMIN, GENERATE, READ, WRITE, Right


@dataclass(frozen=True, slots=True)
class Permission:
    """The rights that a method needs. `of_owner`: in a conversation of another owner it also needs `admin`."""

    rights: frozenset[Right]
    of_owner: bool = False


def _all(verbs: str, *rights: Right, of_owner: bool = False) -> dict[str, Permission]:
    return {verb: Permission(frozenset(rights), of_owner) for verb in verbs.split()}


VERBS: Mapping[str, Permission] = {
    **_all("Store.person Store.subject"),  # of the methods of what they return
    **_all(
        """Store.get Store.find Store.conversations Store.search Store.audit Store.usage Store.stats Store.budgets
        Conversation.refresh Conversation.history Conversation.turn Conversation.search Conversation.branches
        Conversation.attachments Conversation.attachment Conversation.attachment_text Conversation.read_attachment
        Conversation.read_attachment_range Conversation.data_url Conversation.recall Conversation.build_context
        Conversation.summaries Conversation.facts Conversation.working_memory Conversation.audit Conversation.verify
        Conversation.records Conversation.subscribe Subject.facts Subject.proposals Subject.fact_history Subject.profile
        Subject.recall Subject.export Subject.verify Subject.audit""",
        READ,
    ),
    **_all("Conversation.requests Store.requests", READ, of_owner=True),
    **_all(
        """Store.conversation Store.sweep Store.expire Conversation.append Conversation.append_many Conversation.stream
        Conversation.append_open Conversation.append_chunk Conversation.append_renew Conversation.append_commit
        Conversation.append_abort Conversation.switch Conversation.attach Conversation.open_upload
        Conversation.put_upload Conversation.complete_upload Conversation.forget_fact Conversation.ask_to_stop""",
        WRITE,
    ),
    **_all(
        """Subject.remember Subject.correct Subject.approve Subject.drop Subject.forget Subject.consent Subject.share
        Subject.learn""",
        READ,
        WRITE,
    ),
    **_all(
        "Conversation.remember Conversation.correct Conversation.drop_note Conversation.stop Conversation.correct_fact",
        READ,
        WRITE,
    ),
    **_all("Conversation.update Conversation.rename Conversation.reset", READ, WRITE, of_owner=True),
    **_all("Conversation.forget", WRITE),  # of a turn; see ARGUMENTS
    **_all(
        """Conversation.summarize Conversation.compact Conversation.extract_facts Conversation.generate
        Conversation.generate_stream Store.generate Store.generate_stream""",
        READ,
        WRITE,
        GENERATE,
    ),
    **_all("Store.restore", WRITE, ADMIN),
    **_all("Store.erase_user Store.check_erasure Store.set_budget", ADMIN),
}
# Arguments of a verb, and what they need beyond it.
ARGUMENTS: Mapping[str, str] = {
    "role system": "system",
    "instructions of generate and build_context": "system",
    "actor of a user turn, or author of a note, who is another person": "act_for or admin",
    "user or key of Store.budgets, if it is another one": "admin",
    "owner of Store.conversation who is another person": "admin",
    "Conversation.forget() without a turn": "admin, unless it is one's own conversation",
    "Subject of another person": "admin",
    "Subject that is not a person": "admin, or a place among its readers or writers",
}


def permission_for(verbs: Iterable[str]) -> Permission:
    """Return the rights that an operation with these methods needs."""
    found = [VERBS[verb] for verb in verbs]
    return Permission(frozenset().union(*(one.rights for one in found)), any(one.of_owner for one in found))
