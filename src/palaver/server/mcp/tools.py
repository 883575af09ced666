"""The tools. Each takes arguments, calls one method, and returns text and the same as data.

Every public method is here, in `ELSEWHERE`, or in `WITHOUT_TOOL` with the reason. A test checks.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from pydantic import BaseModel

from palaver import model
from palaver.context.render import name_of, one_line, turn_text
from palaver.conversations.conversation import Conversation
from palaver.conversations.internals import components_of, counter_of, generation_of
from palaver.conversations.note_files import NoteFiles
from palaver.conversations.store import Store
from palaver.core.concurrency import run_in_strides
from palaver.core.filters import Where
from palaver.core.identity import is_id
from palaver.core.quotes import BY_MCP, MCP_MARK, THROUGH_MCP
from palaver.core.rights import may_act_for, require_right
from palaver.core.strides import size_of
from palaver.errors import BudgetTooSmall, ConversationNotFound, ScrubPending
from palaver.model import GENERATE, READ, SYSTEM, WRITE, Right
from palaver.ports.models import Counter
from palaver.recall.terms import find_span
from palaver.server.mcp import schemas
from palaver.server.mcp.budgeted_text import MIN_PIECE, ToolAnswer, fit_pieces, quote_lines

AROUND = 160  # characters shown before and after a matching word
ASSISTANT = "assistant"
# Metadata of every turn that is written here: it is shown as such, and never becomes a standing instruction.
MARK = {"origin": THROUGH_MCP}
BUDGET = 4_000  # tokens of a context, if nobody sets a budget


async def find_conversation(store: Store, name: str) -> Conversation:
    """Find a conversation by id, or by key among the caller's own."""
    try:
        return await store.get(name)
    except ConversationNotFound:
        if is_id(name):
            raise
        return await store.find(name)


async def find_or_create_conversation(store: Store, name: str) -> Conversation:
    try:
        return await store.get(name)
    except ConversationNotFound:
        if is_id(name):  # a mistyped id must not become a key
            raise
        return await store.conversation(name)


def context_defaults(store: Store, talk: Conversation, token_budget: int | None) -> dict[str, Any]:
    """Return the options of a context: the budget of the call, or of the conversation and so on, or 4,000 tokens."""
    call, otherwise = {"token_budget": token_budget}, {"token_budget": BUDGET}
    return generation_of(store).context_options(talk.info, call, otherwise=otherwise)


def _speaker(one: schemas.Passage) -> str:
    name = name_of(one.who, one.role)
    return f"{name} ({MCP_MARK})" if one.through == THROUGH_MCP else name


def _format_time(when: datetime) -> str:
    return f"{when:%Y-%m-%d %H:%M}"


# ---- reading -------------------------------------------------------------------------------------------------------


async def recall(store: Store, given: schemas.Recall) -> ToolAnswer:
    """Find what was said earlier, by words and by meaning: in one conversation, or in all that the caller may read.

    Each piece has its speaker, time, conversation and turn. Use it before you answer from memory.
    """
    return fit_recalled(await _search_memory(store, given), given.token_budget, counter_of(store))


def fit_recalled(hits: model.Results[schemas.Hit], budget: int, count: Counter) -> ToolAnswer:
    """Render the best hits that fit the budget, or why there are none."""
    empty = None if hits.empty is None else f"Nothing found: {hits.empty.reason} ({hits.empty.detail})."

    def render(pieces: Sequence[schemas.Hit], tokens: int = budget) -> ToolAnswer:
        lines = [
            f"[{_format_time(one.when)}] {_speaker(one)} ({one.conversation} {one.turn}): {one.text}" for one in pieces
        ]
        value = schemas.Recalled(pieces=list(pieces), tokens=tokens, left_out=len(hits) - len(pieces), empty=empty)
        return ToolAnswer(quote_lines(lines) if empty is None else empty, value)

    pieces = fit_pieces(hits, budget, count, render)
    return render(pieces, render(pieces).cost(count))


async def _search_memory(store: Store, given: schemas.Recall) -> model.Results[schemas.Hit]:
    if given.conversation is not None:
        talk = await find_conversation(store, given.conversation)
        hits = await talk.recall(
            given.query, given.limit, since=given.since, until=given.until, where=_where(given.where)
        )
        return model.Results.of([_describe_hit(talk.id, one) for one in hits], hits.empty)
    page = await store.conversations(limit=1)
    if not page.items:
        return model.Results.of((), page.empty)
    # With scope tenant, any conversation will do. Without facts: a fact does not name its conversation, its turn does.
    anywhere = await store.get(page.items[0].id)
    hits = await anywhere.recall(
        given.query,
        given.limit,
        scope="tenant",
        since=given.since,
        until=given.until,
        include_facts=False,
        where=_where(given.where),
    )
    return model.Results.of([_describe_hit("", one) for one in hits], hits.empty)


