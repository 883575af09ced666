"""A store can be held: awaited, entered, closed later or never, in globals, other threads, loops and processes."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import warnings
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from shutil import which

import pytest

import palaver
import palaver.sync
from palaver.errors import InvalidInput, StoreClosed, WrongEventLoop

PATIENCE = 60  # seconds after which a process that should have ended is considered hung
PYTHONS = dict.fromkeys([sys.executable, *os.environ.get("PALAVER_TEST_PYTHONS", "").split(os.pathsep)])


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/chat.db"


# ---- async ---------------------------------------------------------------------------------------------------------


async def test_a_store_is_awaited_and_closed_later(url: str) -> None:
    store = await palaver.open(url, embedder="none")
    talk = await store.conversation("k")
    await talk.append("user", "hello")
    await store.aclose()
    await store.aclose()  # a second time does nothing
    with pytest.raises(StoreClosed):
        await talk.append("user", "late")


async def test_another_scope_closes_the_same_database(url: str) -> None:
    store = await palaver.open(url, embedder="none")
    await store.scoped(palaver.Scope("acme", "ada")).aclose()
    with pytest.raises(StoreClosed):
        await store.conversation("k")


async def test_an_open_store_is_a_context_manager(url: str) -> None:
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(palaver.open(url, embedder="none"))
        other = await stack.enter_async_context(await palaver.open(url, embedder="none"))
        assert (await store.conversation("k")).id == (await other.conversation("k")).id
    for one in (store, other):
        with pytest.raises(StoreClosed):
            await one.stats()


async def test_one_call_of_open_is_one_store(url: str) -> None:
    opening = palaver.open(url, embedder="none")
    async with opening:
        with pytest.raises(InvalidInput, match="used before"):
            await opening


async def test_open_that_is_never_awaited_opens_nothing(tmp_path: Path) -> None:
    palaver.open(f"sqlite:///{tmp_path}/never.db")
    assert list(tmp_path.iterdir()) == []


# ---- event loops ---------------------------------------------------------------------------------------------------


async def test_another_event_loop_is_refused_and_the_store_goes_on(database_url: str) -> None:
    async with palaver.open(database_url, embedder="none", worker=False) as store:
        talk = await store.conversation("k")
        verbs = (
            lambda: talk.append("user", "from elsewhere"),
            lambda: talk.history(),
            lambda: talk.recall("x"),
            lambda: store.stats(),
        )

        def elsewhere() -> None:
            for verb in verbs:
                with pytest.raises(WrongEventLoop, match=r"palaver\.sync"):
                    asyncio.run(_wait(verb()))

        await asyncio.to_thread(elsewhere)
        assert (await talk.append("user", "from here")).seq == 0


async def _wait(work: object) -> object:
    return await work  # type: ignore[misc]


def test_under_trio_the_error_says_what_to_do(url: str) -> None:
    import trio

    async def open_it() -> None:
        await palaver.open(url)

    with pytest.raises(WrongEventLoop, match=r"trio\.to_thread\.run_sync"):
        trio.run(open_it)


def test_under_trio_the_synchronous_api_works_in_a_thread(url: str) -> None:
    import trio

    def count_turns() -> int:
        with palaver.sync.open(url, embedder="none") as store:
            talk = store.conversation("k")
            talk.append("user", "from a thread of trio")
            return len(talk.history())

    assert trio.run(trio.to_thread.run_sync, count_turns) == 1


async def test_the_synchronous_api_warns_in_a_running_event_loop_once_per_line(url: str) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        with palaver.sync.open(url, embedder="none") as store:
            for _ in range(3):
                store.stats()
    messages = [(str(one.message), one.filename, one.lineno) for one in caught]
    assert len(messages) == len(set(messages))
    assert all("await palaver.open" in text and name == __file__ for text, name, _ in messages)
    assert len(messages) == 2  # opening and closing are one line, stats the other


def test_the_synchronous_api_does_not_wait_for_itself(url: str) -> None:
    with palaver.sync.open(url, embedder="none") as store:

        async def inside() -> None:
            store.stats()

        with pytest.raises(WrongEventLoop, match="async API"):
            store._portal.call(inside())


# ---- sync ----------------------------------------------------------------------------------------------------------


def test_a_synchronous_store_is_held_and_closed(url: str) -> None:
    store = palaver.sync.open(url, embedder="none")
    talk = store.conversation("k")
    assert talk.append("user", "hello").seq == 0
    store.close()
    store.close()
    with pytest.raises(StoreClosed):
        talk.append("user", "late")


def test_exit_stacks_close_it(url: str) -> None:
    with ExitStack() as stack:
        store = stack.enter_context(palaver.sync.open(url, embedder="none"))
        store.conversation("k")
    with pytest.raises(StoreClosed):
        store.stats()


HEADER = "import sys, palaver, palaver.sync\nurl = sys.argv[1]\n"
NEVER_CLOSED = {
    "a global": "store = palaver.sync.open(url)\nstore.conversation('d').append('user', 'x')",
    "entered by hand": "opened = palaver.sync.open(url)\nstore = opened.__enter__()\n"
    "store.conversation('d').append('user', 'x')",
    "no reference": "palaver.sync.open(url).__enter__().conversation('d').append('user', 'x')",
    "an exit stack": "from contextlib import ExitStack\nstore = ExitStack().enter_context(palaver.sync.open(url))\n"
    "store.conversation('d').append('user', 'x')",
    "a subscription half read": "store = palaver.sync.open(url)\nevents = store.conversation('d').subscribe()\n"
    "next(events)\nstore.conversation('d').append('user', 'x')",
    "a thread pool": "from concurrent.futures import ThreadPoolExecutor\nstore = palaver.sync.open(url)\n"
    "pool = ThreadPoolExecutor(4)\ntalk = store.conversation('d')\npool.submit(talk.append, 'user', 'x').result()",
    "a child of a fork": "import os\nstore = palaver.sync.open(url)\nstore.conversation('d').append('user', 'x')\n"
    "child = os.fork()\nif child: assert os.waitpid(child, 0)[1] == 0",
}


@pytest.mark.parametrize("python", [one for one in PYTHONS if one and which(one)])
@pytest.mark.parametrize("how", NEVER_CLOSED)
def test_a_store_that_is_never_closed_does_not_hang_the_interpreter(python: str, how: str, url: str) -> None:
    command = [python, "-W", "ignore::DeprecationWarning", "-c", HEADER + NEVER_CLOSED[how], url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    with palaver.sync.open(url, embedder="none") as store:
        assert [turn.text for turn in store.find("d").history()] == ["x"]


# ---- options -------------------------------------------------------------------------------------------------------


async def test_groups_and_flat_keywords_do_the_same(url: str) -> None:
    groups = palaver.open(url, streams={"lease": 5.0}, background={"worker": False}, files={"folder": "files"})
    flat = palaver.open(url, stream_lease=5.0, worker=False, files="files")
    assert groups._options == flat._options


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"streams": {"leese": 1}}, "streams.leese"),
        ({"memory": 5}, "memory"),
        ({"streams": {"lease": 1.0}, "stream_lease": 2.0}, "streams.lease"),
        ({"tennant": "acme"}, "tennant"),
    ],
)
def test_wrong_groups_are_refused(options: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        palaver.open("memory:", **options)  # type: ignore[arg-type]
    assert caught.value.field == field
