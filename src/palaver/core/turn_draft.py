"""A turn before it is stored: checked, encoded as canonical JSON, counted."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from palaver.core.identity import TURN_TAG, canonical_json, digest, from_json, key_hash, new_salt
from palaver.core.validation import (
    MAX_ATTACHMENTS,
    MAX_CONTENT,
    MAX_METADATA,
    MAX_PREVIEW,
    MAX_TOOL_FILES,
    clean_actor,
    clean_count,
    clean_json,
    clean_mapping,
    clean_moment,
    clean_name,
    clean_role,
    clean_text,
    optional_name,
)
from palaver.errors import InvalidInput, TooLarge
from palaver.model import (
    Attachment,
    Content,
    File,
    Image,
    Part,
    Reasoning,
    Role,
    Text,
    TokenUsage,
    ToolCall,
    ToolResult,
)

NO_USAGE = TokenUsage()
_FIRST_LINE = 10_000  # characters in which the end of the first line is looked for
_LINE_END = re.compile("[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")  # as of str.splitlines

Counter = Callable[[str], int]

PART_TYPES: Mapping[str, type[Text] | type[Image] | type[File] | type[Reasoning]] = {
    "text": Text,
    "image": Image,
    "file": File,
    "reasoning": Reasoning,
}
_BY_URL = """ (did you mean 'image'? write {"type": "image", "url": …} or {"type": "image", "attachment": id})"""
_BY_TEXT = """ (did you mean 'text'? write {"type": "text", "text": …})"""
_BY_FILE = """ (did you mean 'file'? write {"type": "file", "url": …} or {"type": "file", "attachment": id})"""
OTHER_PARTS = {  # names of other systems, each with what to write here
    "image_url": _BY_URL,
    "input_image": _BY_URL,
    "input_text": _BY_TEXT,
    "output_text": _BY_TEXT,
    "input_file": _BY_FILE,
    "document": _BY_FILE,
}
PART_NAMES = {cls: name for name, cls in PART_TYPES.items()}


class TurnDraft(msgspec.Struct, frozen=True, kw_only=True):
    """A turn to store, with every text as in the row. The last letters of `id` are replaced by the seq."""

    id: str
    role: Role
    actor: str
    content: str
    is_parts: bool = False
    tool_calls: str | None = None
    tool_results: str | None = None
    attachments: str | None = None
    sources: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    token_count: int = 0
    model: str | None = None
    adapter: str | None = None
    finish_reason: str | None = None
    metadata: str | None = None
    idempotency_key: str | None = None
    created: int | None = None
    salt: bytes = b""
    preview: str | None = None
    hash_key: bool = False  # the idempotency key holds a secret: a retry is recognised by it, and its hash is stored


# The fields that are columns of the row. `preview` is for the conversation's row.
STORED_FIELDS = tuple(name for name in TurnDraft.__struct_fields__ if name not in ("preview", "hash_key"))
# The stub: what is kept of a forgotten turn, in the order of `stub_hash`. Of the idempotency key, only a hash is kept.
STUB_FIELDS = ("id", "role", "actor", "created", "idempotency_key", "content_hash")
# Every other field goes: these are its values afterwards. This is the only list, and it follows from the two above.
# SQLite's statement is made from it, `verify` checks it, and a test compares a forgotten row of each engine with it.
FORGOTTEN_FIELDS: Mapping[str, int | None] = {
    name: 0 if name in ("is_parts", "token_count") else None for name in STORED_FIELDS if name not in STUB_FIELDS
}


def content_hash(id: str, draft: TurnDraft, created: int) -> bytes:
    """Hash everything in a turn that must never change. In Postgres this is `turn_hash` (functions/core.sql)."""
    return digest(
        (
            TURN_TAG,
            draft.salt,
            id,
            draft.role,
            draft.actor,
            int(draft.is_parts),
            draft.content,
            draft.tool_calls,
            draft.tool_results,
            draft.attachments,
            draft.sources,
            draft.prompt_tokens,
            draft.completion_tokens,
            draft.token_count,
            draft.model,
            draft.adapter,
            draft.finish_reason,
            draft.metadata,
            draft.idempotency_key,
            created,
        )
    )


def with_stored_key(draft: TurnDraft, conversation: str) -> TurnDraft:
    """Return the draft with the idempotency key as it is stored. An earlier turn is looked for by the given one."""
    if not draft.hash_key or draft.idempotency_key is None:
        return draft
    return msgspec.structs.replace(draft, idempotency_key=key_hash(conversation, draft.idempotency_key), hash_key=False)


def chunk_hash(salt: bytes | None, text: str) -> bytes:
    """Hash one piece of a stream, so that it can be checked before the whole turn has a hash."""
    return digest(("palaver/chunk/1", salt, text))


def stub_hash(
    id: str, role: str, actor: str, created: int, idempotency_key: str | None, content_hash: bytes | None
) -> bytes:
    """Hash what remains of a forgotten turn. It reveals nothing of the content."""
    return digest(("palaver/stub/1", id, role, actor, created, idempotency_key, content_hash))


def is_same_request(draft: TurnDraft, stored: TurnDraft) -> bool:
    """Whether a retry says what the first call said. Counters, clocks and the ids of uploads may differ."""
    return _files(draft) == _files(stored) and all(
        getattr(draft, name) == getattr(stored, name)
        for name in ("role", "actor", "is_parts", "content", "tool_calls", "tool_results", "sources", "metadata")
    )


def _files(draft: TurnDraft) -> list[tuple[str, str]]:
    found = from_json(draft.attachments) if draft.attachments else []
    return [(one["filename"], one["sha256"]) for one in found]


def encode_part(part: Part | Mapping[str, object] | str) -> dict[str, object]:
    if isinstance(part, str):
        part = Text(part)
    if isinstance(part, Mapping):
        part = decode_part(part)
    fields: dict[str, object] = {**part.extra, "type": PART_NAMES[type(part)]}
    for name in part.__dataclass_fields__:
        value = getattr(part, name)
        if name != "extra" and value is not None:
            fields[name] = clean_text(f"content.{name}", value)
    return fields


def decode_part(data: Mapping[str, Any]) -> Part:
    kind = data.get("type")
    cls = PART_TYPES.get(kind) if isinstance(kind, str) else None
    if cls is None and kind is None and "role" in data:
        problem = "has messages instead of parts: store messages with append_many, or pass them to generate in history="
        raise InvalidInput("content", problem)
    if cls is None:
        hint = OTHER_PARTS.get(kind, "") if isinstance(kind, str) else ""
        raise InvalidInput("content.type", f"must be one of {', '.join(PART_TYPES)}{hint}")
    known = {name: data[name] for name in cls.__dataclass_fields__ if name in data and name != "extra"}
    extra = {name: value for name, value in data.items() if name not in known and name != "type"}
    try:
        part = cls(**known, extra=extra)
    except TypeError:
        raise InvalidInput("content", f"a {kind} part needs its text") from None
    if isinstance(part, Image | File) and part.url is None and part.attachment is None:
        raise InvalidInput("content", f"a {kind} part needs a url or an attachment")
    return part


def encode_content(content: object) -> tuple[str, bool]:
    """Return the text to store, and whether it is parts (canonical JSON) or plain text."""
    if isinstance(content, str):
        return clean_text("content", content), False
    if isinstance(content, Sequence) and not isinstance(content, bytes | bytearray):
        if not all(isinstance(part, str | Mapping | Text | Image | File | Reasoning) for part in content):
            raise InvalidInput("content", "must be text or a list of parts")
        return clean_json("content", [encode_part(part) for part in content]), True
    raise InvalidInput("content", f"must be text or a list of parts, not {type(content).__name__}")


def decode_content(text: str, is_parts: bool) -> Content:
    if not is_parts:
        return text
    return tuple(decode_part(part) for part in from_json(text))


def words(content: Content) -> str:
    """Return the text of a content that is searched and counted."""
    if isinstance(content, str):
        return content
    return "\n".join(part.text for part in content if isinstance(part, Text))


def referenced_attachments(content: Content) -> list[str]:
    """Return the attachments that the images and files of a content refer to, each once."""
    parts = () if isinstance(content, str) else content
    ids = (part.attachment for part in parts if isinstance(part, Image | File))
    return list(dict.fromkeys(id for id in ids if id is not None))


def encode_calls(calls: object) -> str | None:
    if not calls:
        return None
    encoded = []
    for call in _require_objects("tool_calls", calls, ToolCall):
        data = call if isinstance(call, Mapping) else {"id": call.id, "name": call.name, "arguments": call.arguments}
        if "function" in data and "name" not in data:
            raise InvalidInput("tool_calls", 'each must be {"id", "name", "arguments"}, not nested in "function"')
        encoded.append(
            {
                "id": clean_name("tool_calls.id", data.get("id")),
                "name": clean_name("tool_calls.name", data.get("name")),
                "arguments": data.get("arguments", {}),
            }
        )
    _require_distinct("tool_calls.id", [call["id"] for call in encoded])
    return clean_json("tool_calls", encoded)


def encode_results(results: object) -> str | None:
    if not results:
        return None
    encoded = []
    for result in _require_objects("tool_results", results, ToolResult):
        if isinstance(result, ToolResult):
            result = {"id": result.id, "content": result.content, "is_error": result.is_error}
        data = {"id": clean_name("tool_results.id", result.get("id")), "content": result.get("content", "")}
        if result.get("is_error"):
            data["is_error"] = True
        encoded.append(data)
    _require_distinct("tool_results.id", [result["id"] for result in encoded])
    return clean_json("tool_results", encoded)


def decode_calls(text: str | None) -> tuple[ToolCall, ...]:
    return tuple(ToolCall(**call) for call in from_json(text)) if text else ()


def decode_results(text: str | None) -> tuple[ToolResult, ...]:
    return tuple(ToolResult(**result) for result in from_json(text)) if text else ()


def encode_attachments(attachments: Sequence[Attachment], role: Role = "user") -> str | None:
    """Encode what the turn stores of its files: everything but the bytes."""
    if not attachments:
        return None
    if not isinstance(attachments, Sequence) or not all(isinstance(one, Attachment) for one in attachments):
        raise InvalidInput(
            "attachments",
            "must be a list of what attach() or attachment(id) returned, not of ids or names",
        )
    check_file_count(len(attachments), role)
    rows = [
        {
            "id": one.id,
            "filename": one.filename,
            "media_type": one.media_type,
            "bytes": one.bytes,
            "sha256": one.sha256,
        }
        for one in attachments
    ]
    return canonical_json(rows)


def check_file_count(count: int, role: Role) -> None:
    limit = MAX_TOOL_FILES if role == "tool" else MAX_ATTACHMENTS
    if count > limit:
        raise TooLarge("attachments", size=count, limit=limit, unit="files")


def decode_attachments(text: str | None, turn: str) -> tuple[Attachment, ...]:
    return tuple(Attachment(**one, turn=turn) for one in from_json(text)) if text else ()


def encode_sources(sources: object, limit: int = MAX_METADATA) -> str | None:
    return clean_json("sources", _require_objects("sources", sources, Mapping), limit) if sources else None


def _require_objects(field: str, value: object, kind: type) -> Sequence[Any]:
    if (
        isinstance(value, str | bytes)
        or not isinstance(value, Sequence)
        or not all(isinstance(v, Mapping | kind) for v in value)
    ):
        raise InvalidInput(field, "must be a list of objects")
    return value


def _require_distinct(field: str, ids: list[str]) -> None:
    if len(set(ids)) < len(ids):
        raise InvalidInput(field, "must be distinct within one turn")


@dataclass(frozen=True, slots=True)
class DraftBuilder:
    """Makes drafts, with one token counter."""

    count: Counter

    def draft(
        self,
        id: str,
        role: object,
        content: object,
        *,
        actor: str,
        tool_calls: object = None,
        tool_results: object = None,
        attachments: Sequence[Attachment] = (),
        sources: object = None,
        tokens: TokenUsage | Mapping[str, object] | None = None,
        model: str | None = None,
        adapter: str | None = None,
        finish_reason: str | None = None,
        metadata: Mapping[str, object] | None = None,
        idempotency_key: str | None = None,
        created: object = None,
        hash_key: bool = False,
    ) -> TurnDraft:
        role = clean_role(role)
        stored, is_parts = encode_content(content)
        calls, results = encode_calls(tool_calls), encode_results(tool_results)
        _check_roles(role, calls, results)
        check_size(stored, calls, results)
        usage = clean_usage(tokens)
        text = words(decode_content(stored, is_parts))
        return TurnDraft(
            id=id,
            role=role,
            actor=clean_actor("actor", actor),
            content=stored,
            is_parts=is_parts,
            tool_calls=calls,
            tool_results=results,
            attachments=encode_attachments(attachments, role),
            sources=encode_sources(sources),
            prompt_tokens=usage.prompt,
            completion_tokens=usage.completion,
            model=optional_name("model", model),
            adapter=optional_name("adapter", adapter),
            finish_reason=optional_name("finish_reason", finish_reason),
            metadata=clean_mapping("metadata", metadata),
            idempotency_key=optional_name("idempotency_key", idempotency_key),
            created=None if created is None else clean_moment("created", created),
            salt=new_salt(),
            token_count=self.measure(text, calls, results),
            preview=preview(text) if role == "user" else None,
            hash_key=hash_key,
        )

    def measure(self, *texts: str | None) -> int:
        """Count the tokens of a turn's text and tool fields."""
        counted = "\n".join(filter(None, texts))
        return self.count(counted) if counted else 0