def _where(given: Mapping[str, Any] | None) -> Where | None:
    return cast("Where | None", given)  # the store checks it


def _describe_hit(conversation: str, hit: model.RecallHit) -> schemas.Hit:
    score = round(hit.score, 3)
    if hit.turn is not None:
        passage = schemas.passage_of(hit.turn, turn_text(hit.turn)).model_dump()
        return schemas.Hit(**passage, score=score, relevance=round(hit.relevance, 3))
    fact = hit.fact
    assert fact is not None
    text = f"{fact.subject} {fact.predicate} {fact.object}"
    return schemas.Hit(
        conversation=conversation, turn=fact.source_turn, who=fact.by, role="fact", when=fact.valid_from, text=text,
        score=score, relevance=round(hit.relevance, 3),
    )  # fmt: skip


async def search_conversations(store: Store, given: schemas.SearchConversations) -> ToolAnswer:
    """Find conversations by words in their title or text, for example to get the id of one."""
    results = await store.search(given.query, limit=given.limit, where=_where(given.where))
    matches = await run_in_strides(
        lambda: [match for one in results for match in _describe_matches(one)], size_of(list(results))
    )

    def render(some: Sequence[schemas.Match], tokens: int = given.token_budget) -> ToolAnswer:
        lines = [
            f"{one_line(one.title or one.key or '')} ({one.conversation}) [{_format_time(one.when)}] {_attribute(one)}"
            for one in some
        ]
        value = schemas.Matches(found=list(some), tokens=tokens, left_out=len(matches) - len(some))
        return ToolAnswer(quote_lines(lines), value)

    count = counter_of(store)
    kept = fit_pieces(matches, given.token_budget, count, render)
    return render(kept, render(kept).cost(count))


def _describe_matches(one: model.ConversationMatch) -> list[schemas.Match]:
    info = one.conversation
    in_title = schemas.Match(
        conversation=info.id, key=info.key, title=info.title, who=None, turn=None, when=info.updated,
        text=info.preview or "",
    )  # fmt: skip
    turns = [(match.turn, _excerpt_around(turn_text(match.turn), match.terms)) for match in one.matches]
    return [
        in_title.model_copy(update={"who": turn.actor, "turn": turn.id, "when": turn.created, "text": text})
        for turn, text in turns
    ] or [in_title]


def _excerpt_around(text: str, words: Sequence[str]) -> str:
    """Return the part of a text around the first of the words."""
    place = find_span(text, frozenset(words))
    start = max(0, place[0] - AROUND) if place else 0
    end = start + 2 * AROUND
    return f"{'…' if start else ''}{text[start:end]}{'…' if end < len(text) else ''}"


def _attribute(one: schemas.Match) -> str:
    return f"{name_of(one.who)}: {one.text}" if one.who else one.text


async def history(store: Store, given: schemas.History) -> ToolAnswer:
    """Read the latest turns of a conversation, oldest first; `older` in the result leads to the ones before."""
    talk = await find_conversation(store, given.conversation)
    turns: list[model.Turn] = await talk.history(given.limit + 1, before=given.before, where=_where(given.where))
    newest_first = [schemas.passage_of(turn, turn_text(turn)) for turn in reversed(turns)][: given.limit]
    count, info = counter_of(store), talk.info

    def render(some: Sequence[schemas.Passage], tokens: int = given.token_budget) -> ToolAnswer:
        return build_history_page(talk.id, info.key, info.title, some, len(turns), tokens)

    kept = fit_pieces(newest_first, given.token_budget, count, render, cut_last=False)
    if newest_first and not kept:  # an empty page would mean that there are no turns
        needed = render([newest_first[0].model_copy(update={"text": ""})]).cost(count) + MIN_PIECE
        raise BudgetTooSmall("a turn", needed=needed, budget=given.token_budget, unit="tokens")
    return render(kept, render(kept).cost(count))


def build_history_page(
    conversation: str,
    key: str | None,
    title: str | None,
    newest_first: Sequence[schemas.Passage],
    known: int,
    tokens: int,
) -> ToolAnswer:
    """Render a page, oldest first. If turns are left out, it says where to continue."""
    shown = list(reversed(newest_first))
    older = shown[0].turn if shown and len(shown) < known else None
    lines = [f"[{_format_time(one.when)}] {_speaker(one)}: {one.text}" for one in shown]
    lines += [f"(Earlier turns: before={older})"] if older else []
    value = schemas.Turns(conversation=conversation, key=key, title=title, turns=shown, older=older, tokens=tokens)
    return ToolAnswer(quote_lines(lines), value)


