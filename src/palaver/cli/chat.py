"""chat: a conversation in the terminal, with any model or with none."""

from __future__ import annotations

import asyncio
import io
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from palaver.cli.app import Call, command
from palaver.cli.database import creating, find_or_create
from palaver.cli.explain import recalled_turns, show_explanation
from palaver.cli.forget import delete_and_warn, find_quoting_answers
from palaver.cli.output import (
    body,
    clean,
    complain,
    console,
    counted,
    emit,
    heading,
    match_wire,
    say,
    show_match,
    show_turn,
    wire,
)
from palaver.context.explain import Explanation
from palaver.conversations.internals import generation_of, models_of
from palaver.errors import PalaverError
from palaver.generation.events import Answered, MessageStored, ToolDone, ToolsPlanned
from palaver.models.offline.chat import NOTICE
from palaver.models.registry import OFFLINE
from palaver.ports.models import TextDelta

if TYPE_CHECKING:
    from palaver.conversations.conversation import Conversation
    from palaver.conversations.store import Store

PANEL = "Chat"
HISTORY = 20
PROMPT = "you> "
TOOLS = ("recall", "read_turn", "search_conversations", "read_attachment", "search_attachments")
BRIEF = 200  # characters of a tool's result
COMMANDS = {
    "/help": "show this list",
    "/history": f"show the last {HISTORY} turns, with their ids",
    "/search TEXT": "find turns that contain any of these words",
    "/explain": "show what the model saw for the last answer, and why",
    "/model": "show the model in use",
    "/model NAME": "use another model from now on: openai:…, responses:…, anthropic:…, offline",
    "/branch": "list the positions with more than one version",
    "/branch TURN": "make the branch of this turn active",
    "/forget": "delete the whole conversation permanently, after a confirmation",
    "/forget TURN": "delete one turn permanently, and the offline answers that quote it",
    "/quit": "end the chat; everything stays stored",
}


@command("chat", PANEL)
async def chat(
    call: Call,
    key: Annotated[
        str, typer.Argument(metavar="KEY", help="Key or id of the conversation. It is created if it does not exist.")
    ] = "chat",
    model: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Model for this session. Default: the conversation's model, else PALAVER_MODEL, else offline.",
        ),
    ] = None,
    tools: Annotated[
        bool,
        typer.Option(
            help="Let the model search this and other conversations. On by default; offline answers use no tools."
        ),
    ] = True,
) -> None:
    """Chat in the terminal. Without a model, the answers quote earlier turns of the conversation.

    Each message is stored before it is answered, and the answer is stored while it streams. Ctrl-C stops an answer and
    keeps the text so far. Messages can also be piped in, one per line. Type /help for the commands of the chat.

    Examples:

      palaver chat
      palaver chat notes --model openai:gpt-5
      OPENAI_BASE_URL=http://localhost:11434/v1 palaver chat --model openai:llama3.2
      echo "What am I allergic to?" | palaver chat notes
    """
    _prepare_stdin()
    # A chat takes long: a background worker keeps summaries and notes up to date. Its answers need no vectors.
    async with creating(call, worker=True) as store:
        talk, _ = await find_or_create(store, key)
        session = Session(call, store, talk, key, model, tools)
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
        # A byte that is not UTF-8 makes its line invalid, but does not end the chat.
        sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")


