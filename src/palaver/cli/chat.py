"""chat: a conversation in the terminal that answers from its own memory, without a model."""

from __future__ import annotations

import io
import signal
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from palaver.cli.app import Call, command
from palaver.cli.offline import ACTOR, NOTICE, answer, quoting, remembered
from palaver.cli.opening import creating, find_or_create
from palaver.cli.output import (
    clean,
    complain,
    console,
    counted,
    emit,
    match_wire,
    say,
    show_match,
    show_turn,
    wire,
)
from palaver.cli.removing import removed
from palaver.errors import PalaverError

if TYPE_CHECKING:
    from palaver.conversation import Conversation
    from palaver.model import Match

PANEL = "Talk"
HISTORY = 20
PROMPT = "you> "
COMMANDS = {
    "/help": "this list",
    "/history": f"the last {HISTORY} turns, with their ids",
    "/search TEXT": "turns that hold these words",
    "/forget": "forget the whole conversation for good; asks first",
    "/forget TURN": "forget one turn, and the answers that quote it",
    "/quit": "end; everything stays stored",
}


@command("chat", PANEL)
async def chat(
    call: Call,
    key: Annotated[str, typer.Argument(metavar="KEY", help="Which conversation; made when it is not there.")] = "chat",
) -> None:
    """Talk in the terminal. No model is used: the answers are quotes from the conversation's own earlier turns.

    Each line is on disk before it is answered. Lines may also be piped in. /help lists the commands.

    Examples:

      palaver chat
      palaver chat notes --db notes.db
      echo "What am I allergic to?" | palaver chat notes
    """
    _prepare_stdin()
    # A chat goes on for long: summaries and notes are kept up to date beside it. Its answers need no vectors.
    async with creating(call, embedder="none", worker=True) as store:
        talk, _ = await find_or_create(store, key)
        session = Session(call, talk, key)
        session.greet()
        await session.run()
    if session.failed:
        raise typer.Exit(1)


def _prepare_stdin() -> None:
    if sys.stdin.isatty():
        try:
            import readline  # noqa: F401  # its import gives input() line editing
        except ImportError:
            pass  # not on every platform; plain input will do
    elif isinstance(sys.stdin, io.TextIOWrapper):
        # A byte that is no UTF-8 becomes a refusal of its line, not the end of the chat.
        sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")


def ask(prompt: str) -> str | None:
    """The next line; None at the end of the input and at Ctrl-C.

    It blocks the event loop: between two lines the chat has nothing to do. And it takes Ctrl-C back from asyncio,
    which would only note it and let input() go on waiting.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return input(prompt if sys.stdin.isatty() else "")
    except (EOFError, KeyboardInterrupt):
        return None
    finally:
        signal.signal(signal.SIGINT, before)


class Session:
    """One sitting. Ends at /quit, at the end of the input, or when the conversation is forgotten."""

    def __init__(self, call: Call, talk: Conversation, name: str) -> None:
        self.call, self.talk, self.name = call, talk, name
        self.failed = False
        self.over = False

    def greet(self) -> None:
        turns = self.talk.info.turn_count
        if self.call.as_json:
            self._emit("start", conversation=self.talk.id, key=self.talk.key, turns=turns, model=None, notice=NOTICE)
            return
        say(
            f"Conversation {self.name}, {counted(turns, 'turn')} so far.",
            f"{NOTICE} Answers are quotes from this conversation's own earlier turns.",
            "/help lists the commands, /quit ends.",
            "",
        )

    async def run(self) -> None:
        prompt = "" if self.call.as_json else PROMPT
        while not self.over and (line := ask(prompt)) is not None:
            try:
                await self.take(line.strip())
            except PalaverError as problem:  # about this line; the next one may do better
                complain(problem, as_json=self.call.as_json)
                self.failed = True

    async def take(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        if not line:
            return
        if not word.startswith("/"):
            await self.reply(line)
        elif word == "/quit":
            self.over = True
        elif word == "/help":
            self.help()
        elif word == "/history":
            await self.history()
        elif word == "/search" and rest.strip():
            await self.search(rest.strip())
        elif word == "/forget":
            await self.forget(rest.strip())
        else:
            self._say("unknown", f"{line} is not a command; /help lists them. Nothing was stored.", line=line)

    async def reply(self, text: str) -> None:
        """Store what was said, then the answer. The search comes first, so that it does not find the question."""
        matches = await remembered(self.talk, text)
        said = await self.talk.append("user", text)
        if self.call.as_json:
            self._emit("turn", **wire(said))
        await self._answer(matches)

    async def _answer(self, matches: list[Match]) -> None:
        screen = None if self.call.as_json else console()
        async with self.talk.stream("assistant", actor=ACTOR) as out:
            for piece in answer(matches):
                await out.write(piece)
                if screen is not None:
                    screen.print(clean(piece), end="", soft_wrap=True)
            out.finish(adapter=ACTOR, finish_reason="stop", sources=[{"turn": one.turn.id} for one in matches])
        if screen is not None:
            say("", "")
        elif out.turn is not None:
            self._emit("turn", **wire(out.turn))

    # ---- commands

    def help(self) -> None:
        if self.call.as_json:
            self._emit("help", commands=COMMANDS)
        else:
            say(*(f"{name:<14} {what}" for name, what in COMMANDS.items()), "")

    async def history(self) -> None:
        for turn in await self.talk.history(HISTORY):
            if self.call.as_json:
                self._emit("turn", **wire(turn))
            else:
                show_turn(turn)

    async def search(self, text: str) -> None:
        matches = await self.talk.search(text)
        for match in matches:
            if self.call.as_json:
                self._emit("match", **match_wire(match))
            else:
                show_match(match)
        if not matches:
            self._say("nothing", "Nothing found.")

    async def forget(self, turn: str) -> None:
        if turn:
            known = await self.talk.turn(turn)
            ids = [*(one.id for one in await quoting(self.talk, known.id)), known.id]
            for id in ids:
                await removed(self.talk.forget(id), as_json=self.call.as_json)
            self._say("forgotten", f"Forgot {counted(len(ids), 'turn')}.", conversation=self.talk.id, turns=ids)
            return
        if not self.call.as_json:
            say(f"This forgets the whole conversation {self.name} and cannot be undone. Type yes to do it.")
        if ask("" if self.call.as_json else "forget? ") != "yes":
            self._say("kept", "Nothing was forgotten.")
            return
        await removed(self.talk.forget(), as_json=self.call.as_json)
        self.over = True
        self._say("forgotten", f"Forgot the conversation {self.name}.", conversation=self.talk.id, turns=None)

    # ---- telling

    def _say(self, kind: str, sentence: str, **data: Any) -> None:
        if self.call.as_json:
            self._emit(kind, **data)
        else:
            say(sentence, "")

    def _emit(self, what: str, **data: Any) -> None:
        emit({"kind": what, **data})
