"""The job `repair`: writes again what was lost or damaged in derived data, from the turns."""

from __future__ import annotations

from palaver.memory.worker.extraction import Extraction
from palaver.memory.worker.jobs.compact import Compactor
from palaver.memory.worker.model_calls import CallLimit
from palaver.memory.worker.services import JobServices, log
from palaver.model import Scope
from palaver.ports.damage import Damage, describe
from palaver.ports.jobs import Job

ROUNDS = 4  # of repairs: a summary of summaries is only known to be missing when those below it are there


async def run(services: JobServices, job: Job, give_way: bool) -> None:
    """Repair the job's conversation; without one, the tables and the text index of the database."""
    if job.conversation is None:
        await repair_database(services)
    else:
        await repair_conversation(services, job.tenant, job.conversation, give_way=give_way)


async def repair_database(services: JobServices) -> list[Damage]:
    """Repair tables and the text index, and enqueue the conversations in which rows are missing then."""
    found = await services.engine.repair_database()
    if found:
        log.warning("derived data was damaged and is being rebuilt (%s)", describe(found))
    await services.engine.index_all()
    missing = [damage for damage in await services.engine.find_damage() if damage.conversation is not None]
    await services.engine.enqueue_repair(missing)
    return found


async def repair_conversation(
    services: JobServices, tenant: str, conversation: str, *, give_way: bool = False
) -> list[Damage]:
    """Remove what is damaged in the memory of a conversation, and write it again."""
    scope = Scope.of(tenant, None)
    found: list[Damage] = []
    for _ in range(ROUNDS):
        more = await services.engine.repair(scope, conversation)
        if not more:
            break
        log.warning("memory of conversation %s was damaged and is being rebuilt (%s)", conversation, describe(more))
        found += more
        limit = CallLimit(services, scope, conversation, "append")
        await Compactor(services, scope, conversation, limit).compact(give_way=give_way)
    if any(damage.table == "facts" for damage in found):
        limit = CallLimit(services, scope, conversation, "append")
        await Extraction(services, scope, conversation, limit).extract_facts_again()
    return found


async def enqueue_repairs(services: JobServices, tenant: str | None = None) -> list[Damage]:
    """Look for rows that are missing, in all conversations, and enqueue their repair."""
    found = await services.engine.find_damage(tenant)
    if found:
        log.warning("derived data is damaged (%s)", describe(found))
        await services.engine.enqueue_repair(found)
    return found
