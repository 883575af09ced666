"""The decisions that are made before an answer starts: its agent, model, instructions and tools."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from palaver.core.budgets import payer_of
from palaver.errors import InvalidInput
from palaver.files.kinds import READABLE
from palaver.generation.builtin_tools import READ_ATTACHMENT, make_builtin_tools
from palaver.generation.options import GenerateArguments
from palaver.generation.provider_thread import Continuity
from palaver.generation.services import GenerationServices
from palaver.generation.settings import Agent, GenerateSettings, GenerationContext
from palaver.generation.tools import Tool, Toolbox
from palaver.model import Turn
from palaver.models.context_windows import default_budget
from palaver.models.prices import Price
from palaver.ports.conversation import Thread
from palaver.ports.models import ChatModel, ToolSpec

NEWEST_FILES = 50  # that are searched for one with text
LEAST_BUDGET = 1_000  # tokens; in a smaller one, no tool is offered that nobody asked for


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerPlan:
    """An answer before it starts. `actor` is the name under which its turns are stored.

    `context` are the options of its contexts, from the call and from the defaults of all levels. `offers_files` says
    that the tool that reads files was added although nobody asked for it.
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
    offers_files: bool = False

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
    def total_budget(self) -> int:
        """The tokens of a prompt, unless they are counted in characters."""
        return self.context.get("token_budget") or default_budget(self.model.window)

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


async def check_budgets(plan: AnswerPlan) -> None:
    """Raise BudgetExceeded if the budgets allow no call now, before anything is stored."""
    payer = payer_of(plan.services.scope, plan.thread.info.owner)
    await plan.services.budgets.check(payer, plan.model, plan.price)


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
    toolbox = Toolbox.of(chosen, _builtin_tools(thread, services))
    return toolbox.without({spec.name for spec in options.client_tools})


def _builtin_tools(thread: Thread, services: GenerationServices) -> dict[str, Tool]:
    return make_builtin_tools(thread, services.search, services.shared.settings.tool_characters)


async def offer_file_tool(plan: AnswerPlan) -> AnswerPlan:
    """Add the tool that reads files, if the conversation has files with text and nobody chose the tools."""
    if not _may_offer(plan):
        return plan
    files = await plan.thread.attachments(NEWEST_FILES)
    if not any(file.media_type in READABLE for file in files):
        return plan
    read = _builtin_tools(plan.thread, plan.services)[READ_ATTACHMENT]
    return replace(plan, toolbox=Toolbox({**plan.toolbox.tools, READ_ATTACHMENT: read}), offers_files=True)


def _may_offer(plan: AnswerPlan) -> bool:
    options, taken = plan.options, {*plan.toolbox.tools, *plan.client_tool_names}
    is_free = options.tools is None and options.tool_choice == "auto" and READ_ATTACHMENT not in taken
    takes_tools = getattr(plan.model, "takes_tools", True) and plan.model.name not in plan.shared.without_tools
    return plan.settings.offer_files and is_free and takes_tools and plan.total_budget >= LEAST_BUDGET