async def build_context(store: Store, given: schemas.BuildContext) -> ToolAnswer:
    """Build what a model should see to continue a conversation, within a budget: summaries, notes, facts, recalled
    turns, the latest turns."""
    talk = await find_conversation(store, given.conversation)
    options = given.model_dump(exclude_none=True, exclude={"conversation", "token_budget"})
    context = await talk.build_context(**context_defaults(store, talk, given.token_budget), **options)
    value = schemas.Built(
        messages=context.messages,
        tokens=context.tokens,
        turns=list(context.turn_ids),
        left_out=sum(one.turns for one in context.explanation.left_out),
    )
    return ToolAnswer(context.text, value)


async def about_person(store: Store, given: schemas.AboutPerson) -> ToolAnswer:
    """Return what is known about a person from all conversations: wishes, facts, preferences and open goals, with where
    they were said. With a query, also what fits it best."""
    local = components_of(store).worker.person.default_person
    person = store.person(given.person or store.scope.user or local or "me")
    profile = await person.profile(token_budget=given.token_budget)
    hits = await person.recall(given.query, k=given.limit) if given.query else []
    found = [one.item.text for one in hits if one.item is not None]
    value = schemas.KnownPerson(person=person.id, profile=profile, found=found)
    return ToolAnswer(quote_lines([*profile.splitlines(), *found]), value)


# ---- writing -------------------------------------------------------------------------------------------------------


async def remember(store: Store, given: schemas.Remember) -> ToolAnswer:
    """Keep a statement, so that `recall` finds it again in this and any later conversation: a preference, a decision, a
    fact about the person or the project."""
    talk = await find_or_create_conversation(store, given.conversation)
    by = talk.info.agent or ASSISTANT
    actor = by if may_act_for(store.scope, by) else None  # a user's assistant writes under that user's name
    turn = await talk.append("user", given.text, actor=actor, metadata={"remembered": True, **MARK})
    if given.note is not None:
        await talk.remember(given.note, given.text, by=by + BY_MCP)
    value = schemas.Remembered(conversation=talk.id, turn=turn.id, when=turn.created, noted_in=given.note)
    return ToolAnswer(f"Kept in {schemas.headline(talk.info)} as turn {turn.id}.", value)


async def notes(store: Store, given: schemas.Notes) -> ToolAnswer:
    """Read and edit note files under /memories, which are kept between conversations: plans, findings, preferences.

    Look at /memories before a task, and note what will matter later. Earlier versions are kept.
    """
    text = await _run_command(_note_files(store, given.project), given)
    shown = quote_lines(text.split("\n")) if given.command == "view" else text
    return ToolAnswer(shown, schemas.NotesResult(command=given.command, path=given.path, text=text))


async def delete_notes(store: Store, given: schemas.DeleteNotes) -> ToolAnswer:
    """Delete a note file or folder under /memories permanently, with its earlier versions. This cannot be undone."""
    files = _note_files(store, given.project)
    known = await files.files()
    is_there = any(path == given.path or path.startswith(f"{given.path}/") for path in known)
    text = await files.delete(given.path) if is_there else f"There is nothing at {given.path}."
    return ToolAnswer(text, schemas.NotesResult(command="delete", path=given.path, text=text))


def _note_files(store: Store, project: str | None) -> NoteFiles:
    """Return the notes of a project, or of the caller; those of the application have no person."""
    if project is not None:
        return NoteFiles(store, "project", project, MARK)
    return NoteFiles(store, model.PERSON, store.scope.user or "", MARK)


async def _run_command(files: NoteFiles, given: schemas.Notes) -> str:
    match given.command:
        case "view":
            return await files.view(given.path)
        case "create":
            return await files.create(given.path, given.text)
        case "str_replace":
            return await files.str_replace(given.path, given.old_text, given.text)
        case "insert":
            return await files.insert(given.path, given.line, given.text)
        case "rename":
            return await files.rename(given.path, given.new_path)


