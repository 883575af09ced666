"""Stores a client's messages as turns: drafts them with their files, checks tool results, appends in place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from palaver.conversations.conversation import Conversation
from palaver.conversations.internals import services_of
from palaver.core.concurrency import run_in_strides
from palaver.core.strides import size_of
from palaver.core.turn_draft import referenced_attachments
from palaver.core.turn_options import TurnInput
from palaver.core.validation import MAX_BATCH
from palaver.errors import InvalidInput
from palaver.generation.tool_calls import CLIENT_CALLS
from palaver.model import Attachment, Turn
from palaver.redaction.apply import Redact, redact_calls, redact_content, redact_results
from palaver.server.compat.history_diff import HistoryPlan, decode_data_url, find_open_calls
from palaver.server.compat.request import ClientMessage


async def draft_message(talk: Conversation, said: ClientMessage) -> dict[str, Any]:
    """Turn a message into a draft. Files sent as `data:` URLs become attachments."""
    draft: dict[str, Any] = {"role": said.role, "content": said.content, "metadata": dict(said.metadata)}
    if said.calls:
        draft["tool_calls"] = said.calls
        draft["metadata"][CLIENT_CALLS] = [call.id for call in said.calls]
    if said.results:
        draft["tool_results"] = said.results
    if not isinstance(said.content, str):
        parts, files = [], []
        for part in said.content:
            url = str(part.get("url") or "")
            sent = decode_data_url(url)
            if sent is None:
                if url.lower().startswith("data:"):
                    raise InvalidInput("data", "is not a readable data URL")
                parts.append(part)
                continue
            file = await talk.attach(sent[1], filename=part.get("filename"), media_type=sent[0])
            files.append(file)
            parts.append({**{k: v for k, v in part.items() if k != "url"}, "attachment": file.id})
        draft |= {"content": parts, "attachments": tuple(files)}
    return draft


async def redact_messages(talk: Conversation, said: Sequence[ClientMessage]) -> list[ClientMessage]:
    """Redact messages as the stored turns were redacted. Otherwise they would look like edits of those turns."""
    redaction = services_of(talk).redaction
    if not redaction.is_on:
        return list(said)
    redact = redaction.redactor.redact
    return await run_in_strides(lambda: [_redact_message(one, redact) for one in said], size_of(list(said)))


def _redact_message(said: ClientMessage, redact: Redact) -> ClientMessage:
    content = redact_content(said.content, redact)
    return replace(
        said,
        content=content if isinstance(content, str) else tuple(content),
        calls=tuple(redact_calls(said.calls, redact)),
        results=tuple(redact_results(said.results, redact)),
    )


def check_results(stored: Sequence[Turn], plan: HistoryPlan, field: str) -> None:
    """Require a result for every open call, and none for any other: the model would never see it."""
    brought = {result.id for one in plan.new[-plan.own :] for result in one.results}
    if not brought:
        return
    called = next((one.calls for one in reversed(plan.new) if one.calls), None)
    if called is not None:
        waiting = frozenset(call.id for call in called)
    else:
        before = [turn for turn in stored if plan.replaces is None or turn.position < plan.replaces.position]
        found = find_open_calls(before)
        waiting = found[1] if found is not None else frozenset()
    if unasked := brought - waiting:
        raise InvalidInput(field, f"no call {sorted(unasked)[0][:100]!r} is waiting for a result")
    if missing := waiting - brought:
        raise InvalidInput(field, f"no result for the call {sorted(missing)[0][:100]!r}")


def repeat_calls(stored: Sequence[Turn], plan: HistoryPlan) -> list[dict[str, Any]]:
    """Draft the open calls again if other turns followed them. Providers require results right after their calls."""
    found = find_open_calls(stored)
    if plan.replaces is not None or plan.new[0].role != "tool" or found is None:
        return []
    turn, _ = found
    between = [one for one in stored if one.position > turn.position]
    if all(one.role == "tool" for one in between):
        return []
    metadata = {CLIENT_CALLS: list(turn.metadata.get(CLIENT_CALLS, ())), "repeats": turn.id}
    if "answers" in turn.metadata:
        metadata["answers"] = turn.metadata["answers"]
    calls = {"role": "assistant", "actor": turn.actor, "content": "", "tool_calls": turn.tool_calls}
    known = [result for one in between for result in one.tool_results]
    again = [{**calls, "metadata": metadata}]
    return [*again, {"role": "tool", "content": "", "tool_results": known, "metadata": {}}] if known else again


async def append_drafts(
    talk: Conversation, drafts: list[dict[str, Any]], replaces: Turn | None, expected: int | None
) -> Turn:
    if replaces is None:
        return await _append_all(talk, drafts, expected)
    first = dict(drafts[0])
    if first["role"] == replaces.role == "user":
        first["attachments"] = (*first.get("attachments", ()), *_files_beside_content(replaces))
    role, content = first.pop("role"), first.pop("content")
    turn = await talk.append(role, content, replaces=replaces, discard_after=True, expected_seq=expected, **first)
    return await _append_all(talk, drafts[1:], turn.seq + 1) if drafts[1:] else turn


def _files_beside_content(replaced: Turn) -> list[Attachment]:
    """Return the files of an edited message that its content does not name: a client of this protocol cannot name them.

    They are kept. Files that the content names are replaced by those that the client sends.
    """
    named = referenced_attachments(replaced.content)
    return [one for one in replaced.attachments if one.id not in named]


async def _append_all(talk: Conversation, drafts: list[dict[str, Any]], expected: int | None) -> Turn:
    """Append in one transaction, or in as few as the batch limit allows."""
    last: list[Turn] = []
    for start in range(0, len(drafts), MAX_BATCH):
        batch = cast("list[TurnInput]", drafts[start : start + MAX_BATCH])
        last = await talk.append_many(batch, expected_seq=expected)
        expected = last[-1].seq + 1
    return last[-1]
