"""Continuing the provider's own thread: send only new messages, and remember the response to continue from."""

from __future__ import annotations

from dataclasses import replace

from palaver.generation.plan import AnswerPlan
from palaver.generation.prompt import Prompt
from palaver.generation.provider_thread import ProviderThread, new_messages
from palaver.model import Turn
from palaver.models.response_accumulator import ModelResponse


def continue_thread(plan: AnswerPlan, prompt: Prompt, newest: Turn | None) -> Prompt:
    """Return the prompt as a continuation of the provider's last response, if there is one that still matches."""
    if plan.continuity == "off" or newest is None:
        return prompt
    thread = plan.shared.provider_threads.get(plan.services.scope.tenant, plan.thread.id, plan.actor)
    if thread is None or not thread.matches(plan.model, newest, prompt.context, plan.instructions, prompt.budget):
        return prompt
    if plan.continuity == "with-history":
        return replace(prompt, previous=thread.response_id, new=prompt.messages)
    context = replace(prompt.context, messages=list(prompt.messages))
    new = new_messages(context, newest, plan.instructions)
    return prompt if new is None else replace(prompt, previous=thread.response_id, new=new)


def remember_response(
    plan: AnswerPlan, prompt: Prompt, response: ModelResponse, *, question: Turn | None, newest: Turn | None, turn: Turn
) -> None:
    """Remember a response that was stored as `turn`, so that the next prompt can continue from it.

    If another turn was stored between `newest` and `turn`, the provider has not seen all that the next prompt must
    contain, so nothing is remembered.
    """
    is_next = newest is None or turn.seq == newest.seq + 1
    if plan.continuity == "off" or response.id is None or not is_next:
        return
    thread = ProviderThread(
        response_id=response.id,
        model=plan.model.name,
        project=plan.model.project,
        turn=turn.id,
        seq=turn.seq,
        slot=turn.slot or turn.id,
        revision=prompt.context.revision,
        prompt_tokens=response.usage.prompt or 0,
        asker=question.actor if question else None,
        instructions=plan.instructions,
    )
    plan.shared.provider_threads.put(plan.services.scope.tenant, plan.thread.id, plan.actor, thread)
