"""The jobs of this version: what each kind of job in the queue does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from palaver.memory.worker.jobs import compact, embed, files, person, prove, repair, title
from palaver.memory.worker.services import JobServices
from palaver.ports.jobs import Job

Handler = Callable[[JobServices, Job, bool], Awaitable[None]]
"""Runs a job. With the last argument true it lets writers go first between two steps."""

JOBS: Mapping[str, Handler] = {
    "embed": embed.run,
    "compact": compact.run,
    "title": title.run,
    "files": files.run,
    "repair": repair.run,
    "prove": prove.run,
    "person": person.run,
}
