"""`palaver demo`: the product in a minute, on a database that is deleted afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from palaver.cli.app import Call, command
from palaver.cli.explain import recalled_turns, show_explanation
from palaver.cli.output import counted, emit, say
from palaver.conversations.opener import open as open_store
from palaver.errors import EngineError

if TYPE_CHECKING:
    from palaver.conversations.conversation import Conversation
    from palaver.conversations.store import Store
    from palaver.model import Role, Turn

PANEL = "Chat"
START = datetime(2026, 3, 2, 18, tzinfo=UTC)
BUDGET = 600  # tokens: far less than the conversation has
SECRET = "peanuts"
OPENING = (
    ("I'm allergic to peanuts, and I cook for two.", "Noted: no peanuts, and portions for two."),
    ("From now on, give me times in minutes.", "Will do: times in minutes."),
    ("My oven has no fan, by the way.", "Then add 20 degrees to what recipes for fan ovens say."),
)
DISHES = (
    "lentil curry",
    "mushroom risotto",
    "bean chili",
    "ramen with egg",
    "shakshuka",
    "pea soup",
    "gnocchi",
    "tacos",
)
WEEKS = 5
QUESTION = "Which food am I allergic to?"
OTHER_WORDS = "Which snack would make me ill?"
ACKNOWLEDGED = 25  # turns, after which the writing process is killed
# Another process, so that it can be killed. It says so after each turn that Palaver has acknowledged.
WRITER = """
import sys, palaver.sync
store = palaver.sync.open(sys.argv[1], user="ada", embedder="none", worker=False)
talk, number = store.conversation("diary"), 0
while True:
    number += 1
    talk.append("user", f"Entry {number}")
    print(number, flush=True)
