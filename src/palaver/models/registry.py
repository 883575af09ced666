"""Models by name: "openai:MODEL", "responses:MODEL", "anthropic:MODEL", "offline", or the application's own names."""

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

MEMBERS = ("name", "adapter", "provider", "window", "remembers", "project", "body", "stream")

Named = str | Mapping[str, object] | ChatModel


@dataclass(slots=True)
class ModelRegistry:
    """The models of one store, and the rules that choose one.

    `names` are the application's own: each maps to another name, to options (model, base_url, api_key, timeout,
    window, price) or to a model object. "fast" is such a name. `default` is the model of the settings.
    """

    default: str = OFFLINE
    names: Mapping[str, Named] = field(default_factory=dict)
    agents: Mapping[str, str] = field(default_factory=dict)
    workspaces: Mapping[str, str] = field(default_factory=dict)
    _open: dict[str, ChatModel] = field(default_factory=dict)

    def choose(self, info: ConversationInfo, *, call: str | None = None, agent: str | None = None) -> str:
        """Return the name of the model for an answer: that of the call, conversation, agent, workspace or settings."""
        return (
            call
            or info.model
            or self.agents.get(agent or info.agent or "")
            or self.workspaces.get(info.workspace or "")
            or self.default
        )

    @property
    def fast(self) -> str | None:
        """The name "fast", if the application has defined it."""
        return "fast" if "fast" in self.names else None

    def chat(self, name: str) -> ChatModel:
        """Return the model of that name; it is opened once. Raises InvalidInput or MissingExtra."""
        if name not in self._open:
            self._open[name] = self._open_named(name)
        return self._open[name]

    def price(self, name: str) -> Price | None:
        """Return the price of the model of that name, if it is configured, or if the application's object has one."""
        _, known = self._resolve(name)
        given = known.get("price") if isinstance(known, Mapping) else getattr(known, "price", None)
        return None if given is None else Price.of(name, given)

    def _open_named(self, called: str) -> ChatModel:
        name, known = self._resolve(called)
        if isinstance(known, Mapping):
            return _open_with_options(called, known)
        return open_model(name) if known is None else known

    def _resolve(self, called: str) -> tuple[str, Mapping[str, object] | ChatModel | None]:
        """Follow a name to the last one, and return that with its options or its model object."""
        name, seen = called, set[str]()
        while isinstance(known := self.names.get(name), str):
            if name in seen:
                raise InvalidInput("model", f"{called!r} refers to itself")
            seen.add(name)
            name = known
        return name, known

    async def replace(self, names: Mapping[str, Named], default: str) -> None:
        """Replace names and default while the store is open. A model whose options changed is opened again."""
        changed = [name for name in self._open if self.names.get(name) != names.get(name)]
        self.names, self.default = names, default
        for name in changed:
            model = self._open.pop(name)
            if hasattr(model, "aclose"):
                await model.aclose()

    async def aclose(self) -> None:
        """Close the models that were opened here, but not the objects that the application passed in."""
        for model in self._open.values():
            if not any(model is named for named in self.names.values()) and hasattr(model, "aclose"):
                await model.aclose()


def check_default_model(given: object) -> str:
    """Refuse a default model that is not a name. Without one, it is the offline model."""
    if given is not None and not isinstance(given, str):
        kind = type(given).__name__
        raise InvalidInput("model", f"must be a name, not {kind}; pass an object as models={{'NAME': …}}, model='NAME'")
    return given or OFFLINE


def check_named_model(called: str, given: object) -> None:
    """Refuse invalid options of a model, and an object that lacks a member of `ChatModel`. All names pass."""
    if isinstance(given, str):
        return
    if isinstance(given, Mapping):
        check_model_options(called, given)
        return
    is_class = isinstance(given, type)
    missing = [name for name in MEMBERS if not hasattr(given, name)]
    if missing or is_class:
        kind = getattr(given, "__name__", type(given).__name__)
        problem = f"{kind} is a class: pass an object of it" if is_class else f"{kind} lacks {', '.join(missing)}"
        ways = "must be the name of a model, a mapping of options, or an object with the members of ChatModel"
        raise InvalidInput(f"models.{called}", f"{ways}; {problem}")


def check_model_options(called: str, given: Mapping[str, object]) -> str:
    """Refuse unknown options, a missing model and an invalid price. Returns the model."""
    unknown = given.keys() - set(OPTIONS)
    model = given.get("model")
    if unknown or not isinstance(model, str):
        problem = f"unknown option {sorted(unknown)[0]!r}" if unknown else "needs a model"
        raise InvalidInput(f"models.{called}", f"{problem}; the options are {', '.join(OPTIONS)}")
    if "price" in given:
        Price.of(called, given["price"])  # so that an invalid price is rejected now, not at the end of an answer
    return model


def _open_with_options(called: str, given: Mapping[str, object]) -> ChatModel:
    model = check_model_options(called, given)
    rest = {name: value for name, value in given.items() if name not in ("model", "price")}
    return open_model(model, **rest)


def open_model(name: str, **options: Any) -> ChatModel:
    """Open a model by its name. Keys come from the environment, or from `api_key`."""
    kind, colon, model = name.partition(":")
    if name == OFFLINE:
        from palaver.models.offline.chat import OfflineChat

        return OfflineChat()
    if kind not in KINDS or not colon or not model.strip():
        ways = ", ".join(f"{one}:MODEL" for one in KINDS)
        raise InvalidInput("model", f"unknown model {name!r}: use {ways}, {OFFLINE} or a name from models=")
    if kind == "openai":
        from palaver.models.openai.chat import OpenAIChat

        return OpenAIChat(model, **options)
    if kind == "responses":
        from palaver.models.openai.responses import OpenAIResponses

        return OpenAIResponses(model, **options)
    from palaver.models.anthropic import AnthropicMessages

    return AnthropicMessages(model, **options)
