"""`python -m bench.web`: does a long thread keep the browser's main thread free?

A thread of 400 messages with Markdown and code beside one of 2, in turns: opened, read back to its first message,
scrolled, and written into by a model while somebody types. Counted are tasks of the main thread, from the browser's own
trace: in wall-clock time, which is longer on a busy machine, and in processor time, which hardly depends on it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
from playwright.sync_api import Browser, Page, sync_playwright
from rich.console import Console
from rich.table import Table
from tests.e2e.browser import ARGUMENTS, chromium, why_not

from bench.http import free_port, running
from palaver.testing.providers import LoopbackProvider, Say

LONG, SHORT = 400, 2  # messages
BATCH = 500  # messages per request
LIMIT = 50.0  # milliseconds: a task beyond it is what browsers call long
CATEGORIES = ["disabled-by-default-devtools.timeline"]
MORE = ["devtools.timeline", "v8.execute", "disabled-by-default-v8.cpu_profiler"]  # for whoever looks into a trace
FRAME = "const frame = () => new Promise(requestAnimationFrame);"
STREAMING = "document.querySelector('.thread-content').lastElementChild.querySelector('.is-streaming')"
PAUSE = 0.008  # seconds between pieces: about 120 a second, faster than most models

PROSE = "A paragraph with **bold words**, `code`, *emphasis* and a [link](https://example.org/page), as usual."
CODE = """```python
async def keep(store, words: list[str]) -> int:
    \"\"\"Append each of them, and say how many there were.\"\"\"
    talk = await store.conversation("support/42", owner="ada")
    for number, word in enumerate(words):
        if word.startswith("#"):
            continue  # a comment
        await talk.append("user", f"{number}: {word}")
    return len(words)
```"""
TABLE = "| dish | minutes |\n|---|---|\n| rice | 18 |\n| lentils | 25 |\n| soup | 40 |"
LIST = "- first, with `code`\n- second, with **weight**\n  - and one below it\n- [ ] to do\n- [x] done"
ANSWERS = [f"## Part {n}\n\n{PROSE}\n\n{(CODE, LIST, TABLE)[n % 3]}\n\n{PROSE} {PROSE}" for n in range(9)]


@dataclass(frozen=True, slots=True)
class Tasks:
    """The tasks of one operation, longest first, in milliseconds of wall-clock time and processor time."""

    wall: list[float]
    cpu: list[float]
    ready: float | None = None  # milliseconds from the address to the last message, where it was opened

    @property
    def long(self) -> int:
        return sum(one > LIMIT for one in self.wall)

    @property
    def long_cpu(self) -> int:
        return sum(one > LIMIT for one in self.cpu)


def answer() -> list[str]:
    """Yield the streamed answer: about 13,000 characters, a few at a time."""
    text = "\n\n".join(ANSWERS[n % 9] for n in range(18)) + "\n\nThe end."
    return [text[at : at + 16] for at in range(0, len(text), 16)]


# ---- what is done --------------------------------------------------------------------------------------------------


def opened(page: Page, url: str, id: str) -> float:
    """Open the thread. Return the milliseconds until its last message is shown and the page responds."""
    page.goto(f"{url}/c/{id}", wait_until="commit")
    _until(page, "document.querySelector('.item')")
    ready = float(page.evaluate("performance.now()"))
    page.wait_for_timeout(1_000)  # colours, and whatever else comes after
    return ready


def read_back(page: Page, count: int) -> None:
    """Scroll to the first message, page by page. Count at the end, because counting in every frame takes time."""
    shown = page.evaluate(f"""async () => {{
        {FRAME}
        const box = document.querySelector(".thread");
        const content = box.querySelector(".thread-content");
        while (content.firstElementChild.matches(".earlier")) {{ box.scrollTop = 0; await frame(); }}
        for (let n = 0; n < 30; n++) await frame();
        return box.getElementsByClassName("item").length;
    }}""")
    assert shown == count, f"{shown} of {count} messages"


def scrolled(page: Page) -> None:
    """Scroll through the thread and back to its end, more than a screen at a time."""
    page.evaluate(f"""async () => {{
        {FRAME}
        const box = document.querySelector(".thread");
        box.scrollTop = box.scrollHeight;
        for (let n = 0; n < 60; n++) {{ box.scrollTop -= 900; await frame(); await frame(); }}
        box.scrollTop = box.scrollHeight;
        for (let n = 0; n < 30; n++) await frame();
    }}""")


def streamed(page: Page) -> None:
    """Ask, type while the answer streams, and wait for its end."""
    page.evaluate("document.getElementById('message').focus()")
    page.keyboard.insert_text("Go on.")
    page.keyboard.press("Enter")
    _until(page, STREAMING)
    page.keyboard.type("What I write while it comes, letter by letter.", delay=40)
    _until(page, f"!({STREAMING})")
    page.wait_for_timeout(500)


def _until(page: Page, condition: str) -> None:
    """Wait for a condition in the page. It must be cheap: a search through a long page would be a long task itself."""
    page.evaluate(f"async () => {{ {FRAME} while (!({condition})) await frame(); }}")


# ---- tasks ---------------------------------------------------------------------------------------------------------


def traced(browser: Browser, page: Page, work: Callable[[], float | None], keep: Path | None = None) -> Tasks:
    browser.start_tracing(page=page, categories=CATEGORIES + (MORE if keep else []))
    ready = work()
    raw = browser.stop_tracing()
    if keep:
        keep.write_bytes(raw)
    return replace(tasks_of(json.loads(raw)["traceEvents"]), ready=ready)


def tasks_of(events: list[dict[str, Any]]) -> Tasks:
    """Return the tasks of the busiest page's main thread."""
    mains = {(one["pid"], one["tid"]) for one in events if one["name"] == "thread_name" and _is_main(one)}
    groups: dict[tuple[int, int], list[dict[str, Any]]] = {main: [] for main in mains}
    for one in events:
        if one["name"] == "RunTask" and one.get("ph") == "X" and (one["pid"], one["tid"]) in mains:
            groups[one["pid"], one["tid"]].append(one)
    found = max(groups.values(), key=len, default=[])
    wall = sorted((one["dur"] / 1_000 for one in found), reverse=True)
    return Tasks(wall, sorted((one.get("tdur", 0) / 1_000 for one in found), reverse=True))


