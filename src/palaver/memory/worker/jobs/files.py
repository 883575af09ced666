"""The job `files`: extracts the text of attached files, so that recall finds it."""

from __future__ import annotations

from palaver.core.identity import stamped_seq
from palaver.memory.worker.services import JobServices
from palaver.model import Scope
from palaver.ports.jobs import Job

BATCH = 10


async def run(services: JobServices, job: Job, give_way: bool) -> None:
    """Extract and store the text of every attached file that was not read yet."""
    assert job.conversation is not None
    assert services.files is not None
    scope = Scope.of(job.tenant, None)
    info = await services.engine.conversation(scope, job.conversation)
    first: int | None = None
    while unread := await services.engine.unread_files(scope, job.conversation, BATCH):
        for file in unread:
            text = await services.files.words(scope, job.conversation, file, services.clean_words(info))
            await services.engine.put_file_text(scope, job.conversation, text)
            seq = stamped_seq(file.turn) if file.turn else None
            first = seq if first is None or (seq is not None and seq < first) else first
    if first is not None and services.person.mode_of(job.tenant, info.settings) == "read-write":
        await services.engine.add_job(scope, job.conversation, "person", first)  # to propose what the files say
