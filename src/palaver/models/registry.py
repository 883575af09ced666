"""Models by name: "openai:MODEL", "responses:MODEL", "anthropic:MODEL", "offline", or a name of the application."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from palaver.errors import InvalidInput
from palaver.model import ConversationInfo
from palaver.models.prices import Price
from palaver.ports.models import ChatModel

OFFLINE = "offline"
KINDS = ("openai", "responses", "anthropic")
OPTIONS = ("model", "api_key", "base_url", "timeout", "window", "price")

Named = str | Mapping[str, Any] | ChatModel


@dataclass(slots=True)
class ModelRegistry:
    """Which models there are, and which one answers.

    `names` are the application's own: each stands for another name, for a mapping (model, base_url, api_key, timeout,
    window, price) or for a model that is handed in. "fast" is such a name. `default` is the settings' choice.
    """

    default: str = OFFLINE
    names: Mapping[str, Named] = field(default_factory=dict)
    agents: Mapping[str, str] = field(default_factory=dict)
    workspaces: Mapping[str, str] = field(default_factory=dict)
    _open: dict[str, ChatModel] = field(default_factory=dict)

    def choose(self, info: ConversationInfo, *, call: str | None = None, agent: str | None = None) -> str:
        """The name of the model that answers here: by call, conversation, agent, workspace, settings, in that order."""
        return (
            call
            or info.model
            or self.agents.get(agent or info.agent or "")
            or self.workspaces.get(info.workspace or "")
            or self.default
        )

    @property
    def fast(self) -> str | None:
        """The name "fast", where it stands for something."""
        return "fast" if "fast" in self.names else None

    def chat(self, name: str) -> ChatModel:
        """The model of that name, opened once. Raises InvalidInput, or MissingExtra."""
        if name not in self._open:
            self._open[name] = self._opened(name)
        return self._open[name]

    def price(self, name: str) -> Price | None:
        """What the model of that name costs, where the settings say it."""
        _, known = self._meant(name)
        return Price.of(name, known["price"]) if isinstance(known, Mapping) and "price" in known else None

    def _opened(self, called: str) -> ChatModel:
        name, known = self._meant(called)
        if isinstance(known, Mapping):
            return _with_options(called, known)
        return open_model(name) if known is None else known

    def _meant(self, called: str) -> tuple[str, Mapping[str, Any] | ChatModel | None]:
        """The last of the names that stand for each other, and what that one stands for."""
        name, seen = called, set[str]()
        while isinstance(known := self.names.get(name), str):
            if name in seen:
                raise InvalidInput("model", f"{called!r} stands for itself")
            seen.add(name)
            name = known
        return name, known

    async def aclose(self) -> None:
        """Close what was opened here; a model that was handed in is closed by its maker."""
        for model in self._open.values():
            if not any(model is named for named in self.names.values()) and hasattr(model, "aclose"):
                await model.aclose()


def _with_options(called: str, given: Mapping[str, Any]) -> ChatModel:
    unknown = given.keys() - set(OPTIONS)
    if unknown or not isinstance(given.get("model"), str):
        problem = f"{sorted(unknown)[0]!r} is not known" if unknown else "needs a model"
        raise InvalidInput(f"models.{called}", f"{problem}; there are {', '.join(OPTIONS)}")
    if "price" in given:
        Price.of(called, given["price"])  # refused at once, not at the end of an answer
    rest = {name: value for name, value in given.items() if name not in ("model", "price")}
    return open_model(given["model"], **rest)


def open_model(name: str, **options: Any) -> ChatModel:
    """The model of that name. Keys come from the environment, or from `api_key`."""
    kind, colon, model = name.partition(":")
    if name == OFFLINE:
        from palaver.models.offline.chat import OfflineChat

        return OfflineChat()
    if kind not in KINDS or not colon or not model.strip():
        ways = ", ".join(f"{one}:MODEL" for one in KINDS)
        raise InvalidInput("model", f"{name!r} is not known: use {ways}, {OFFLINE} or a name from models=")
    if kind == "openai":
        from palaver.models.openai.chat import OpenAIChat

        return OpenAIChat(model, **options)
    if kind == "responses":
        from palaver.models.openai.responses import OpenAIResponses

        return OpenAIResponses(model, **options)
    from palaver.models.anthropic import AnthropicMessages

    return AnthropicMessages(model, **options)
