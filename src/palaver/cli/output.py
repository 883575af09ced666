"""Output: plain text with colour on a terminal, JSON lines, errors on stderr."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from palaver.errors import (
    AttachmentNotFound,
    ConversationNotFound,
    PalaverError,
    PermissionDenied,
    TurnNotFound,
    summary_of,
)

if TYPE_CHECKING:  # rich is loaded by the commands that draw something, not by --help of a script
    from rich.console import Console
    from rich.text import Text

    from palaver.model import Event, Turn, TurnMatch

ROLE_STYLES = {"user": "bold cyan", "assistant": "bold green", "system": "bold magenta", "tool": "bold yellow"}
EXCERPT = 240  # characters of a URL that a list shows
# A pipe is not a screen: nothing is wrapped or cut there.
PIPE_WIDTH = 100_000
# Stored text may hold escape sequences; none of them reaches the terminal.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")

HINTS: Mapping[type[Exception], str] = {
    ConversationNotFound: "To list conversations, run `palaver ls`.",
    TurnNotFound: "To list turns with their ids, run `palaver show --all`.",
    AttachmentNotFound: "To list files with their ids, run `palaver attachments`.",
    PermissionDenied: "Without --user and PALAVER_USER, the command acts as the application.",
}


# ---- errors --------------------------------------------------------------------------------------------------------


def complain(problem: Exception, *, as_json: bool) -> None:
    """Print an error as one line on stderr, with advice if there is any."""
    _tell("error", "bold red", problem, as_json)


def warn(problem: Exception, *, as_json: bool) -> None:
    _tell("warning", "bold yellow", problem, as_json)


def _tell(label: str, style: str, problem: Exception, as_json: bool) -> None:
    text, hint = _message(problem), HINTS.get(type(problem))
    if as_json:
        line = {label: type(problem).__name__, "message": text, **({"hint": hint} if hint else {})}
        print(json.dumps(line), file=sys.stderr)
        return
    from rich.text import Text

    sentence = f"{text}. {hint}" if hint else text
    console(stderr=True).print(Text.assemble((f"{label}:", style), " ", clean(sentence).replace("\n", " ")))


def _message(problem: Exception) -> str:
    if isinstance(problem, OSError) and not isinstance(problem, PalaverError) and problem.strerror:
        return f"{problem.strerror}: {problem.filename}" if problem.filename else problem.strerror
    if hasattr(problem, "format_message"):  # a usage error, which names its option only there
        return str(problem.format_message())
    return str(problem) or summary_of(type(problem)) or type(problem).__name__


# ---- JSON ----------------------------------------------------------------------------------------------------------


def emit(value: Any) -> None:
    """Print one line of JSON on stdout, and flush it."""
    ascii_only = (sys.stdout.encoding or "").lower().replace("-", "") != "utf8"
    sys.stdout.write(json.dumps(value, ensure_ascii=ascii_only) + "\n")
    sys.stdout.flush()


def wire(value: Any) -> Any:
    """Convert a value of the library to JSON types. Times are ISO 8601 in UTC."""
    import msgspec

    from palaver.core.turn_draft import encode_part
    from palaver.model import Turn

    data = msgspec.to_builtins(value)
    if isinstance(value, Turn) and not isinstance(value.content, str):
        data["content"] = [encode_part(part) for part in value.content]
    return data


def match_wire(match: TurnMatch) -> dict[str, Any]:
    from palaver.recall.terms import spans

    return {
        "turn": wire(match.turn),
        "terms": list(match.terms),
        "spans": spans(match.turn.text, frozenset(match.terms)),
    }


# ---- text ----------------------------------------------------------------------------------------------------------


def console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    terminal = (sys.stderr if stderr else sys.stdout).isatty()
    return Console(
        stderr=stderr,
        markup=False,
        highlight=False,
        emoji=False,
        width=None if terminal else PIPE_WIDTH,
        soft_wrap=not terminal,
    )


def say(*lines: str | Text) -> None:
    """Print lines on stdout."""
    screen = console()
    for line in lines:
        screen.print(clean(line) if isinstance(line, str) else line)


def note(text: str) -> None:
    """Print a remark on stderr, so that it does not end up in a pipe."""
    console(stderr=True).print(clean(text), style="dim")


def table(columns: Iterable[str], rows: Iterable[Iterable[str | Text]], *, wide: str | None = None) -> None:
    """Print columns on stdout. On a narrow terminal, only the column `wide` is cut."""
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, pad_edge=False, header_style="bold")
    names = tuple(columns)
    for name in names:
        # Rich first narrows the columns that may wrap, and then all of them. So `wide` may wrap, and its cells may not.
        drawn.add_column(name, no_wrap=name != wide, overflow="ellipsis" if name == wide else "fold")
    for row in rows:
        cells = [Text(clean(cell)) if isinstance(cell, str) else cell for cell in row]
        for name, cell in zip(names, cells, strict=False):  # the row of a day has only its name
            cell.no_wrap = True if name == wide else cell.no_wrap
        drawn.add_row(*cells)
    console().print(drawn, soft_wrap=False)


def clean(text: str) -> str:
    """Replace the control characters that a terminal would act on."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def local(moment: datetime, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    return moment.astimezone().strftime(form)