async def append(store: Store, given: schemas.Append) -> ToolAnswer:
    """Store one turn of a conversation, word for word. It is on disk when the call returns."""
    if given.role == SYSTEM:  # refused before a conversation is created
        require_right(store.scope, SYSTEM)
    talk = await find_or_create_conversation(store, given.conversation)
    fields = given.model_dump(include={"actor", "idempotency_key", "metadata"}, exclude_none=True)
    fields["metadata"] = {**fields.get("metadata", {}), **MARK}  # the mark is not the assistant's to set
    turn = await talk.append(given.role, given.text, **fields)
    value = schemas.Appended(conversation=talk.id, turn=turn.id, seq=turn.seq, who=turn.actor, when=turn.created)
    return ToolAnswer(f"Stored as turn {turn.id} of conversation {talk.id}.", value)


async def summarize(store: Store, given: schemas.ThroughTurn) -> ToolAnswer:
    """Summarise the older half of the turns without a summary, or all through a turn, and return all summaries of the
    conversation."""
    talk = await find_conversation(store, given.conversation)
    summaries = await talk.summarize(through=given.through)
    value = schemas.Summaries(conversation=talk.id, summaries=[schemas.Span.of(one) for one in summaries])
    return ToolAnswer(quote_lines([one.text for one in summaries]), value)


async def compact(store: Store, given: schemas.Compact) -> ToolAnswer:
    """Write the summaries that are due, so that a long conversation fits a prompt. Turns are kept."""
    talk = await find_conversation(store, given.conversation)
    policy = None if given.policy is None else given.policy.chosen
    written = await talk.compact(keep_tokens=given.keep_tokens, policy=policy)
    return ToolAnswer(f"{written} summaries were written.", schemas.Compacted(conversation=talk.id, summaries=written))


async def extract_facts(store: Store, given: schemas.ThroughTurn) -> ToolAnswer:
    """Extract facts (subject, predicate, object) from the turns without a summary, and return the new ones."""
    talk = await find_conversation(store, given.conversation)
    facts = await talk.extract_facts(through=given.through)
    value = schemas.Facts(conversation=talk.id, facts=[schemas.Fact.of(one) for one in facts])
    return ToolAnswer(quote_lines([f"{one.subject} {one.predicate} {one.object}" for one in facts]), value)


async def forget(store: Store, given: schemas.Forget) -> ToolAnswer:
    """Delete a turn or a whole conversation permanently, with everything derived from it. This cannot be undone."""
    talk = await find_conversation(store, given.conversation)
    try:
        await (talk.forget() if given.turn is None else talk.forget(given.turn))
        pending = False
    except ScrubPending:
        pending = True
    what = "The conversation" if given.turn is None else "The turn"
    return ToolAnswer(f"{what} is deleted.", schemas.Forgotten(conversation=talk.id, turn=given.turn, pending=pending))


# ---- the table -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class McpTool:
    """One tool: the methods behind it, its schemas, and hints for clients."""

    verbs: tuple[str, ...]
    handler: Callable[[Store, Any], Awaitable[ToolAnswer]]
    takes: type[BaseModel]
    answers: type[BaseModel]
    title: str
    rights: tuple[Right, ...] = (READ,)
    destructive: bool = False
    idempotent: bool = False

    @property
    def name(self) -> str:
        return self.handler.__name__

    @property
    def description(self) -> str:
        return " ".join((self.handler.__doc__ or "").split())


def _tool(verbs: str, handler: Any, takes: Any, answers: Any, title: str, **more: Any) -> McpTool:
    return McpTool(tuple(verbs.split()), handler, takes, answers, title, **more)


TOOLS: tuple[McpTool, ...] = (
    _tool("Conversation.recall", recall, schemas.Recall, schemas.Recalled, "Recall"),
    _tool("Conversation.remember", remember, schemas.Remember, schemas.Remembered, "Remember", rights=(READ, WRITE)),
    _tool("Store.conversation Conversation.append", notes, schemas.Notes, schemas.NotesResult, "Note files",
          rights=(READ, WRITE)),
    _tool("Conversation.forget", delete_notes, schemas.DeleteNotes, schemas.NotesResult, "Delete note files",
          rights=(READ, WRITE), destructive=True, idempotent=True),
    _tool("Store.search", search_conversations, schemas.SearchConversations, schemas.Matches, "Search conversations"),
    _tool("Conversation.append Store.conversation", append, schemas.Append, schemas.Appended, "Append a turn",
          rights=(READ, WRITE)),
    _tool("Conversation.history Store.get Store.find", history, schemas.History, schemas.Turns, "Read a conversation"),
    _tool("Conversation.build_context", build_context, schemas.BuildContext, schemas.Built, "Build a context"),
    _tool("Store.person Subject.profile Subject.recall", about_person, schemas.AboutPerson, schemas.KnownPerson,
          "About a person"),
    _tool("Conversation.summarize Conversation.summaries", summarize, schemas.ThroughTurn, schemas.Summaries,
          "Summarize", rights=(READ, WRITE, GENERATE)),
    _tool("Conversation.compact", compact, schemas.Compact, schemas.Compacted, "Compact",
          rights=(READ, WRITE, GENERATE), idempotent=True),
    _tool("Conversation.extract_facts", extract_facts, schemas.ThroughTurn, schemas.Facts, "Extract facts",
          rights=(READ, WRITE, GENERATE), idempotent=True),
    _tool("Conversation.forget", forget, schemas.Forget, schemas.Forgotten, "Forget permanently", rights=(READ, WRITE),
          destructive=True, idempotent=True),
)  # fmt: skip