def check_size(*texts: str | None) -> None:
    size = len("".join(filter(None, texts)).encode())
    if size > MAX_CONTENT:
        raise TooLarge("content", size=size, limit=MAX_CONTENT, unit="bytes")


def clean_usage(tokens: TokenUsage | Mapping[str, object] | None) -> TokenUsage:
    if tokens is None:
        return NO_USAGE
    prompt: object
    completion: object
    if isinstance(tokens, Mapping):
        prompt, completion = tokens.get("prompt"), tokens.get("completion")
    elif isinstance(tokens, TokenUsage):
        prompt, completion = tokens.prompt, tokens.completion
    else:
        raise InvalidInput("tokens", 'must be {"prompt": …, "completion": …}')
    return TokenUsage(clean_count("tokens.prompt", prompt), clean_count("tokens.completion", completion))


def _check_roles(role: Role, calls: str | None, results: str | None) -> None:
    if calls and role != "assistant":
        raise InvalidInput("tool_calls", f"belong to an assistant turn, not to a {role} turn")
    if results and role != "tool":
        raise InvalidInput("tool_results", f"belong to a tool turn, not to a {role} turn")
    if role == "tool" and not results:
        raise InvalidInput("tool_results", "a tool turn needs tool results")


def preview(text: str) -> str | None:
    """Return the first line that is not empty, shortened to fit a list."""
    rest = text.lstrip()[:_FIRST_LINE]  # every line break is whitespace
    end = _LINE_END.search(rest)
    line = rest[: end.start() if end else None].rstrip()
    if len(line) <= MAX_PREVIEW:
        return line or None
    return line[: MAX_PREVIEW - 1].rstrip() + "…"
