"""Routes of maintenance: audit, verify, requests, usage, statistics, sweep, log of keys, settings."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query, Request
from starlette.responses import Response

import palaver
from palaver.audit.erasure import read_receipt, receipt_fields
from palaver.audit.seals import check_seals
from palaver.context.options import POLICIES
from palaver.conversations import api_keys
from palaver.conversations.internals import engine_of, generation_of, models_of
from palaver.core import validation
from palaver.core.rights import require_right
from palaver.errors import VerificationFailed
from palaver.model import ADMIN
from palaver.server import wire
from palaver.server.components import Services
from palaver.server.dependencies import (
    ID,
    CallerDep,
    ConversationDep,
    Reply,
    ServicesDep,
    StoreDep,
    page_path,
    reply_items,
)
from palaver.server.rest import schemas
from palaver.server.rest.models import may_manage

Names = Annotated[list[schemas.Name] | None, Query(min_length=1, max_length=100)]
After = Annotated[int, Query(ge=0, le=schemas.BIG, description="Only events after the one with this number.")]
Limit = Annotated[int, Query(ge=1, le=10_000, description="Maximum number of items.")]


async def audit(
    request: Request,
    store: StoreDep,
    conversation: Annotated[str, Path(**ID, description="The id of the conversation, even if it was deleted.")],
    after: After = 0,
    limit: Limit = 1_000,
    kind: Annotated[Names, Query(description="Only events of this kind. May be repeated.")] = None,
    actor: Annotated[Names, Query(description="Only events of this actor. May be repeated.")] = None,
    turn: Annotated[str | None, Query(max_length=512, min_length=1, description="Only events about this turn.")] = None,
    since: Annotated[schemas.Moment | None, Query(description="Only events from this time on.")] = None,
    until: Annotated[schemas.Moment | None, Query(description="Only events before this time.")] = None,
) -> Response:
    """List the log of a conversation: who did what, and when. It has no content, and is kept after a deletion."""
    found = await store.audit(
        conversation, after=after, limit=limit, kinds=kind, actors=actor, turn=turn, since=since, until=until
    )
    more = page_path(request, after=found[-1].n) if len(found) == limit else None
    return Reply({"items": [wire.event(one) for one in found], "next": more})


async def verify(services: ServicesDep, store: StoreDep, talk: ConversationDep) -> Response:
    """Recompute every hash, replay the log and check its seals. If something is wrong, report the first bad row."""
    try:
        verified = wire.plain(await talk.verify())
        key = services.settings.audit_key
        seals = await check_seals(engine_of(store), key.encode(), store.scope, talk.id) if key else None
        return Reply({"ok": True, **verified, "seals": seals})
    except VerificationFailed as problem:
        return Reply({"ok": False, "conversation": talk.id, "row": problem.row, "problem": problem.problem})


async def list_requests(
    talk: ConversationDep,
    limit: Annotated[int, Query(ge=1, le=100, description="Maximum number of requests.")] = 20,
    turn: Annotated[
        str | None, Query(max_length=512, min_length=1, description="Only requests of this answer.")
    ] = None,
    before: Annotated[
        str | None, Query(max_length=512, min_length=1, description="The id of a request: only requests before it.")
    ] = None,
) -> Response:
    """List the latest requests to models with their responses, oldest first. Secrets are redacted."""
    return reply_items([wire.request(one) for one in await talk.requests(limit, turn=turn, before=before)])


async def usage(
    store: StoreDep,
    since: Annotated[schemas.Moment | None, Query(description="Only days from this time on.")] = None,
    until: Annotated[schemas.Moment | None, Query(description="Only days before this time.")] = None,
    limit: Limit = 1_000,
) -> Response:
    """List the tokens that providers reported, by day (UTC), owner and model, newest day first."""
    return reply_items([wire.plain(one) for one in await store.usage(since=since, until=until, limit=limit)])


async def stats(store: StoreDep) -> Response:
    """Count the conversations, turns and files that the caller may see."""
    found = wire.plain(await store.stats())
    del found["storage"]  # about the machine, for operators only
    return Reply(found)


async def sweep(store: StoreDep, body: schemas.Sweep) -> Response:
    """Delete expired conversations and, with `retention_minutes`, old turns. Needs the right `admin`."""
    require_right(store.scope, ADMIN)
    return Reply(wire.plain(await store.sweep(retention_minutes=body.retention_minutes)))


async def erase_user(services: ServicesDep, store: StoreDep, body: schemas.EraseUser) -> Response:
    """Erase a person permanently, and return a receipt. Needs the right `admin`. It is safe to repeat this."""
    receipt = await store.erase_user(body.user, audit_key=_audit_key(services))
    return Reply(receipt_fields(receipt))


async def verify_erasure(services: ServicesDep, store: StoreDep, body: schemas.CheckErasure) -> Response:
    """Verify that a receipt is unchanged, and that nothing in it exists again. Needs the right `admin`."""
    require_right(store.scope, ADMIN)
    try:
        await store.check_erasure(read_receipt(body.receipt), audit_key=_audit_key(services))
    except VerificationFailed as problem:
        return Reply({"ok": False, "problem": str(problem)})
    return Reply({"ok": True, "problem": None})


def _audit_key(services: Services) -> bytes | None:
    key = services.settings.audit_key
    return None if key is None else key.encode()


async def key_log(request: Request, store: StoreDep, after: After = 0, limit: Limit = 1_000) -> Response:
    """List the log of API keys: when and from where they were created, used, refused or revoked. Needs `admin`."""
    found = await api_keys.key_log(store, after, limit)
    more = page_path(request, after=found[-1].n) if len(found) == limit else None
    return Reply({"items": [wire.event(one) for one in found], "next": more})


async def get_settings(services: ServicesDep, caller: CallerDep) -> Response:
    """Get the rights of the caller, the models, policies and agents of the server, and its limits."""
    await services.model_settings.refresh()
    settings, book = services.settings, models_of(services.store)
    scope = caller.scope
    return Reply(
        {
            "version": palaver.__version__,
            "caller": {
                "tenant": scope.tenant,
                "user": scope.user,
                "rights": sorted(scope.rights),
                "visibility": scope.visibility,
                "sight": scope.visibility,  # the old name, for one release
                "workspace": scope.workspace,
            },
            "auth": {"required": settings.needs_auth, "jwt": settings.has_jwt},
            "limits": {
                "content_bytes": validation.MAX_CONTENT,
                "metadata_bytes": validation.MAX_METADATA,
                "turns_per_batch": validation.MAX_BATCH,
                "file_bytes": validation.MAX_FILE,
                "files_per_turn": validation.MAX_ATTACHMENTS,
                "body_bytes": settings.max_body,
                "requests_per_second": settings.rate,
                "burst": settings.burst,
                "conversations_per_stream": settings.max_feeds,
            },
            "models": {
                "default": book.default,
                "names": sorted(services.models),
                "manageable": may_manage(services, caller),
            },
            "person": settings.person_options["mode"],
            "policies": sorted(POLICIES),
            "agents": sorted(generation_of(services.store).agents),
        }
    )