def _is_main(event: dict[str, Any]) -> bool:
    return bool(event["args"]["name"] == "CrRendererMain")


# ---- all of it -----------------------------------------------------------------------------------------------------


def measure(rounds: int, keep: Path | None, long: int = LONG) -> dict[tuple[int, str], list[Tasks]]:
    found: dict[tuple[int, str], list[Tasks]] = {}
    with TemporaryDirectory() as folder, LoopbackProvider() as provider, sync_playwright() as playwright:
        provider.otherwise = lambda body: Say("Long") if "Write a title" in str(body) else Say(answer(), pause=PAUSE)
        browser = playwright.chromium.launch(executable_path=chromium(), args=list(ARGUMENTS))
        with _server(Path(folder), provider) as url:
            for number in range(rounds):
                for count in (SHORT, long):
                    name = keep / f"{count}-{number}" if keep else None
                    for what, tasks in _one(browser, url, count, name):
                        found.setdefault((count, what), []).append(tasks)
        browser.close()
    return found


def _one(browser: Browser, url: str, count: int, keep: Path | None) -> Iterator[tuple[str, Tasks]]:
    id = _thread(url, count)
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.set_default_timeout(120_000)
    steps: list[tuple[str, Callable[[], float | None]]] = [
        ("open", lambda: opened(page, url, id)),
        ("read back", lambda: read_back(page, count)),
        ("scroll", lambda: scrolled(page)),
        ("stream and type", lambda: streamed(page)),
    ]
    for what, work in steps:
        trace = keep.with_name(f"{keep.name}-{what.split()[0]}.json") if keep else None
        yield what, traced(browser, page, work, trace)
    context.close()


def _thread(url: str, count: int) -> str:
    with httpx.Client(base_url=url, timeout=120) as api:
        id = str(api.post("/api/conversations", json={"title": f"{count} messages"}).raise_for_status().json()["id"])
        turns = [
            {"role": "assistant", "content": ANSWERS[n % 9]} if n % 2 else {"role": "user", "content": f"{n}: {PROSE}"}
            for n in range(count)
        ]
        for first in range(0, count, BATCH):
            batch = {"turns": turns[first : first + BATCH]}
            api.post(f"/api/conversations/{id}/turns/batch", json=batch).raise_for_status()
        return id


@contextmanager
def _server(folder: Path, provider: LoopbackProvider) -> Iterator[str]:
    port = free_port()
    command = [sys.executable, "-m", "palaver.cli", "serve", "--port", str(port), "--db", str(folder / "web.db")]
    models = json.dumps({"chat": provider.models()["chat"]})
    with running(command, port, PALAVER_EMBEDDER="none", PALAVER_MODEL="chat", PALAVER_MODELS=models):
        yield f"http://127.0.0.1:{port}"


def show(found: dict[tuple[int, str], list[Tasks]], console: Console) -> None:
    table = Table(title="Tasks of the main thread; medians of the rounds, counts over all of them")
    for head in (
        "",
        "what",
        "longest ms",
        "of cpu",
        f"> {LIMIT:.0f} ms",
        "cpu",
        "all cpu ms",
        "ready ms",
    ):
        table.add_column(head, justify="left" if head == "what" else "right")
    for (count, what), rounds in sorted(found.items(), key=lambda one: (one[0][1], one[0][0])):
        longest = statistics.median(one.wall[0] for one in rounds)
        cpu = statistics.median(one.cpu[0] for one in rounds)
        whole = statistics.median(sum(one.cpu) for one in rounds)
        counts = (str(sum(one.long for one in rounds)), str(sum(one.long_cpu for one in rounds)))
        ready = [one.ready for one in rounds if one.ready is not None]
        shown = f"{statistics.median(ready):.0f}" if ready else ""
        table.add_row(str(count), what, f"{longest:.0f}", f"{cpu:.0f}", *counts, f"{whole:.0f}", shown)
    console.print(table)
    console.print(f"load of the machine: {', '.join(f'{one:.1f}' for one in os.getloadavg())}, {os.cpu_count()} cores")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.web", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--messages", type=int, default=LONG, help="of the long thread")
    parser.add_argument("--traces", type=Path, help="a folder for the traces, which the browser's own tools can show")
    chosen = parser.parse_args()
    if reason := why_not():
        sys.exit(reason)
    show(measure(chosen.rounds, chosen.traces, chosen.messages), Console())


if __name__ == "__main__":
    main()
