"""Google ADK: a session service and a memory service.

    runner = Runner(agent=agent, app_name="app", session_service=PalaverSessionService(store),
                    memory_service=PalaverMemoryService(store))

A session is one conversation: its events are turns, found by their words and kept exactly as they came. State with the
prefixes `app:` and `user:` is in a conversation of the kind `state`. Needs `pip install palaver[google-adk]`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events import Event
from google.adk.memory import BaseMemoryService
from google.adk.memory.base_memory_service import SearchMemoryResponse
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.sessions import BaseSessionService, Session, State
from google.adk.sessions.base_session_service import GetSessionConfig, ListSessionsResponse
from google.genai import types

from palaver import Conversation, ConversationInfo, ConversationNotFound, Turn, TurnGone, TurnInput, TurnNotFound
from palaver.adapters.bridge import AnyStore, Bridge
from palaver.adapters.state_log import StateLog, Value, log_key
from palaver.adapters.thread import own_score, whole_thread
from palaver.interchange.originals import original_of, storable, with_original

AGENT = "google-adk"
MAX_DELTAS = 50  # of a shared state, before they become one


class PalaverSessionService(BaseSessionService):
    """Sessions of Google ADK in a Palaver store."""

    def __init__(self, store: AnyStore) -> None:
        self._bridge = Bridge(store)

    async def create_session(
        self, *, app_name: str, user_id: str, state: dict[str, Any] | None = None, session_id: str | None = None
    ) -> Session:
        return await self._bridge.run(self._create(app_name, user_id, state or {}, (session_id or "").strip()))

    async def get_session(
        self, *, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None
    ) -> Session | None:
        return await self._bridge.run(self._get(app_name, user_id, session_id.strip(), config))

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        return await self._bridge.run(self._list(app_name, user_id))

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        await self._bridge.run(self._delete(app_name, user_id, session_id.strip()))

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        return await self._bridge.run(self._shared(app_name, user_id))

    async def append_event(self, session: Session, event: Event) -> Event:
        """Store an event. Storing the same event again changes nothing."""
        if event.partial:
            return event
        await self._bridge.run(self._require(session))
        before = len(session.events)
        known = next((one for one in session.events if one.id == event.id and one == event), None)
        if known is not None and await self._bridge.run(self._is_stored(session, event)):
            return event
        stored = await super().append_event(session=session, event=event)  # also removes what is temporary
        try:
            await self._bridge.run(self._append(session, stored))
        except BaseException:  # re-raised: an event that was not stored must not stay in the session
            del session.events[before:]
            raise
        session.last_update_time = event.timestamp
        return stored

    # ---- sessions

    async def _create(self, app: str, user: str, state: dict[str, Any], id: str) -> Session:
        id = id or uuid4().hex
        if await self._find(app, user, id) is not None:
            raise AlreadyExistsError(f"Session with id {id} already exists.")
        shared_app, shared_user, own = _split(state)
        await self._share(app, None, shared_app)
        await self._share(app, user, shared_user)
        metadata = {"adk": {"app": app, "user": user, "session": id}}
        talk = await self._bridge.store.conversation(_key(app, user, id), agent=AGENT, metadata=metadata)
        opening: TurnInput = {"role": "assistant", "metadata": {"adk": "state"}, "idempotency_key": "adk:state"}
        (turn,) = await talk.append_many([with_original(opening, own, talk)])
        return await self._session(talk, [turn], None)

    async def _get(self, app: str, user: str, id: str, config: GetSessionConfig | None) -> Session | None:
        talk = await self._find(app, user, id)
        return None if talk is None else await self._session(talk, await whole_thread(talk), config)

    async def _session(self, talk: Conversation, turns: Sequence[Turn], config: GetSessionConfig | None) -> Session:
        named = talk.info.metadata["adk"]
        state: dict[str, Any] = {}
        events: list[Event] = []
        updated = talk.info.created.timestamp()
        for turn in turns:
            original = original_of(turn)
            if turn.metadata.get("adk") == "state":
                state |= original or {}
            elif original is not None:
                event = Event.model_validate(original)
                events.append(event)
                updated = event.timestamp
                state |= _split(event.actions.state_delta if event.actions else {})[2]
        state |= {State.APP_PREFIX + name: one for name, one in (await self._shared(named["app"], None)).items()}
        shared = await self._shared(named["app"], named["user"])
        state |= {State.USER_PREFIX + name: one for name, one in shared.items()}
        return Session(
            id=named["session"],
            app_name=named["app"],
            user_id=named["user"],
            state=state,
            events=_recent(events, config),
            last_update_time=updated,
        )

    async def _list(self, app: str, user: str | None) -> ListSessionsResponse:
        sessions = []
        for info in await self._infos():
            named = info.metadata["adk"]
            if named["app"] == app and user in (None, named["user"]):
                talk = await self._bridge.store.get(info.id)
                session = await self._session(talk, await whole_thread(talk), None)
                sessions.append(session.model_copy(update={"events": []}))
        sessions.sort(key=lambda one: (one.last_update_time, one.user_id, one.id))
        return ListSessionsResponse(sessions=sessions)

    async def _infos(self) -> list[ConversationInfo]:
        found: list[ConversationInfo] = []
        cursor = None
        while True:
            page = await self._bridge.store.conversations(agent=AGENT, limit=1_000, cursor=cursor)
            found += [info for info in page.items if isinstance(info.metadata.get("adk"), Mapping)]
            cursor = page.cursor
            if cursor is None:
                return found

    async def _delete(self, app: str, user: str, id: str) -> None:
        talk = await self._find(app, user, id)
        if talk is not None:
            await talk.forget()

    async def _find(self, app: str, user: str, id: str) -> Conversation | None:
        try:
            return await self._bridge.store.find(_key(app, user, id))
        except ConversationNotFound:
            return None

    # ---- events

    async def _require(self, session: Session) -> None:
        if await self._find(session.app_name, session.user_id, session.id) is None:
            raise SessionNotFoundError(f"Session {session.id} not found.")

    async def _is_stored(self, session: Session, event: Event) -> bool:
        stored = await self._get(session.app_name, session.user_id, session.id, None)
        return stored is not None and any(one == event for one in stored.events if one.id == event.id)

    async def _append(self, session: Session, event: Event) -> None:
        app, user = session.app_name, session.user_id
        shared_app, shared_user, _ = _split(event.actions.state_delta if event.actions else {})
        await self._share(app, None, shared_app)
        await self._share(app, user, shared_user)
        talk = await self._bridge.store.find(_key(app, user, session.id))
        await talk.append_many([_turn(event, talk)])

    # ---- state that sessions share

    async def _share(self, app: str, user: str | None, delta: Mapping[str, Any]) -> None:
        if delta:
            log = await StateLog.open(self._bridge.store, _state_key(app, user), AGENT, {})
            await log.append([Value({}, _encode(delta))])

    async def _shared(self, app: str, user: str | None) -> dict[str, Any]:
        """Return the state that sessions of an app, or of a user in it, share. Many deltas become one."""
        log = await StateLog.find(self._bridge.store, _state_key(app, user))
        if log is None:
            return {}
        entries = await log.read_new()
        state: dict[str, Any] = {}
        for data in await log.read(entries):
            state |= json.loads(data) if data else {}
        if len(entries) > MAX_DELTAS:
            await log.append([Value({}, _encode(state))], expected=entries[-1].number + 1)
            await log.forget(entries)
        return state


class PalaverMemoryService(BaseMemoryService):
    """Memory of Google ADK: words of a user and to a user, recalled by meaning and by words."""

    def __init__(self, store: AnyStore, *, k: int = 10) -> None:
        self._bridge, self._k = Bridge(store), k

    async def add_session_to_memory(self, session: Session) -> None:
        await self._bridge.run(self._add(session.app_name, session.user_id, session.events))

    async def add_events_to_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        events: Sequence[Event],
        session_id: str | None = None,
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        await self._bridge.run(self._add(app_name, user_id, events))

    async def add_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        memories: Sequence[MemoryEntry],
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        await self._bridge.run(self._store(app_name, user_id, [(one.id or uuid4().hex, one) for one in memories]))

    async def search_memory(self, *, app_name: str, user_id: str, query: str) -> SearchMemoryResponse:
        return await self._bridge.run(self._search(app_name, user_id, query))

    async def delete_memory(self, *, app_name: str, user_id: str, memory_id: str | None = None) -> None:
        """Delete one memory permanently. Adding its session again does not bring it back."""
        if memory_id is not None:
            await self._bridge.run(self._delete(app_name, user_id, memory_id))

    async def _add(self, app: str, user: str, events: Sequence[Event]) -> None:
        spoken = [event for event in events if event.content and event.content.parts and _words(event.content)]
        await self._store(app, user, [(event.id, _memory(event)) for event in spoken])

    async def _store(self, app: str, user: str, memories: Sequence[tuple[str, MemoryEntry]]) -> None:
        settings: Any = {"kind": "items"}
        talk = await self._bridge.store.conversation(_memory_key(app, user), agent=AGENT, settings=settings)
        for id, memory in memories:
            turn: TurnInput = {"role": "assistant", "content": storable(_words(memory.content))}
            turn = with_original(turn, json.loads(memory.model_dump_json()), talk)
            try:
                await talk.append_many([{**turn, "idempotency_key": id}])
            except TurnGone:
                continue  # it was deleted, and stays so

    async def _search(self, app: str, user: str, query: str) -> SearchMemoryResponse:
        try:
            talk = await self._bridge.store.find(_memory_key(app, user))
        except ConversationNotFound:
            return SearchMemoryResponse()
        hits = await talk.recall(query, self._k, include_facts=False)
        found = [hit.turn for hit in sorted(hits, key=own_score, reverse=True) if hit.turn]
        entries = [(turn, original_of(turn)) for turn in found]
        memories = [MemoryEntry.model_validate({**original, "id": turn.id}) for turn, original in entries if original]
        return SearchMemoryResponse(memories=memories)

    async def _delete(self, app: str, user: str, id: str) -> None:
        try:
            await (await self._bridge.store.find(_memory_key(app, user))).forget(id)
        except (ConversationNotFound, TurnGone, TurnNotFound):
            return


def _key(app: str, user: str, session: str) -> str:
    return log_key("adk", "/".join(map(_escaped, (app, user, session))))


def _state_key(app: str, user: str | None) -> str:
    return log_key("adk-state", "/".join(map(_escaped, (app,) if user is None else (app, user))))


def _memory_key(app: str, user: str) -> str:
    return log_key("adk-memory", "/".join(map(_escaped, (app, user))))


def _escaped(name: str) -> str:
    return name.replace("%", "%25").replace("/", "%2F")


def _encode(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, default=str).encode()


def _split(state: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return what belongs to the app, to the user and to the session. Temporary state is in none of them."""
    app, user, own = {}, {}, {}
    for name, value in state.items():
        if name.startswith(State.APP_PREFIX):
            app[name.removeprefix(State.APP_PREFIX)] = value
        elif name.startswith(State.USER_PREFIX):
            user[name.removeprefix(State.USER_PREFIX)] = value
        elif not name.startswith(State.TEMP_PREFIX):
            own[name] = value
    return app, user, own


