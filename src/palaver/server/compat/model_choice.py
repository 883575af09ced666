"""The configured model that a client's `model` field means."""

from __future__ import annotations

from collections.abc import Mapping

from palaver.conversations.conversation import Conversation
from palaver.models.registry import KINDS, ModelRegistry
from palaver.ports.models import ChatModel
from palaver.server.compat.request import ClientRequest
from palaver.server.components import Services
from palaver.server.errors import Refusal

KIND_OF_SHAPE = {"openai-chat": "openai", "openai-responses": "responses", "anthropic-messages": "anthropic"}


def resolve_model(services: Services, ask: ClientRequest) -> str | None:
    """Find the model by its configured name or by the provider's name. None: the default of the conversation."""
    if not ask.model:
        return None
    if ask.model in services.models:
        return ask.model
    for name in sorted(services.models):
        known = _provider_name(services.registry, name)
        if ask.model in (known, known.partition(":")[2]):
            return name
    if services.settings.any_model:
        has_kind = ask.model.partition(":")[0] in KINDS
        return ask.model if has_kind else f"{KIND_OF_SHAPE.get(ask.shape, 'openai')}:{ask.model}"
    available = ", ".join(sorted(services.models))
    raise Refusal(
        404, f"The model {ask.model[:100]!r} is not configured here; available: {available}", code="model_not_found"
    )


def _provider_name(registry: ModelRegistry, name: str) -> str:
    """Follow aliases to the provider's own name."""
    for _ in range(len(registry.names) + 1):
        known = registry.names.get(name)
        if isinstance(known, str):
            name = known
        elif isinstance(known, Mapping):
            return str(known.get("model", name))
    return name


def choose_model(services: Services, talk: Conversation, name: str | None) -> ChatModel:
    """Return the model that answers in a conversation: the named one, or the conversation's own."""
    chosen = services.registry.choose(talk.info, call=name)
    if chosen not in services.models and not services.settings.any_model:
        raise Refusal(404, "The model of this conversation is not configured here", code="model_not_found")
    return services.registry.chat(chosen)
