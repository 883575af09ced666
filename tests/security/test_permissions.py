"""The table of permissions, cell by cell: every operation by every caller, over HTTP, in MCP and in the library."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp.shared.exceptions import MCPError

import palaver
from palaver.conversations.conversation import Conversation
from palaver.conversations.store import Store
from palaver.core.permissions import VERBS, Permission, permission_for
from palaver.model import ADMIN, GENERATE, READ, RIGHTS, WRITE, Scope
from palaver.server.mcp.tools import TOOLS
from palaver.server.operations import COMPAT_OPERATIONS, NOT_OVER_HTTP, REST_OPERATIONS, Operation
from palaver.server.settings import ServerSettings
from palaver.testing.providers import LoopbackProvider
from tests.server.conftest import Running, ok, running
from tests.server.mcp.helpers import Calls

USUAL = frozenset({"read", "write", "generate"})
OPERATIONS = (*REST_OPERATIONS, *COMPAT_OPERATIONS)
# Operations whose needs are not those of their verbs: some have none, some are about more than one conversation.
OTHERWISE: dict[str, Permission] = {
    "create_ticket": Permission(frozenset({READ})),
    "get_settings": Permission(frozenset()),
    "import_conversations": Permission(frozenset({READ, WRITE})),
    "list_server_models": Permission(frozenset({ADMIN})),
    "put_server_model": Permission(frozenset({ADMIN})),
    "delete_server_model": Permission(frozenset({ADMIN})),
    "try_server_model": Permission(frozenset({ADMIN})),
    "choose_server_model": Permission(frozenset({ADMIN})),
    "list_models": Permission(frozenset()),
    "get_model": Permission(frozenset()),
    "count_input_tokens": Permission(frozenset()),
    "count_message_tokens": Permission(frozenset()),  # without a conversation
    "key_log": Permission(frozenset({ADMIN})),
    "create_embeddings": Permission(frozenset({GENERATE})),
    "sweep": Permission(frozenset({"write", ADMIN})),
    "create_chat_completion": Permission(frozenset({GENERATE})),  # without a conversation
    "create_message": Permission(frozenset({GENERATE})),
    "delete_conversation": Permission(frozenset({READ, "write"}), of_owner=True),
    "delete_openai_conversation": Permission(frozenset({READ, "write"}), of_owner=True),
    "delete_chat_completion": Permission(frozenset({READ, "write"})),
    "list_chat_completions": Permission(frozenset({READ})),
}
BODIES: dict[str, Any] = {
    "remember_about_person": {"text": "x"},
    "correct_person_fact": {"text": "x"},
    "recall_for_person": {"query": "x"},
    "set_person_consent": {"agreed": True},
    "append_turn": {"role": "user", "content": "x"},
    "append_turns": {"turns": [{"role": "user", "content": "x"}]},
    "edit_turn": {"content": "y"},
    "write_chunk": {"n": 0, "text": "x"},
    "add_note": {"text": "x"},
    "correct_note": {"text": "y"},
    "correct_fact": {"text": "y"},
    "recall": {"query": "peanuts"},
    "build_context": {"token_budget": 1_000},
    "generate": {"message": "x"},
    "open_upload": {"filename": "x.txt"},
    "complete_upload": {"token": "x"},
    "update_conversation": {"title": "x"},
    "update_openai_conversation": {"metadata": {"a": "b"}},
    "update_chat_completion": {"metadata": {"a": "b"}},
    "create_items": {"items": [{"type": "message", "role": "user", "content": "x"}]},
    "create_chat_completion": {"model": "chat", "messages": [{"role": "user", "content": "x"}]},
    "create_response": {"model": "chat", "input": "x"},
    "compact_response": {"model": "chat", "input": "x"},
    "count_input_tokens": {"model": "chat", "input": "x"},
    "create_message": {"model": "chat", "max_tokens": 9, "messages": [{"role": "user", "content": "x"}]},
    "count_message_tokens": {"model": "chat", "messages": [{"role": "user", "content": "x"}]},
    "create_embeddings": {"model": "none", "input": "x"},
    "put_server_model": {"name": "added", "model": "openai:test", "api_key": "k"},
    "try_server_model": {"name": "chat"},
    "choose_server_model": {"name": "chat"},
    "erase_user": {"user": "nobody"},
    "set_budget": {"kind": "user", "name": "nobody", "limits": {}},
    "verify_erasure": {"receipt": {}},
}
PARAMETERS = {
    "delete_server_model": {"name": "added"},
    "upload_attachment": {"filename": "x.txt"},
    "find_conversation": {"key": "shared"},
    "search_conversations": {"q": "x"},
    "search_turns": {"q": "x"},
}
NAMING = ("{conversation}", "{response}", "{completion}", "{chat}")


@dataclass(frozen=True)
class Kind:
    """One kind of caller: a user with rights, or the application."""

    name: str
    user: str | None
    rights: frozenset[str]

    @property
    def sees(self) -> bool:
        return self.user in ("ada", "bob", None)


KINDS = (
    Kind("owner", "ada", USUAL),
    Kind("participant", "bob", USUAL),
    Kind("other user", "eve", USUAL | {"system"}),
    Kind("application", None, frozenset(RIGHTS)),
    *(Kind(f"key with {right} alone", "ada", frozenset({right})) for right in RIGHTS),
    *(Kind(f"key without {right}", "ada", frozenset(RIGHTS) - {right}) for right in RIGHTS),
    *(Kind(f"participant with {right}", "bob", USUAL | {right}) for right in ("system", "act_for", "admin")),
)


def needs_of(operation: Operation) -> Permission:
    if operation.name in OTHERWISE:
        return OTHERWISE[operation.name]
    found = permission_for(operation.verbs)
    names_one = any(one in operation.path for one in NAMING) or operation.name in ("follow_conversations",)
    return Permission(found.rights | ({READ} if names_one else set()), found.of_owner)


def expected(needs: Permission, kind: Kind, *, names_one: bool) -> str:
    """allowed, hidden (404), or refused (403)."""
    if not needs.rights <= kind.rights:
        return "refused"
    if names_one and not kind.sees:
        return "hidden"
    is_others = needs.of_owner and kind.user != "ada" and ADMIN not in kind.rights
    return "refused" if is_others else "allowed"


# ---- HTTP ------------------------------------------------------------------------------------------------------------


@dataclass
class World:
    """A server, a client for each kind of caller, and a conversation of Ada and Bob."""

    server: Running
    provider: LoopbackProvider
    clients: dict[str, httpx.Client]
    folder: Path

    def fresh(self, *, with_answer: bool = True) -> dict[str, Any]:
        """Make a conversation with everything that paths can name."""
        ada = self.clients["owner"]
        talk = ok(ada.post("/api/conversations", json={"participants": ["ada", "bob"]}))["id"]
        path = f"/api/conversations/{talk}"
        turn = ok(ada.post(f"{path}/turns", json={"role": "user", "content": "I live in Porto."}))["id"]
        ok(ada.post(f"{path}/memory/goals", json={"text": "peace"}))
        found = {"conversation": talk, "chat": talk, "turn": turn, "list": "goals", "index": 0, "item": f"msg_{turn}"}
        if with_answer:
            body = {"model": "chat", "input": "x", "conversation": talk}
            asked = {**BODIES["create_chat_completion"], "metadata": {"conversation_id": talk}, "store": True}
            found["response"] = ok(ada.post("/v1/responses", json=body))["id"]
            found["completion"] = ok(ada.post("/v1/chat/completions", json=asked))["id"]
        return {
            "attachment": "x",
            "upload": "x",
            "fact": "x",
            "person": "me",
            "model": "chat",
            "response": "x",
            "completion": "x",
            **found,
        }

    def call(self, kind: Kind, operation: Operation, ids: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        body = BODIES.get(operation.name, {})
        if operation.name == "create_chat_message":
            said = {"id": "m", "role": "user", "parts": [{"type": "text", "text": "x"}]}
            body = {"id": ids["conversation"], "messages": [said]}
        parameters = {**PARAMETERS.get(operation.name, {})}
        if operation.name == "follow_conversations":
            parameters["conversation"] = ids["conversation"]
        client = self.clients[kind.name]
        with client.stream(operation.method, operation.url.format(**ids), json=body, params=parameters) as answer:
            if answer.status_code < 400:  # some streams have no end
                return answer.status_code, {}
            answer.read()
            return answer.status_code, answer.json()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with LoopbackProvider() as provider:
        settings = ServerSettings(
            url=f"sqlite:///{tmp_path}/chat.db?synchronous=NORMAL", files=str(tmp_path / "files"), embedder="none",
            require_auth=True, tenant="acme", jwt_secret="x" * 32, rate=0, sweep_every=0, model="chat",
            models=provider.models(), generate={"titles": False},
        )  # fmt: skip
        with running(settings) as server:
            yield from _world(server, provider, tmp_path)


def _world(server: Running, provider: LoopbackProvider, folder: Path) -> Iterator[World]:
    clients = {}
    for kind in KINDS:
        seen: Any = "own" if kind.user else "tenant"
        key = server.key("acme", kind.user, rights=" ".join(kind.rights), visibility=seen)
        clients[kind.name] = server.client(key)
        ok(clients[kind.name].get("/api/settings"))  # the first use of a key is logged
    try:
        yield World(server, provider, clients, folder)
    finally:
        for client in clients.values():
            client.close()


def test_a_refusal_over_http_comes_before_any_change(world: World, subtests: pytest.Subtests) -> None:
    """Nothing is committed to the database, and no model is asked."""
    ids, cells = world.fresh(), 0
    world.server.do(world.server.app.state.services.store.settle())
    asked = len(world.provider.received)
    with closing(sqlite3.connect(f"file:{world.folder}/chat.db?mode=ro", uri=True)) as database:
        version: Callable[[], int] = lambda: database.execute("PRAGMA data_version").fetchone()[0]  # noqa: E731
        for operation in OPERATIONS:
            needs, names_one = needs_of(operation), _names_one(operation)
            before = version()
            with subtests.test(operation.name):
                for kind in KINDS:
                    wanted = expected(needs, kind, names_one=names_one)
                    if wanted == "allowed":
                        continue
                    cells += 1
                    status, body = world.call(kind, operation, ids)
                    if wanted == "hidden":
                        assert status == (204 if operation.name == "resume_chat_message" else 404), (kind.name, body)
                        continue
                    assert status == 403, (kind.name, status, body)
                    missing = (needs.rights | ({ADMIN} if needs.of_owner else set())) - kind.rights
                    assert any(repr(right) in str(body) for right in missing), (kind.name, body)
                assert version() == before, "a refusal changed something"
                assert len(world.provider.received) == asked, "a model was asked"
    assert cells > 600


FEW_AT_SQL = ("participant", "other user", "key with read alone", "key with write alone", "key without read")
FEW = ("owner", "participant", "application")


@pytest.mark.parametrize("kinds", [FEW, pytest.param(None, marks=pytest.mark.slow)], ids=["few", "all"])
def test_callers_with_the_rights_are_let_in_over_http(
    world: World, subtests: pytest.Subtests, kinds: tuple[str, ...] | None
) -> None:
    cells, shared = 0, world.fresh()
    callers = [kind for kind in KINDS if kinds is None or kind.name in kinds]
    for operation in OPERATIONS:
        needs, names_one = needs_of(operation), _names_one(operation)
        changes = operation.method != "GET" and names_one
        with subtests.test(operation.name):
            for kind in callers:
                if expected(needs, kind, names_one=names_one) == "allowed":
                    cells += 1
                    with_answer = "{response}" in operation.path or "{completion}" in operation.path
                    ids = world.fresh(with_answer=with_answer) if changes else shared
                    status, body = world.call(kind, operation, ids)
                    assert status != 403, (kind.name, body)
                    assert status != 401 or "upload" in operation.path, "an upload needs its own ticket"
                    assert status < 500, (kind.name, body)
    assert cells > 75 * len(callers) * 0.4


def _names_one(operation: Operation) -> bool:
    chats = ("create_chat_message", "follow_conversations")
    return any(one in operation.path for one in NAMING) or operation.name in chats


# ---- MCP -------------------------------------------------------------------------------------------------------------

ARGUMENTS: dict[str, dict[str, Any]] = {
    "recall": {"query": "x", "conversation": "k"},
    "remember": {"text": "x", "conversation": "k"},
    "search_conversations": {"query": "x"},
    "about_person": {},
    "notes": {"command": "view", "path": "/memories"},
    "delete_notes": {"path": "/memories/x"},
    "append": {"role": "user", "text": "x", "conversation": "k"},
    "forget": {"whole_conversation": True, "conversation": "k"},
}


@pytest.mark.costly
async def test_every_tool_for_every_caller(subtests: pytest.Subtests) -> None:
    options: Any = {"tenant": "acme", "user": "ada", "embedder": "none", "worker": False}
    async with palaver.open("memory:", **options) as store:
        for tool in TOOLS:
            needs = Permission(permission_for(tool.verbs).rights | {READ}, of_owner=tool.name == "forget")
            assert set(tool.rights) == needs.rights, tool.name
            for kind in KINDS:
                with subtests.test(f"{tool.name}, {kind.name}"):
                    await _call_tool(store, tool.name, needs, kind)


async def _call_tool(store: Store, tool: str, needs: Permission, kind: Kind) -> None:
    key = f"{tool} {kind.name}"
    talk = await store.conversation(key, participants=["bob"])
    await talk.append("user", "hello")
    before = (await talk.refresh()).last_event
    visibility: Any = "own" if kind.user else "tenant"
    scoped = store.scoped(Scope("acme", kind.user, kind.rights, visibility))  # type: ignore[arg-type]
    arguments = {**ARGUMENTS.get(tool, {"conversation": "k"})}
    if "conversation" in arguments:
        arguments["conversation"] = talk.id
    wanted = expected(needs, kind, names_one="conversation" in arguments)
    try:
        result = await Calls(scoped, with_forget=True).call_tool(tool, arguments)
        refused = result.is_error
    except MCPError:  # a tool that is not listed for this caller
        refused = True
    assert refused is (wanted != "allowed")
    if refused:
        assert (await talk.refresh()).last_event == before


# ---- the library -----------------------------------------------------------------------------------------------------


def test_every_verb_is_in_the_table() -> None:
    used = {verb for one in (*OPERATIONS, *TOOLS) for verb in one.verbs}
    elsewhere = {"Store.aclose", "Store.scoped", "Store.signed_in", "Store.settle"}
    assert used | (NOT_OVER_HTTP.keys() - elsewhere) == set(VERBS)


LIBRARY: dict[str, Callable[[Store, Conversation, palaver.Turn], Any]] = {
    "Store.get": lambda store, talk, turn: store.get(talk.id),
    "Store.find": lambda store, talk, turn: store.find("k", owner="ada"),
    "Store.conversations": lambda store, talk, turn: store.conversations(),
    "Store.search": lambda store, talk, turn: store.search("x"),
    "Store.stats": lambda store, talk, turn: store.stats(),
    "Store.usage": lambda store, talk, turn: store.usage(),
    "Store.conversation": lambda store, talk, turn: store.conversation("another"),
    "Conversation.refresh": lambda store, talk, turn: talk.refresh(),
    "Conversation.append": lambda store, talk, turn: talk.append("user", "x"),
    "Conversation.append_many": lambda store, talk, turn: talk.append_many([{"role": "user", "content": "x"}]),
    "Conversation.append_open": lambda store, talk, turn: talk.append_open(),
    "Conversation.history": lambda store, talk, turn: talk.history(),
    "Conversation.turn": lambda store, talk, turn: talk.turn(turn),
    "Conversation.search": lambda store, talk, turn: talk.search("x"),
    "Conversation.branches": lambda store, talk, turn: talk.branches(),
    "Conversation.switch": lambda store, talk, turn: talk.switch(turn),
    "Conversation.update": lambda store, talk, turn: talk.update(title="x"),
    "Conversation.rename": lambda store, talk, turn: talk.rename("x"),
    "Conversation.reset": lambda store, talk, turn: talk.reset(),
    "Conversation.forget": lambda store, talk, turn: talk.forget(turn),
    "Conversation.attach": lambda store, talk, turn: talk.attach(b"x", filename="x.txt"),
    "Conversation.attachments": lambda store, talk, turn: talk.attachments(),
    "Conversation.recall": lambda store, talk, turn: talk.recall("x"),
    "Conversation.build_context": lambda store, talk, turn: talk.build_context(1_000),
    "Conversation.summaries": lambda store, talk, turn: talk.summaries(),
    "Conversation.summarize": lambda store, talk, turn: talk.summarize(),
    "Conversation.compact": lambda store, talk, turn: talk.compact(),
    "Conversation.facts": lambda store, talk, turn: talk.facts(),
    "Conversation.extract_facts": lambda store, talk, turn: talk.extract_facts(),
    "Conversation.working_memory": lambda store, talk, turn: talk.working_memory(),
    "Conversation.remember": lambda store, talk, turn: talk.remember("goals", "x"),
    "Conversation.audit": lambda store, talk, turn: talk.audit(),
    "Conversation.verify": lambda store, talk, turn: talk.verify(),
    "Conversation.requests": lambda store, talk, turn: talk.requests(),
    "Conversation.generate": lambda store, talk, turn: talk.generate("x"),
    "Conversation.stop": lambda store, talk, turn: talk.stop(),
    "Conversation.ask_to_stop": lambda store, talk, turn: talk.ask_to_stop(),
}


@pytest.mark.costly
@pytest.mark.usefixtures("on_this_machine")
async def test_every_verb_for_every_caller(database_url: str, tmp_path: Path, subtests: pytest.Subtests) -> None:
    """On both engines. The library refuses by the table, before anything is stored."""
    options: Any = {"embedder": "none", "worker": False, "files": tmp_path / "files", "model": "offline"}
    async with palaver.open(database_url, tenant="acme", user="ada", **options) as store:
        for verb, call in LIBRARY.items():
            for kind in KINDS:
                with subtests.test(f"{verb}, {kind.name}"):
                    await _call_verb(store, verb, call, kind)


async def _call_verb(store: Store, verb: str, call: Callable[..., Any], kind: Kind, without: str = "") -> None:
    """Call a method as one kind of caller, and compare with the table. `without`: a right that is not checked."""
    from palaver.conversations.internals import conversation_of

    talk = await store.conversation("k" if verb == "Store.find" else None, participants=["bob"])
    turn = await talk.append("user", "hello")
    before = (await talk.refresh()).last_event
    visibility: Any = "own" if kind.user else "tenant"
    scoped = store.scoped(Scope("acme", kind.user, kind.rights, visibility))  # type: ignore[arg-type]
    in_one = verb.startswith("Conversation.") or verb in ("Store.get", "Store.find")
    needs = Permission(VERBS[verb].rights - {without}, VERBS[verb].of_owner)
    wanted = expected(needs, kind, names_one=in_one)
    try:
        await call(scoped, conversation_of(scoped, talk.info), turn)
        found = "allowed"
    except palaver.PermissionDenied:
        found = "refused"
    except palaver.NotFound:
        found = "hidden"
    assert found == wanted
    if found != "allowed":
        assert (await talk.refresh()).last_event == before


# They reach a function that writes only when there is something to do.
SELDOM_WRITING = {f"Conversation.{name}" for name in ("summarize", "compact", "extract_facts", "stop")}
LIBRARY_CHECKS = ("handle.require_right", "handle.require_owner", "directory.require_right", "store.require_right")


@pytest.mark.postgres
@pytest.mark.usefixtures("on_this_machine")
@pytest.mark.parametrize("kinds", [FEW_AT_SQL, pytest.param(None, marks=pytest.mark.slow)], ids=["few", "all"])
async def test_the_database_refuses_the_same_without_the_library(
    postgres_url: str,
    tmp_path: Path,
    subtests: pytest.Subtests,
    monkeypatch: pytest.MonkeyPatch,
    kinds: tuple[str, ...] | None,
) -> None:
    """With the library's own checks off, Postgres refuses the same cells; only `generate` is the library's alone."""
    options: Any = {"embedder": "none", "worker": False, "files": tmp_path / "files", "model": "offline"}
    async with palaver.open(postgres_url, tenant="acme", user="ada", **options) as store:
        for name in LIBRARY_CHECKS:
            monkeypatch.setattr(f"palaver.conversations.{name}", lambda *_: None)
        for verb, call in LIBRARY.items():
            for kind in KINDS:
                is_chosen = kinds is None or kind.name in kinds
                if is_chosen and (verb not in SELDOM_WRITING or not {READ} <= kind.rights or WRITE in kind.rights):
                    with subtests.test(f"{verb}, {kind.name}"):
                        await _call_verb(store, verb, call, kind, without=GENERATE)


@pytest.fixture
def on_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


# ---- the page --------------------------------------------------------------------------------------------------------


def _page_rows() -> list[str]:
    """The rows of docs/reference/permissions.md, from the table."""
    rows = []
    for operation in OPERATIONS:
        needs = needs_of(operation)
        names = ", ".join(f"`{one}`" for one in RIGHTS if one in needs.rights) or "none"
        rows.append(f"| `{operation.method} {operation.url}` | {names}{', owner' if needs.of_owner else ''} |")
    for tool in TOOLS:
        owner = ", owner of a whole conversation" if tool.name == "forget" else ""
        rows.append(f"| MCP `{tool.name}` | {', '.join(f'`{one}`' for one in tool.rights)}{owner} |")
    return rows


def test_the_page_has_the_table() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "permissions.md").read_text().splitlines()
    assert [line for line in page if line.startswith(("| `", "| MCP"))] == _page_rows()
