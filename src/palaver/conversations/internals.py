"""The way into a store and a conversation for the server, the command line, the test kit and tests.

Applications use the public methods only. These functions are the single place that reads the private attributes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from palaver.conversations.components import Components
    from palaver.conversations.conversation import Conversation
    from palaver.conversations.erasure import Eraser
    from palaver.conversations.maintenance import Maintenance
    from palaver.conversations.services import ConversationServices
    from palaver.conversations.sessions import Sessions
    from palaver.conversations.store import Store
    from palaver.generation.settings import GenerationContext
    from palaver.memory.worker.loop import Worker
    from palaver.model import ConversationInfo
    from palaver.models.registry import ModelRegistry
    from palaver.ports.clock import Clock
    from palaver.ports.engine import Engine
    from palaver.ports.models import Counter


def components_of(store: Store) -> Components:
    """Return the objects that a store works with."""
    return store._components


def engine_of(store: Store) -> Engine:
    """Return the engine of a store."""
    return store._components.engine


async def single_tenant_warning(store: Store) -> str | None:
    """Return a warning if this login of a Postgres server may not do the background work of other tenants."""
    engine = engine_of(store)
    await engine.tenants()  # which asks for those of all
    if getattr(engine, "serves_all_tenants", True):
        return None
    return (
        "this login is not a member of palaver_worker, so background work is done for only the tenant "
        f"'{store.scope.tenant}'. For all tenants: GRANT palaver_worker TO …"
    )


def clock_of(store: Store) -> Clock:
    """Return the clock of a store."""
    return store._components.clock


def worker_of(store: Store) -> Worker:
    """Return the worker that does the memory work of a store."""
    return store._components.worker


def counter_of(store: Store) -> Counter:
    """Return the token counter of a store."""
    return store._components.contexts.counter


def generation_of(store: Store) -> GenerationContext:
    """Return what all answers of a store share: models, settings, agents, the answers in progress."""
    return store._components.generation


def models_of(store: Store) -> ModelRegistry:
    """Return the models that a store can use."""
    return store._components.generation.models


def maintenance_of(store: Store) -> Maintenance:
    """Return what sweeps a store."""
    return store._maintenance


def eraser_of(store: Store) -> Eraser:
    """Return what erases persons from a store."""
    return store._eraser


def sessions_of(store: Store) -> Sessions:
    """Return the sessions that all scopes of a store share."""
    return store._sessions


def conversation_of(store: Store, info: ConversationInfo) -> Conversation:
    """Return a conversation without reading it: one that is damaged, or that the scope may not see."""
    return store._open(info)


def services_of(conversation: Conversation) -> ConversationServices:
    """Return the services behind a conversation."""
    return conversation._services