def ask(prompt: str) -> str | None:
    """Read the next line. Return None at the end of the input and at Ctrl-C.

    This blocks the event loop, which has nothing to do between two lines. asyncio's own handling of Ctrl-C is
    turned off, because it would leave input() waiting.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return input(prompt if sys.stdin.isatty() else "")
    except (EOFError, KeyboardInterrupt):
        return None
    finally:
        signal.signal(signal.SIGINT, before)


class Session:
    """One run of the chat. It ends at /quit, at the end of the input, or when the conversation is forgotten."""

    def __init__(self, call: Call, store: Store, talk: Conversation, name: str, model: str | None, tools: bool) -> None:
        self.call, self.store, self.talk, self.name = call, store, talk, name
        self.chosen, self.tools = model, tools
        self.failed = False
        self.over = False

    @property
    def model(self) -> str:
        """Return the model: the one chosen for this session, else the conversation's, else the default."""
        models = models_of(self.store)
        return models.chat(models.choose(self.talk.info, call=self.chosen)).name

    def greet(self) -> None:
        turns, model = self.talk.info.turn_count, self.model
        notice = NOTICE if model == OFFLINE else None
        if self.call.as_json:
            self._emit("start", conversation=self.talk.id, key=self.talk.key, turns=turns, model=model, notice=notice)
            return
        who = f"{NOTICE}. Answers quote earlier turns of this conversation." if notice else f"Model: {model}."
        say(
            f"Conversation {self.name}, {counted(turns, 'turn')} so far.",
            who,
            "/help lists the commands, /quit ends the chat.",
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
        rest = rest.strip()
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
        elif word == "/search" and rest:
            await self.search(rest)
        elif word == "/explain":
            await self.explain()
        elif word == "/model":
            await self.switch_model(rest)
        elif word == "/branch":
            await self.branch(rest)
        elif word == "/forget":
            await self.forget(rest)
        else:
            self._say("unknown", f"{line} is not a command; /help lists them. Nothing was stored.", line=line)

    # ---- answers

    async def reply(self, text: str) -> None:
        """Print the answer as it arrives. Ctrl-C stops it and keeps what came."""
        tools = TOOLS if self.tools and self.model != OFFLINE else ()
        screen = None if self.call.as_json else console()
        with self._stopping():
            async for event in self.talk.generate_stream(text, model=self.chosen, tools=tools):
                if screen is not None and isinstance(event, TextDelta):
                    screen.print(clean(event.text), end="", soft_wrap=True)
                elif isinstance(event, ToolsPlanned | ToolDone):
                    self._show_tools(event)
                elif screen is None and isinstance(event, MessageStored | Answered):
                    self._emit("turn", **wire(event.turn))
                elif isinstance(event, Answered):
                    say("", "[stopped]" if event.turn.finish_reason == "stopped" else "")

    @contextmanager
    def _stopping(self) -> Iterator[None]:
        """Let Ctrl-C stop the answer while it streams."""
        loop = asyncio.get_running_loop()
        stop = partial(generation_of(self.store).stop, self.store.scope.tenant, self.talk.id)
        try:
            loop.add_signal_handler(signal.SIGINT, stop)
        except (NotImplementedError, RuntimeError, ValueError):  # another platform, or not the main thread
            yield
            return
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGINT)

    def _show_tools(self, event: ToolsPlanned | ToolDone) -> None:
        if self.call.as_json:
            if isinstance(event, ToolsPlanned):
                self._emit("tools", turn=event.turn.id, calls=[wire(call) for call in event.calls])
            else:
                self._emit("result", call=event.call.id, is_error=event.is_error)
        elif isinstance(event, ToolsPlanned):
            say("", *(clean(f"[{call.name} {call.arguments}]") for call in event.calls))
        else:
            text = " ".join(str(event.content).split())[:BRIEF]
            say(clean(f"[{event.call.name}: {text}]"))

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

    async def explain(self) -> None:
        """Print what was in the prompt of the last call, and why."""
        latest = [request for request in await self.talk.requests() if request.explanation is not None]
        if not latest:
            self._say("nothing", "There is no answer yet.")
            return
        if self.call.as_json:
            self._emit("explain", **wire(latest[-1].explanation))
            return
        explanation = Explanation.from_dict(latest[-1].explanation or {})
        show_explanation(explanation, await recalled_turns(self.talk, explanation))
        say("")

    async def switch_model(self, name: str) -> None:
        if name:
            models_of(self.store).chat(name)  # one that does not exist says so now
            await self.talk.update(model=name)
            self.chosen = None
        self._say("model", f"The model is now {self.model}.", model=self.model)

    async def branch(self, turn: str) -> None:
        if turn:
            await self.talk.switch(turn)
            self._say("switched", f"The branch of {turn} is active.", turn=turn)
            return
        found = await self.talk.branches()
        for one in found:
            if self.call.as_json:
                self._emit("branch", position=one.position, turns=[wire(version) for version in one.turns])
                continue
            say(f"At position {one.position}, {counted(len(one.turns), 'version')}:")
            for version in one.turns:
                say(heading(version), *body(version))
        if not found:
            self._say("nothing", "No branches: every turn has one version.")

    async def forget(self, turn: str) -> None:
        if turn:
            known = await self.talk.turn(turn)
            ids = [*(one.id for one in await find_quoting_answers(self.talk, known.id)), known.id]
            for id in ids:
                await delete_and_warn(self.talk.forget(id), as_json=self.call.as_json)
            self._say("forgotten", f"Forgot {counted(len(ids), 'turn')}.", conversation=self.talk.id, turns=ids)
            return
        if not self.call.as_json:
            say(f"This deletes the whole conversation {self.name} permanently. Type yes to confirm.")
        if ask("" if self.call.as_json else "forget? ") != "yes":
            self._say("kept", "Nothing was forgotten.")
            return
        await delete_and_warn(self.talk.forget(), as_json=self.call.as_json)
        self.over = True
        self._say("forgotten", f"Forgot the conversation {self.name}.", conversation=self.talk.id, turns=None)

    # ---- output

    def _say(self, kind: str, sentence: str, **data: Any) -> None:
        if self.call.as_json:
            self._emit(kind, **data)
        else:
            say(sentence, "")

    def _emit(self, what: str, **data: Any) -> None:
        emit({"kind": what, **data})
