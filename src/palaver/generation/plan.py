"""The decisions that are made before an answer starts: its agent, model, instructions and tools."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from palaver.errors import InvalidInput
from palaver.generation.builtin_tools import make_builtin_tools
from palaver.generation.options import GenerateArguments
from palaver.generation.provider_thread import Continuity
from palaver.generation.services import GenerationServices
from palaver.generation.settings import Agent, GenerateSettings, GenerationContext
from palaver.generation.tools import Toolbox
from palaver.model import Turn
from palaver.models.prices import Price
from palaver.ports.conversation import Thread
from palaver.ports.models import ChatModel, ToolSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerPlan:
    """An answer before it starts. `actor` is the name under which its turns are stored.

    `context` are the options of its contexts, from the call and from the defaults of all levels.
    """

    thread: Thread
    services: GenerationServices
    options: GenerateArguments
    agent: Agent
    model: ChatModel
    price: Price | None
    actor: str
    instructions: str | None
    toolbox: Toolbox
    continuity: Continuity
    context: Mapping[str, Any]

    @property
    def shared(self) -> GenerationContext:
        return self.services.shared

    @property
    def settings(self) -> GenerateSettings:
        return self.services.shared.settings

    @property
    def tool_specs(self) -> tuple[ToolSpec, ...]:
        return (*self.toolbox.specs, *self.options.client_tools)

    @property
    def client_tool_names(self) -> frozenset[str]:
        return frozenset(spec.name for spec in self.options.client_tools)

    def metadata_for(self, question: Turn | None) -> dict[str, object]:
        """Return the metadata of every turn of the answer."""
        answers = {} if question is None else {"answers": question.id}
        return {**self.options.answer_metadata, **answers}


def plan_answer(thread: Thread, services: GenerationServices, options: GenerateArguments) -> AnswerPlan:
    """Choose everything for an answer. Raises InvalidInput for an unknown agent, model or tool."""
    shared = services.shared
    agent = _find_agent(shared, thread, options)
    name = shared.models.choose(thread.info, call=options.model, agent=options.agent)
    model = shared.models.chat(name)
    return AnswerPlan(
        thread=thread,
        services=services,
        options=options,
        agent=agent,
        model=model,
        price=shared.models.price(name),
        actor=options.agent or thread.info.agent or "assistant",
        instructions=options.instructions or agent.instructions or shared.settings.instructions,
        toolbox=_make_toolbox(thread, services, options, agent),
        continuity=(options.continuity or shared.settings.continuity) if model.remembers else "off",
        context=shared.context_options(
            thread.info, {"token_budget": options.token_budget, **options.context}, agent=options.agent
        ),
    )


def _find_agent(shared: GenerationContext, thread: Thread, options: GenerateArguments) -> Agent:
    name = options.agent or thread.info.agent or ""
    if options.agent is not None and options.agent not in shared.agents:
        known = ", ".join(shared.agents) or "none"
        raise InvalidInput("agent", f"{name!r} is not one of agents=: {known}")
    return shared.agents.get(name, Agent())


def _make_toolbox(thread: Thread, services: GenerationServices, options: GenerateArguments, agent: Agent) -> Toolbox:
    """Collect the tools that run here. A client's tool replaces one of the same name."""
    chosen = (agent.tools or services.shared.settings.tools) if options.tools is None else options.tools
    if not chosen:
        return Toolbox()
    toolbox = Toolbox.of(chosen, make_builtin_tools(thread, services.search))
    return toolbox.without({spec.name for spec in options.client_tools})