def _recent(events: list[Event], config: GetSessionConfig | None) -> list[Event]:
    if config is None:
        return events
    if config.num_recent_events is not None:
        events = events[-config.num_recent_events :] if config.num_recent_events else []
    if config.after_timestamp is not None:
        early = [number for number, event in enumerate(events) if event.timestamp < config.after_timestamp]
        events = events[early[-1] + 1 :] if early else events
    return events


def _turn(event: Event, talk: Conversation) -> TurnInput:
    """Return an event as a turn: its words, calls and results, and the event itself."""
    original = json.loads(event.model_dump_json())
    parts = (event.content.parts if event.content else None) or []
    results = [part.function_response for part in parts if part.function_response]
    calls = [part.function_call for part in parts if part.function_call]
    turn: TurnInput = {"role": "user" if event.author == "user" else "assistant"}
    if event.content:
        turn["content"] = storable(_words(event.content))
    if results:
        found = {
            one.id or one.name or "tool": {"id": one.id or one.name or "tool", "content": one.response}
            for one in results
        }
        turn = {"role": "tool", "tool_results": list(found.values())}
    elif calls and turn["role"] == "assistant":
        named = {one.id or one.name or "tool": one for one in calls}
        turn["tool_calls"] = [
            {"id": id, "name": one.name or "tool", "arguments": one.args or {}} for id, one in named.items()
        ]
    if turn["role"] == "assistant" and event.author:
        turn["actor"] = event.author
    turn["created"] = datetime.fromtimestamp(event.timestamp, UTC)
    digest = hashlib.sha256(json.dumps(original, sort_keys=True).encode()).hexdigest()[:32]
    turn["idempotency_key"] = f"{event.id}:{digest}"
    return with_original(turn, original, talk)


def _words(content: types.Content) -> str:
    return "\n".join(part.text for part in content.parts or () if part.text)


def _memory(event: Event) -> MemoryEntry:
    assert event.content is not None
    when = datetime.fromtimestamp(event.timestamp, UTC).isoformat()
    return MemoryEntry(content=event.content, author=event.author, timestamp=when)