# Methods that MCP offers in another way than as tools.
ELSEWHERE: Mapping[str, str] = {
    "Store.conversations": "resources/list",
    "Conversation.turn": "resources/read",
    "Conversation.subscribe": "resources/subscribe and subscriptions/listen",
}

_HAS_MODEL = "a client of MCP has a model of its own; answers are generated over HTTP"
_STREAMING = "a tool is called with the whole text; streaming is for HTTP and the library"
_OPERATORS = "for operators: the command line, or HTTP"
_FILES = "files are transferred over HTTP"
_USERS = "a decision of the user, made in an app over HTTP, not of a model"

WITHOUT_TOOL: Mapping[str, str] = {
    "Store.budgets": _OPERATORS,
    "Store.set_budget": _OPERATORS,
    "Conversation.generate": _HAS_MODEL,
    "Conversation.generate_stream": _HAS_MODEL,
    "Store.generate": _HAS_MODEL,
    "Store.generate_stream": _HAS_MODEL,
    "Conversation.stop": _HAS_MODEL,
    "Conversation.ask_to_stop": _HAS_MODEL,
    "Conversation.requests": _HAS_MODEL,
    "Store.requests": _HAS_MODEL,
    "Conversation.stream": _STREAMING,
    "Conversation.append_open": _STREAMING,
    "Conversation.append_chunk": _STREAMING,
    "Conversation.append_renew": _STREAMING,
    "Conversation.append_commit": _STREAMING,
    "Conversation.append_abort": _STREAMING,
    "Conversation.append_many": "append, once for each turn",
    "Conversation.refresh": "every call reads the current state",
    "Conversation.search": "recall, with a conversation, finds by words too",
    "Conversation.facts": "build_context and recall show them",
    "Conversation.working_memory": "build_context shows it",
    "Conversation.branches": _USERS,
    "Conversation.switch": _USERS,
    "Conversation.update": _USERS,
    "Conversation.rename": _USERS,
    "Conversation.reset": _USERS,
    "Conversation.correct": _USERS,
    "Conversation.drop_note": _USERS,
    "Conversation.correct_fact": _USERS,
    "Conversation.forget_fact": _USERS,
    "Conversation.attach": _FILES,
    "Conversation.attachment": _FILES,
    "Conversation.attachments": _FILES,
    "Conversation.attachment_text": _FILES,
    "Conversation.read_attachment": _FILES,
    "Conversation.read_attachment_range": _FILES,
    "Conversation.open_upload": _FILES,
    "Conversation.put_upload": _FILES,
    "Conversation.complete_upload": _FILES,
    "Conversation.audit": _OPERATORS,
    "Store.audit": _OPERATORS,
    "Conversation.verify": _OPERATORS,
    "Store.usage": _OPERATORS,
    "Store.stats": _OPERATORS,
    "Store.erase_user": "deletes a person's data permanently: for an administrator, never for a model",
    "Store.check_erasure": _OPERATORS,
    "Store.sweep": _OPERATORS,
    "Store.expire": _OPERATORS,
    "Subject.facts": "about_person shows them",
    "Subject.proposals": _USERS,
    "Subject.fact_history": _USERS,
    "Subject.remember": "remember stores a turn, from which an item is proposed",
    "Subject.correct": _USERS,
    "Subject.approve": _USERS,
    "Subject.drop": _USERS,
    "Subject.forget": _USERS,
    "Subject.consent": _USERS,
    "Subject.learn": _OPERATORS,
    "Subject.export": _OPERATORS,
    "Subject.verify": _OPERATORS,
    "Subject.audit": _OPERATORS,
}


def tools_for(rights: frozenset[str], *, with_forget: bool) -> tuple[McpTool, ...]:
    """Return the tools for a caller with these rights. Tools that delete are off unless the operator allows them."""
    return tuple(one for one in TOOLS if rights.issuperset(one.rights) and (with_forget or not one.destructive))