"""


@command("demo", PANEL)
async def demo(call: Call) -> None:
    """Demonstrate Palaver in about a minute: memory, a context and its explanation, recall, a crash, and deletion.

    The demo works offline. It uses a temporary database, which it deletes at the end. Your own database is not used.

    Examples:

      palaver demo
      palaver demo --json
    """
    with TemporaryDirectory(prefix="palaver-demo-") as folder:
        url = f"sqlite:///{folder}/demo.db"
        async with open_store(url, user="ada", embedder="local", worker=False, model=None) as store:
            talk = await _converse(call, store)
            await _build_context(call, talk)
            await _recall(call, talk)
            await _survive_a_kill(call, store, url)
            await _forget(call, talk, Path(folder))
    _title(call, "What next?")
    _tell(
        call, "Run palaver chat to chat in the terminal, or palaver serve for the web app. In Python, import palaver."
    )


async def _converse(call: Call, store: Store) -> Conversation:
    _title(call, f"1. A conversation of {WEEKS} weeks")
    talk = await store.conversation("dinner", title="Dinner plans")
    turns = await talk.append_many(
        {"role": role, "content": text, "created": START + timedelta(hours=12 * at)}
        for at, (role, text) in enumerate(_script())
    )
    await talk.remember("goals", "Cook simple dinners on weekdays")
    await store.settle()
    await talk.compact(keep_tokens=BUDGET // 2)
    summaries, notes = await talk.summaries(), await talk.working_memory()
    instructions = [one.text for one in notes.goals]
    _report(
        call,
        {"step": "conversation", "turns": len(turns), "summaries": len(summaries), "goals": instructions},
        f"{counted(len(turns), 'turn')} on disk, {counted(len(summaries), 'summary', 'summaries')} of the older ones,"
        f' and one note in the list of goals: "{instructions[0]}".',
    )
    return talk


def _script() -> Iterator[tuple[Role, str]]:
    """Yield who says what: a few things worth remembering, then weeks of everyday questions."""
    for question, answer in OPENING:
        yield from (("user", question), ("assistant", answer))
    for week in range(1, WEEKS + 1):
        for minutes, dish in enumerate(DISHES, start=14 + week):
            yield "user", f"Week {week}: what do I need for {dish}?"
            yield "assistant", f"For {dish}: onions, garlic, and about {minutes} minutes. The rest is in your cupboard."


async def _build_context(call: Call, talk: Conversation) -> None:
    _title(call, f"2. A prompt of at most {BUDGET} tokens")
    _tell(call, f"ada asks: {QUESTION}")
    context = await talk.build_context(BUDGET, message=QUESTION)
    explanation = context.explain()
    if call.as_json:
        emit({"step": "context", "tokens": context.tokens, "budget": BUDGET, "holds_answer": SECRET in context.text})
        return
    say("")
    show_explanation(explanation, await recalled_turns(talk, explanation))


async def _recall(call: Call, talk: Conversation) -> None:
    _title(call, "3. Recall, by words and by meaning")
    (hit,) = await talk.recall(OTHER_WORDS, 1)
    turn = _turn_of(hit.turn)
    _report(
        call,
        {"step": "recall", "query": OTHER_WORDS, "seq": turn.seq, "text": turn.text},
        f"{OTHER_WORDS}\n→ turn {turn.seq} of {turn.created:%d %B %Y}: {turn.text}",
    )


def _turn_of(turn: Turn | None) -> Turn:
    assert turn is not None, "this demo recalls turns"
    return turn


async def _survive_a_kill(call: Call, store: Store, url: str) -> None:
    _title(call, "4. kill -9")
    with _writing(url) as writer:
        acknowledged = _wait_for(writer, ACKNOWLEDGED)
    talk = await store.conversation("diary")
    kept = {turn.text for turn in await talk.history(1_000)}
    there = sum(f"Entry {number}" in kept for number in range(1, acknowledged + 1))
    await talk.verify()
    _report(
        call,
        {"step": "kill", "acknowledged": acknowledged, "there": there, "verified": True},
        f"Another process appended turns to a diary, and was killed. Of the {acknowledged} turns that Palaver"
        f" had confirmed, {there} are on disk. Every hash is correct.",
    )


@contextmanager
def _writing(url: str) -> Iterator[subprocess.Popen[str]]:
    """A process that appends turns until the end of the block, where it is killed without a chance to clean up."""
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, url], stdout=subprocess.PIPE, text=True, env={**os.environ}
    )
    try:
        yield writer
    finally:
        writer.kill()
        writer.communicate()


def _wait_for(writer: subprocess.Popen[str], count: int) -> int:
    assert writer.stdout is not None
    lines = [writer.stdout.readline() for _ in range(count)]
    if not lines[-1]:
        raise EngineError("the second process of the demo ended early")
    return int(lines[-1])


async def _forget(call: Call, talk: Conversation, folder: Path) -> None:
    _title(call, "5. Forget a turn, and verify the others")
    said = [turn for turn in await talk.history(1_000) if SECRET in turn.text]
    before = _is_on_disk(folder)
    for turn in said:
        await talk.forget(turn)
    found, verified = await talk.search(SECRET), await talk.verify()
    after = _is_on_disk(folder)
    _report(
        call,
        {
            "step": "forget",
            "forgotten": len(said),
            "found": len(found),
            "on_disk": {"before": before, "after": after},
            "verified_events": verified.events,
        },
        f'Forgot {counted(len(said), "turn")} with "{SECRET}". Is the word in the files of the database? '
        f"Before: {_yes(before)}. After: {_yes(after)}.\n"
        f"Search finds {counted(len(found), 'turn')}. "
        f"The log of {counted(verified.events, 'event')} still verifies every other turn.",
    )


def _is_on_disk(folder: Path) -> bool:
    """Whether any file of the database holds the word, as a thief of the disk would look for it."""
    return any(SECRET.encode() in file.read_bytes() for file in folder.rglob("*") if file.is_file())


def _yes(value: bool) -> str:
    return "yes" if value else "no"


# ---- output --------------------------------------------------------------------------------------------------------


def _title(call: Call, text: str) -> None:
    if call.as_json:
        return
    from rich.text import Text

    say("", Text(text, "bold"), Text("─" * len(text), "dim"))


def _tell(call: Call, text: str) -> None:
    if not call.as_json:
        say(text)


def _report(call: Call, data: dict[str, Any], text: str) -> None:
    if call.as_json:
        emit(data)
    else:
        say(*text.split("\n"))
