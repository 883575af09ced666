"""The job `title`: gives a conversation a title, made from its first turns."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from palaver.core.identity import new_salt
from palaver.errors import PalaverError
from palaver.memory.retention import retention_of
from palaver.memory.worker.model_calls import CallLimit
from palaver.memory.worker.services import JobServices, log
from palaver.memory.worker.writers import model_writer
from palaver.model import ConversationInfo, Scope, Turn
from palaver.models.model_summarizer import plain_title, topic_title
from palaver.ports.jobs import Job
from palaver.ports.queries import ConversationChanges

FIRST_TURNS = 6


async def run(services: JobServices, job: Job, give_way: bool) -> None:
    """Give the conversation a title, unless a user has given it one."""
    assert job.conversation is not None
    scope = Scope.of(job.tenant, None)
    info = await services.engine.conversation(scope, job.conversation)
    turns = await services.engine.span(scope, job.conversation, 0, FIRST_TURNS)
    if info.title is not None or not any(turn.role == "user" and turn.text.strip() for turn in turns):
        return
    written = await _write_title(services, scope, info, await services.clean(turns))
    title = services.redactor.redact(written).text
    if title:
        changes = ConversationChanges(fields=frozenset({"title"}), title=title, salt=new_salt(), if_untitled=True)
        await services.engine.update(scope, job.conversation, changes)


async def _write_title(services: JobServices, scope: Scope, info: ConversationInfo, turns: Sequence[Turn]) -> str:
    """Ask the fast model, or the conversation's own; take the first line if there is none, or it fails or may not."""
    try:
        writer = model_writer(services, scope, info, services.models.fast if services.models is not None else None)
        limit = CallLimit(services, scope, info.id)
        if writer is not None and await limit.refusal(info, waits=False) is None:
            async with asyncio.timeout(services.model_seconds):
                return await writer.title(turns)
    except (PalaverError, TimeoutError) as problem:
        log.warning("no model wrote a title for conversation %s (%s)", info.id, type(problem).__name__)
    return plain_title(turns) if retention_of(info.settings) == "full" else topic_title(turns)
