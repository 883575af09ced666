"""The guarantees of the kit, held by a store on a server: each in a tenant of its own, with keys for every scope."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import palaver
from palaver.conversations.remote.conversation import MISSING, RemoteConversation
from palaver.conversations.remote.store import RemoteStore
from palaver.errors import InvalidInput
from palaver.model import RIGHTS, Scope
from palaver.server.settings import ServerSettings
from palaver.testing import GUARANTEES
from palaver.testing.kit import Guarantee
from tests.server.conftest import Running, running

numbers = count()
HERE = frozenset({"tenant", "user", "scope", "worker"})
# Guarantees about the inside of a process: its clock, its files, its models, its rows.
INSIDE = (
    "components_of",
    "engine_of",
    "clock_of",
    ".settle(",
    "records()",
    ".scoped(",
    ".restore(",
    "export_lines",
    "replicate(",
)


@dataclass(frozen=True)
class Remote:
    """A database behind a server; a tenant of the guarantee is one of the server with a prefix."""

    server: Running
    prefix: str

    @asynccontextmanager
    async def open(self, **options: Any) -> AsyncIterator[palaver.Store]:
        if unknown := options.keys() - HERE:
            pytest.skip(f"{sorted(unknown)[0]} is set where the server runs")
        scope = options.get("scope") or Scope.of(options.get("tenant", "default"), options.get("user"))
        rights = " ".join(scope.rights if scope.user or options.get("scope") else RIGHTS)
        key = self.server.key(
            f"{self.prefix}-{scope.tenant}", scope.user, rights, visibility=scope.visibility, workspace=scope.workspace
        )
        async with palaver.open(self.server.url, key=key) as store:
            yield store


@pytest.fixture(scope="module")
def remote_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("remote")
    url = f"sqlite:///{folder}/server.db?synchronous=NORMAL"
    settings = ServerSettings(url=url, embedder="none", files=str(folder / "files"), rate=0)
    with running(settings) as server:
        yield server


def is_inside(one: Guarantee) -> bool:
    source = inspect.getsource(one.function)
    return any(word in source for word in INSIDE)


# Guarantees about fields that a server does not send (keys of retries, slots, paths and owners of files), about names
# of errors of values that the server itself checks, and about closing a store, which over HTTP does not end a stream.
NOT_SENT = frozenset(
    {
        "every_field_comes_back",
        "a_key_stands_for_one_content",
        "an_append_goes_on_from_what_is_shown",
        "the_view_closes_up_after_a_removal",
        "bytes_come_back",
        "a_file_that_the_content_names_belongs_to_the_turn",
        "the_path_names_user_and_conversation",
        "values_of_another_kind_are_refused",
        "a_subscriber_hears_that_the_store_is_closed",
    }
)
OUTSIDE = [one for one in GUARANTEES if not is_inside(one) and one.name not in NOT_SENT]


@pytest.mark.parametrize("one", OUTSIDE, ids=str)
async def test_a_guarantee_holds_over_http(one: Guarantee, remote_server: Running, tmp_path: Path) -> None:
    try:
        await one.function(Remote(remote_server, f"t{next(numbers)}"))
    except InvalidInput as problem:
        if MISSING in str(problem):
            pytest.skip(str(problem))
        raise
    except AttributeError as problem:
        if problem.name in ("_components", "_handle", "_services"):
            pytest.skip("looks inside the process")
        raise


def test_every_method_is_here_or_says_why_not() -> None:
    for local, remote in ((palaver.Store, RemoteStore), (palaver.Conversation, RemoteConversation)):
        public = {name for name in vars(local) if not name.startswith("_")}
        built_on_others = {"key", "scope"}
        assert public - vars(remote).keys() <= built_on_others, public - vars(remote).keys() - built_on_others
