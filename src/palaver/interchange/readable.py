"""A conversation for people and other programs to read: Markdown, one page of HTML, messages of OpenAI's API.

These hold the active branch. For everything that is stored, and to import it again, there is `jsonl`.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from html import escape
from typing import Any

from palaver.conversations.conversation import Conversation
from palaver.core.turn_draft import words
from palaver.errors import PalaverError
from palaver.model import Attachment, Turn

PAGE = 500
MAX_INLINE = 2_000_000  # bytes of a picture that is put into the page
PICTURES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})


async def turns_of(talk: Conversation) -> AsyncIterator[Turn]:
    """Yield every turn of the active branch, oldest first.

    Pages are read from the end, so they are read twice: first to find where each begins, then forward. No more than one
    is held at a time.
    """
    ends: list[str | None] = [None]
    while len(page := await talk.history(PAGE, before=ends[-1])) == PAGE:
        ends.append(page[0].id)
    for end in reversed(ends):
        for turn in await talk.history(PAGE, before=end):
            yield turn


# ---- OpenAI's messages ---------------------------------------------------------------------------------------------


async def openai_lines(talk: Conversation) -> AsyncIterator[str]:
    """Yield the conversation as one line of JSON, as OpenAI's fine-tuning files have it: `{"messages": […]}`."""
    messages = [message async for turn in turns_of(talk) for message in openai_messages(turn)]
    yield json.dumps({"messages": messages}, ensure_ascii=False)


def openai_messages(turn: Turn) -> list[dict[str, Any]]:
    """Return a turn as messages of Chat Completions. A tool turn is one message for each result."""
    if turn.role == "tool":
        return [
            {"role": "tool", "tool_call_id": one.id, "content": _result_text(one.content)} for one in turn.tool_results
        ]
    message: dict[str, Any] = {"role": turn.role, "content": words(turn.content)}
    if turn.tool_calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": _json(call.arguments)}}
            for call in turn.tool_calls
        ]
    return [message]


def _json(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _result_text(content: object) -> str:
    return content if isinstance(content, str) else _json(content)


# ---- Markdown ------------------------------------------------------------------------------------------------------


async def markdown_lines(talk: Conversation) -> AsyncIterator[str]:
    """Yield the conversation as Markdown: a heading for each turn, files and tool calls named."""
    yield f"# {_heading(talk)}"
    yield ""
    async for turn in turns_of(talk):
        yield f"## {turn.actor} · {_time(turn.created)}"
        yield ""
        for paragraph in _markdown(turn):
            yield paragraph
            yield ""


def _heading(talk: Conversation) -> str:
    return " ".join((talk.info.title or talk.key or talk.id).split())


def _time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M}"


def _markdown(turn: Turn) -> list[str]:
    text = words(turn.content)
    parts = [text] if text else []
    parts += [f"*File: {file.filename}*" for file in turn.attachments]
    parts += [_fenced(f"{call.name}({_json(call.arguments)})") for call in turn.tool_calls]
    return parts + [_fenced(_result_text(result.content)) for result in turn.tool_results]


def _fenced(text: str) -> str:
    """Return text as a block of code, with a fence that does not occur in it."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}\n{text}\n{fence}"


# ---- HTML ----------------------------------------------------------------------------------------------------------

STYLE = """
:root { color-scheme: light dark; --page: #fbfaf8; --text: #1c1b1a; --quiet: #6b6863; --line: #e4e0da; --user: #eef3fb; --code: #f3f1ed; }
@media (prefers-color-scheme: dark) {
  :root { --page: #17181a; --text: #e9e7e3; --quiet: #a09c95; --line: #33353a; --user: #1f2a3a; --code: #202226; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text); font: 16px/1.6 system-ui, sans-serif; }
main { max-width: 46rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; }
h1 { font-size: 1.6rem; line-height: 1.3; margin: 0 0 .25rem; }
header p, .who { color: var(--quiet); font-size: .85rem; margin: 0; }
article { margin-top: 1.75rem; overflow-wrap: anywhere; }
article.user { background: var(--user); border-radius: .75rem; padding: .9rem 1.1rem; margin-top: 2.75rem; }
article > :last-child { margin-bottom: 0; }
.who b { color: var(--text); margin-right: .5em; }
pre { background: var(--code); border: 1px solid var(--line); border-radius: .5rem; padding: .75rem 1rem; overflow-x: auto; font-size: .85rem; }
code { font-family: ui-monospace, monospace; font-size: .9em; }
table { border-collapse: collapse; display: block; overflow-x: auto; }
th, td { border: 1px solid var(--line); padding: .3rem .6rem; text-align: start; }
blockquote { margin: 0; padding-inline-start: 1rem; border-inline-start: 3px solid var(--line); color: var(--quiet); }
img { max-width: 100%; border-radius: .5rem; }
details { border: 1px solid var(--line); border-radius: .5rem; padding: .4rem .8rem; font-size: .9rem; }
.file { display: inline-block; border: 1px solid var(--line); border-radius: .5rem; padding: .2rem .6rem; font-size: .85rem; margin: .25rem .4rem 0 0; }
@media print { article { break-inside: avoid; } }
"""  # noqa: E501 - one rule a line is easiest to read


async def html_lines(talk: Conversation) -> AsyncIterator[str]:
    """Yield the conversation as one page that needs no other file, no script and no network."""
    title = escape(_heading(talk))
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    yield '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>"
    count, changed = f"{talk.info.turn_count:,} turns", _time(talk.info.updated)
    yield f"<header><h1>{title}</h1><p>{count}, last changed {changed}</p></header>"
    render = _renderer()
    async for turn in turns_of(talk):
        yield await _article(talk, turn, render)
    yield "</main>\n</body>\n</html>"


def _renderer() -> Any:
    """Return a renderer of Markdown that lets no HTML through and loads no picture from elsewhere."""
    from markdown_it import MarkdownIt

    return (
        MarkdownIt("commonmark", {"html": False, "linkify": False})
        .enable("table")
        .enable("strikethrough")
        .disable("image")
    )


async def _article(talk: Conversation, turn: Turn, render: Any) -> str:
    kind = turn.role if turn.role in ("user", "assistant", "system", "tool") else "assistant"
    head = f'<p class="who"><b>{escape(turn.actor)}</b><time>{_time(turn.created)}</time></p>'
    body = [head, render.render(words(turn.content)) if turn.content else ""]
    body += [await _file(talk, file) for file in turn.attachments]
    body += [_details(f"Call of {call.name}", _json(call.arguments)) for call in turn.tool_calls]
    body += [_details("Result", _result_text(result.content)) for result in turn.tool_results]
    return f'<article class="{kind}" dir="auto">{"".join(body)}</article>'


def _details(title: str, text: str) -> str:
    return f"<details><summary>{escape(title)}</summary><pre>{escape(text)}</pre></details>"


async def _file(talk: Conversation, file: Attachment) -> str:
    """Return a picture as part of the page; any other file by its name."""
    name = escape(file.filename, quote=True)
    if file.media_type in PICTURES and file.bytes <= MAX_INLINE:
        try:
            data = b64encode(await talk.read_attachment(file)).decode()
        except PalaverError:  # its bytes are lost or damaged; the page is of use without them
            return f'<span class="file">{name} (not readable)</span>'
        return f'<p><img alt="{name}" src="data:{file.media_type};base64,{data}"></p>'
    return f'<span class="file">{name}</span>'


FORMATS: dict[str, Any] = {"markdown": markdown_lines, "html": html_lines, "openai": openai_lines}
NAMES: Sequence[str] = tuple(FORMATS)
