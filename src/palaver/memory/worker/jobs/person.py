"""The job `person`: what turns of a conversation say of the persons who own it or speak in it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from msgspec import structs

from palaver.core.concurrency import run_in_strides
from palaver.core.identity import stamped_seq
from palaver.memory.facts import FactDraft
from palaver.memory.shapes import SubjectShape
from palaver.memory.subjects import MAX_FILE, ItemDraft, drafts_from_fact, drafts_from_file, drafts_from_turn
from palaver.memory.worker.services import JobServices
from palaver.memory.worker.subjects import SubjectMemory
from palaver.model import PERSON, ROLES, ConversationInfo, Scope, Turn
from palaver.ports.jobs import Job
from palaver.ports.recall import ToEmbed
from palaver.ports.subjects import MEMORY_KEYS

SPAN = 200  # positions that are read at once
READ_WRITE = "read-write"


async def run(services: JobServices, job: Job, give_way: bool) -> None:
    """Learn from the turns of the job's conversation; its argument is the number of the first one."""
    assert job.conversation is not None
    scope = Scope.of(job.tenant, None)
    info = await services.engine.conversation(scope, job.conversation)
    if services.person.mode_of(job.tenant, info.settings) != READ_WRITE or is_memory(info):
        return
    first = job.argument or 0
    start = max(0, first - (info.next_seq - info.turn_count))  # a turn's position is at most its number
    for position in range(start, info.next_seq, SPAN):
        turns = await services.engine.span(scope, info.id, position, position + SPAN)
        await learn(services, scope, info, [turn for turn in turns if turn.seq >= first])
        if give_way:
            await services.throttle.let_writers_go_first()


def is_memory(info: ConversationInfo) -> bool:
    """Return whether a conversation is the log of a subject's memory."""
    return info.key is not None and info.key.startswith(MEMORY_KEYS)


async def learn(services: JobServices, scope: Scope, info: ConversationInfo, turns: Sequence[Turn]) -> None:
    """Store what turns say of each person."""
    if not turns:
        return
    clean = [_with_person(services, turn, info.owner) for turn in await services.clean(turns)]
    people = persons_of(services, info, clean)
    files = await _texts_of_files(services, scope, clean)
    size = sum(len(turn.text) for turn in clean) + sum(len(text) for _, text in files)
    for person in people:
        drafts = await run_in_strides(partial(_drafts, services, clean, files, person, people), size)
        memory = SubjectMemory(services.engine, scope, services.ids, PERSON, person)
        if drafts and await _agrees(services, memory):
            await memory.learn(drafts)


async def learn_facts(
    services: JobServices, scope: Scope, info: ConversationInfo, turns: Sequence[Turn], facts: Sequence[FactDraft]
) -> None:
    """Store facts that a model found and that quote a turn, each for the person who said it."""
    by_id = {turn.id: _with_person(services, turn, info.owner) for turn in turns}
    people = persons_of(services, info, list(by_id.values()))
    for person in people:
        found = [draft for fact in facts if (draft := drafts_from_fact(fact, by_id[fact.source_turn], person))]
        memory = SubjectMemory(services.engine, scope, services.ids, PERSON, person)
        shape = services.shapes.get(PERSON, SubjectShape())
        wanted = [one for one in found if one.status == "approved" or services.person.review != "off"]
        wanted = [one for one in wanted if shape.allows(f"{one.predicate} {one.object}")]
        if wanted and await _agrees(services, memory):
            await memory.learn(wanted)


async def _texts_of_files(services: JobServices, scope: Scope, turns: Sequence[Turn]) -> list[tuple[Turn, str]]:
    """Return the redacted beginning of each file of the turns, as far as it was read; the job `files` comes back."""
    if services.person.review == "off":
        return []
    found = []
    for turn in turns:
        for file in turn.attachments:
            text = await services.engine.file_text(scope, turn.conversation, file.id)
            if text is not None and text.text:
                found.append((turn, services.redactor.redact(text.text[:MAX_FILE]).text))
    return found


def _drafts(
    services: JobServices,
    turns: Sequence[Turn],
    files: Sequence[tuple[Turn, str]],
    person: str,
    people: Sequence[str],
) -> list[ItemDraft]:
    review, shape = services.person.review, services.shapes.get(PERSON, SubjectShape())
    found = [draft for turn in turns for draft in drafts_from_turn(turn, person, people, review)]
    found += [draft for turn, text in files for draft in drafts_from_file(turn, text, person, review)]
    return [one for one in found if shape.allows(f"{one.subject} {one.predicate} {one.object}")]


def persons_of(services: JobServices, info: ConversationInfo, turns: Sequence[Turn]) -> list[str]:
    """Return the owner of a conversation and those who speak in it as users."""
    owner = services.person.person_of("", info.owner)
    speakers = [turn.actor for turn in turns if turn.role == "user"]
    names = [name for name in dict.fromkeys([owner, *speakers]) if name]
    return [name for name in names if name not in ROLES or name == services.person.default_person]


def _with_person(services: JobServices, turn: Turn, owner: str) -> Turn:
    """Return a user turn under the name of its person, where its actor is only the name of a role."""
    person = services.person.person_of(turn.actor, owner) if turn.role == "user" else None
    return structs.replace(turn, actor=person) if person and person != turn.actor else turn


async def _agrees(services: JobServices, memory: SubjectMemory) -> bool:
    if services.person.consent == "assumed":
        return True
    info = await memory.find()
    return info is not None and info.metadata.get("consent") is True


async def enqueue(services: JobServices, batch: Iterable[ToEmbed], job: Job | None) -> None:
    """Enqueue the job for the conversations of new passages, as far as persons are remembered there."""
    first: dict[tuple[str, str], int] = {}
    for one in batch:
        thread = one.thread or (None if job is None or job.conversation is None else (job.tenant, job.conversation))
        seq = None if one.turn is None else stamped_seq(one.turn)
        if thread is not None and seq is not None:
            first[thread] = min(seq, first.get(thread, seq))
    for (tenant, conversation), seq in first.items():
        scope = Scope.of(tenant, None)
        info = await services.engine.conversation(scope, conversation)
        if services.person.mode_of(tenant, info.settings) == READ_WRITE:
            await services.engine.add_job(scope, conversation, "person", seq)
