"""The options of `generate`: their types, and the checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypedDict

from palaver.context.options import ContextOptions, SharedContextOptions, parse_options
from palaver.core.validation import clean_actor, did_you_mean, synonym
from palaver.errors import InvalidInput
from palaver.generation.answer_place import AnswerPlace
from palaver.generation.provider_thread import Continuity, clean_continuity
from palaver.generation.settings import MODEL_PARAMETERS
from palaver.generation.tool_clearing import ToolClearing
from palaver.generation.tools import Tool, ToolSource
from palaver.model import Attachment, Turn, warn_renamed
from palaver.ports.models import ToolChoice, ToolSpec

CONTEXT_OPTIONS = frozenset(ContextOptions.__annotations__)
DECIDED = frozenset({"viewer", "query", "filter_participants", "message", "preview"})


ToolInput = Tool | ToolSource | Callable[..., object] | str


class ClientMessage(TypedDict):
    """A message of the history that a client sends with its message."""

    role: Literal["user", "assistant"]
    content: str


class GenerateOptions(SharedContextOptions, total=False):
    """Options of `generate` and `generate_stream`.

    - `model`: the name of the model; by default that of the conversation, the agent, the workspace or the store.
    - `agent`: the name of the agent that answers; by default the agent of the conversation.
    - `actor`: the name of the person who wrote the message; by default the user of the store.
    - `tools`: the tools that the model may call: functions, `Tool`s, `MCPTools` and names of built-in tools. By
      default, the tools of the agent or the store.
    - `client_tools`: tools that the caller runs. The answer ends when the model calls one of them.
    - `tool_choice`: `"auto"` (the default), `"none"`, `"required"` or `{"name": …}`, the tool that must be called. The
      last two apply only to the first round of tool calls.
    - `instructions`: the system instructions; by default those of the agent or the store.
    - `history`: messages that the client has kept. They are quoted in the prompt and never stored.
    - `attachments`, `metadata`: files and metadata of the message.
    - `idempotency_key`: a name for this message that you choose. A retry with the same key returns the same answer.
    - `question`: a stored message to answer, instead of a new one; a turn or its id.
    - `replaces`: the stored message that the new one replaces, together with the turns after it. The new message keeps
      the files of the old one unless `attachments` is given.
    - `token_budget`: the maximum number of tokens of the context; by default, it depends on the model.
    - `continuity`: whether to continue the conversation that the provider keeps (Responses API only). `auto`, the
      default, sends only new messages if possible; `with-history` also sends the whole context; `off` never continues.
    - `settings`: parameters of the model's API, such as `{"temperature": 0}`.
    - `stream`: `False` requests the answer from the model in one piece; `True` by default. In both cases, `generate`
      returns the whole answer, and `generate_stream` yields events.
    - `reasoning`: blocks of reasoning that preceded stored tool calls, by the id of the first call, as the provider
      sent them.
    - `all_events`: whether `generate_stream` also yields `Prompted`, `TurnOpened` and finished blocks of reasoning.
    - `answer_metadata`: metadata for the turns of the answer.
    - `clear_tool_uses`: a `ToolClearing` that replaces old tool results in the prompt with a short note. Stored turns
      keep their results.
    """

    model: str | None
    agent: str | None
    actor: str | None
    tools: Sequence[ToolInput] | None
    client_tools: Sequence[ToolSpec]
    tool_choice: ToolChoice
    instructions: str | None
    history: Sequence[ClientMessage] | None
    attachments: Sequence[Attachment]
    metadata: Mapping[str, object] | None
    idempotency_key: str | None
    question: Turn | str | None
    replaces: Turn | str | None
    token_budget: int | None
    continuity: Continuity | None
    settings: Mapping[str, object]
    stream: bool
    reasoning: Mapping[str, Sequence[Mapping[str, object]]]
    all_events: bool
    answer_metadata: Mapping[str, object]
    clear_tool_uses: ToolClearing | None


RENAMED = {"tell_all": "all_events", "marks": "answer_metadata", "thoughts": "reasoning"}


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateArguments:
    """The options of one call of `generate`, checked. `context` holds those that are passed on to `build_context`."""

    message: Any = None
    question: Turn | str | None = None  # a stored message to answer, instead of a new one
    model: str | None = None
    agent: str | None = None
    actor: str | None = None  # the author of the message
    tools: Sequence[Any] | None = None
    client_tools: Sequence[ToolSpec] = ()  # run by the caller: a call of one ends the answer
    tool_choice: ToolChoice = "auto"
    instructions: str | None = None
    history: Sequence[Mapping[str, Any]] | None = None
    attachments: Sequence[Any] | None = None  # None: those of the message that is replaced, if any
    metadata: Mapping[str, Any] | None = None
    idempotency_key: str | None = None
    token_budget: int | None = None
    continuity: Continuity | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    stream: bool = True
    # reasoning before calls that are stored, by the id of the first call
    reasoning: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    all_events: bool = False  # also Prompted, TurnOpened and finished blocks of reasoning
    answer_metadata: Mapping[str, Any] = field(default_factory=dict)  # in the metadata of the turns of the answer
    clear_tool_uses: ToolClearing | None = None
    replaces: Turn | str | None = None
    context: Mapping[str, Any] = field(default_factory=dict)
    place: AnswerPlace | None = None  # reserved by the server, before it stored the question


OWN_OPTIONS = tuple(one.name for one in fields(GenerateArguments) if one.name not in ("message", "context", "place"))


def parse_generate_options(message: Any, keywords: Mapping[str, Any]) -> GenerateArguments:
    """Check the options of one call, before anything is stored. Raises InvalidInput."""
    keywords = _with_new_names(keywords)
    own = {name: value for name, value in keywords.items() if name in OWN_OPTIONS}
    if "tool_choice" in own:
        _check_tool_choice(own["tool_choice"])
    if not isinstance(own.get("clear_tool_uses"), ToolClearing | None):
        raise InvalidInput("clear_tool_uses", "must be a ToolClearing")
    if own.get("continuity") is not None:
        clean_continuity(own["continuity"])
    if own.get("agent") is not None:
        clean_actor("agent", own["agent"])
    with_message = ("attachments", "idempotency_key", *(() if own.get("question") else ("history",)))
    if message is None and any(own.get(name) for name in with_message):
        raise InvalidInput("message", "is needed with history, attachments or an idempotency_key")
    if message is not None and own.get("question") is not None:
        raise InvalidInput("question", "is a stored message: pass either that or a new message")
    rest = {name: value for name, value in keywords.items() if name not in own}
    for name in sorted(rest):
        if name in DECIDED:
            raise InvalidInput(name, "cannot be set here: generate and its agents decide it")
        if name not in CONTEXT_OPTIONS:
            raise InvalidInput(name, _describe_unknown(name))
    parse_options(token_budget=own.get("token_budget"), **rest)
    return GenerateArguments(message=message, context=rest, **own)


def _describe_unknown(name: str) -> str:
    if name in MODEL_PARAMETERS:
        return f"unknown option {name!r}; model parameters go in settings={{{name!r}: …}}"
    known = sorted({*OWN_OPTIONS, *CONTEXT_OPTIONS} - DECIDED)
    hint = did_you_mean(name, known)
    if synonym(name, known) in ("history", "continuity"):  # these names are never parameters of a model
        return f"unknown option {name!r}{hint}"
    return f"unknown option {name!r}{hint}; model parameters go in settings={{{name!r}: …}}"


def _tool_choice_of(may_call: bool, must_call: bool | str) -> ToolChoice:
    """Return the choice that the two old options stand for."""
    if not may_call:
        return "none"
    if isinstance(must_call, str):
        return {"name": must_call}
    return "required" if must_call else "auto"


def _with_new_names(keywords: Mapping[str, Any]) -> Mapping[str, Any]:
    """Replace deprecated option names, each with a warning."""
    given = dict(keywords)
    for old, new in RENAMED.items():
        if old in given:
            warn_renamed(f"generate({old}=…)", new)
            given[new] = given.pop(old)
    if "may_call" in given or "must_call" in given:
        warn_renamed("generate(may_call=…, must_call=…)", "tool_choice")
        given["tool_choice"] = _tool_choice_of(given.pop("may_call", True), given.pop("must_call", False))
    return given


def _check_tool_choice(given: object) -> None:
    if given in ("auto", "none", "required"):
        return
    if not isinstance(given, Mapping) or set(given) != {"name"} or not isinstance(given["name"], str):
        raise InvalidInput("tool_choice", 'must be "auto", "none", "required" or {"name": "<name of a tool>"}')