def size(count: int) -> str:
    """Format a number of bytes for people, such as 1.2 MB."""
    amount = float(count)
    for unit in ("bytes", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "bytes" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def counted(count: int, one: str, many: str | None = None) -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"


# ---- turns ---------------------------------------------------------------------------------------------------------


def heading(turn: Turn) -> Text:
    """Return the heading of a turn: role, speaker, time, number and status."""
    from rich.text import Text

    line = Text.assemble(
        (turn.role, ROLE_STYLES[turn.role]),
        "  ",
        clean(turn.actor),
        "  ",
        (local(turn.created), "dim"),
        "  ",
        (f"#{turn.seq} {turn.id}", "dim"),
    )
    if turn.status != "complete":
        line.append(f"  {turn.status}", "red")
    elif not turn.active:
        line.append("  superseded", "red")
    return line


def body(turn: Turn) -> list[Text]:
    """Return the lines of a turn: text, other parts, tool calls and results, files."""
    from rich.text import Text

    lines = [Text(line) for line in _content(turn)]
    for call in turn.tool_calls:
        lines.append(Text(clean(f"→ {call.name}({_json(call.arguments)})  {call.id}"), "yellow"))
    for result in turn.tool_results:
        shown = f"← {result.id}{' failed' if result.is_error else ''}: {_json(result.content)}"
        lines.append(Text(clean(shown), "red" if result.is_error else "yellow"))
    for file in turn.attachments:
        shown = f"attached: {file.filename} ({file.media_type}, {size(file.bytes)})  {file.id}"
        lines.append(Text(clean(shown), "blue"))
    return lines


def _content(turn: Turn) -> list[str]:
    if isinstance(turn.content, str):
        return [clean(turn.content)] if turn.content else []
    return [clean(_part(part)) for part in turn.content]


def _part(part: Any) -> str:
    from palaver.model import Reasoning, Text

    if isinstance(part, Text):
        return part.text
    if isinstance(part, Reasoning):
        return f"(thinking) {part.text}"
    where = part.attachment or part.url
    # A data: URL is the file itself.
    return f"({type(part).__name__.lower()}) {where if len(where) <= EXCERPT else where[:EXCERPT] + '…'}"


def _json(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def show_turn(turn: Turn) -> None:
    say(heading(turn), *body(turn), "")


def excerpt(text: str, stems: frozenset[str]) -> str:
    """Return the piece of `text` around the first word with one of these stems, on one line."""
    from palaver.recall import terms

    return terms.excerpt(text, stems)


def marked(text: str, stems: frozenset[str]) -> Text:
    """Return the part of `text` around these words, with the words highlighted."""
    from rich.text import Text

    from palaver.recall.terms import spans

    piece = Text(clean(excerpt(text, stems)))
    for start, end in spans(piece.plain, stems):
        piece.stylize("bold yellow", start, end)
    return piece


def show_match(match: TurnMatch) -> None:
    """Print the heading of a turn, and the part of its text that was found."""
    say(heading(match.turn), marked(match.turn.text, frozenset(match.terms)), "")


def event_line(event: Event) -> Text:
    from rich.text import Text

    detail = " ".join(part for part in (event.turn, _json(event.payload) if event.payload else None) if part)
    return Text.assemble(
        (f"{event.n:>6}  {local(event.at)}  ", "dim"),
        (f"{event.kind:<7}", "bold"),
        "  ",
        clean(event.actor or "-"),
        "  ",
        (clean(detail), "dim"),
    )
