"""Fixtures: a real browser, a real server, and either no model or a scripted one that speaks OpenAI's protocol."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect, sync_playwright

from palaver.server.settings import ServerSettings
from palaver.testing.providers import LoopbackProvider, Say, Step
from tests.e2e.browser import ARGUMENTS, chromium, why_not
from tests.server.conftest import Running, running

expect.set_options(timeout=30_000)  # the machine may be slow and shared
TITLE = "A fine title"


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """One browser for all tests of this folder; closed afterwards, because its event loop would disturb other tests."""
    if reason := why_not():
        pytest.skip(reason)
    with sync_playwright() as playwright:
        one = playwright.chromium.launch(executable_path=chromium(), args=list(ARGUMENTS))
        yield one
        one.close()


class Script:
    """The model's scripted answers, one step per question. Requests for titles are answered separately."""

    def __init__(self, provider: LoopbackProvider) -> None:
        self.provider = provider
        self.steps: list[Step] = []
        provider.otherwise = self._next

    def add(self, *steps: Step) -> None:
        self.steps.extend(steps)

    def _next(self, body: dict[str, Any]) -> Any:
        if "Write a title" in str(body["messages"][0].get("content")):
            return Say(TITLE)
        step = self.steps.pop(0) if self.steps else Say("Yes.")
        return step(body) if callable(step) else step


class Tab:
    """A page of the app, with helpers named after what a user does."""

    def __init__(self, page: Page, url: str) -> None:
        self.page, self.url = page, url
        self.errors: list[str] = []
        page.on("pageerror", lambda problem: self.errors.append(f"error: {problem}"))
        page.on("console", self._heard)
        page.on("request", self._asked)

    def _heard(self, message: Any) -> None:
        if message.type == "error" and "status of 4" not in message.text and "net::ERR" not in message.text:
            self.errors.append(f"console: {message.text}")

    def _asked(self, request: Any) -> None:
        if not request.url.startswith("chrome://") and (
            not request.url.startswith((self.url, "blob:", "data:"))
        ):  # chrome: the browser's own PDF viewer
            self.errors.append(f"asked elsewhere: {request.url}")

    def open(self, path: str = "/") -> Tab:
        self.page.goto(self.url + path)
        self.page.locator("main").wait_for()
        return self

    # ---- elements

    @property
    def message(self) -> Locator:
        return self.page.get_by_label("Message", exact=True)

    @property
    def questions(self) -> Locator:
        return self.page.locator(".item.is-user .bubble")

    @property
    def answers(self) -> Locator:
        """Completed answers: those that have action buttons."""
        return self.page.locator(".item.is-assistant:has(.actions)")

    @property
    def list(self) -> Locator:
        return self.page.get_by_role("navigation", name="Conversations")

    @property
    def rows(self) -> Locator:
        return self.list.locator(".row-link")

    @property
    def conversation(self) -> str:
        return self.page.url.partition("/c/")[2].partition("#")[0]

    def button(self, name: str, within: Locator | None = None) -> Locator:
        return (within or self.page).get_by_role("button", name=name, exact=True)

    def row(self, title: str) -> Locator:
        """A row of the list, hovered so that its buttons are visible."""
        found = self.list.locator(".row", has_text=title)
        found.hover()
        return found

    def choose(self, title: str, item: str) -> None:
        """Choose from the menu of a row of the list."""
        self.row(title).get_by_role("button", name=words(f"Options for {title}")).click()
        self.page.get_by_role("menuitem", name=item, exact=True).click()

    @property
    def found(self) -> Locator:
        """The palette of Ctrl K."""
        return self.page.get_by_role("dialog", name="Search")

    # ---- actions

    def search(self, text: str) -> None:
        self.page.keyboard.press("Control+k")
        self.page.get_by_label("Search conversations").fill(text)

    def send(self, text: str) -> None:
        self.message.fill(text)
        self.message.press("Enter")

    def ask(self, text: str) -> None:
        """Send, and wait for the answer."""
        count = self.answers.count()
        self.send(text)
        expect(self.answers).to_have_count(count + 1)
        expect(self.button("Send")).to_be_visible()


@dataclass
class App:
    """A server, a browser context, and the tabs opened in it."""

    server: Running
    context: BrowserContext
    script: Script | None = None
    tabs: list[Tab] = field(default_factory=list)

    def tab(self, path: str | None = "/") -> Tab:
        tab = Tab(self.context.new_page(), self.server.url)
        self.tabs.append(tab)
        return tab if path is None else tab.open(path)

    def api(self) -> Any:
        return self.server.client()


@pytest.fixture
def start(browser: Browser, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Start an app; at the end, check that no page logged an error or sent a request to another host."""
    with ExitStack() as stack:

        def make(url: str | None = None, context: dict[str, Any] | None = None, **settings: Any) -> App:
            found = url or f"sqlite:///{tmp_path}/chat.db?synchronous=NORMAL"
            server = stack.enter_context(running(ServerSettings(url=found, embedder="none", **settings)))
            app = App(server, stack.enter_context(_context(browser, **(context or {}))))
            apps.append(app)
            return app

        apps: list[App] = []
        yield make
        errors = [error for app in apps for tab in app.tabs for error in tab.errors]
    assert not errors


@contextmanager
def _context(browser: Browser, **options: Any) -> Iterator[BrowserContext]:
    options = {"viewport": {"width": 1280, "height": 800}, "locale": "en-GB", **options}
    context = browser.new_context(**options)
    context.set_default_timeout(30_000)
    yield context
    context.close()


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, LoopbackProvider]]:
    """One server for the tests of a module that need no other settings: two scripted models and a small budget."""
    url = f"sqlite:///{tmp_path_factory.mktemp('shared')}/chat.db?synchronous=NORMAL"
    with LoopbackProvider() as provider:
        models = {"chat": provider.models()["chat"], "reasoner": provider.models("reasoner")["chat"]}
        with running(ServerSettings(url=url, embedder="none", model="chat", models=models)) as server:
            yield server, provider


@pytest.fixture
def shared(browser: Browser, shared_server: tuple[Running, LoopbackProvider]) -> Iterator[App]:
    """The shared server with a browser context of its own."""
    server, provider = shared_server
    with _context(browser) as context:
        app = App(server, context, Script(provider))
        yield app
        errors = [error for tab in app.tabs for error in tab.errors]
    assert not errors


@pytest.fixture
def offline(start: Callable[..., App]) -> App:
    """An app with default settings: no model, no key."""
    return start()


@pytest.fixture
def provider() -> Iterator[LoopbackProvider]:
    with LoopbackProvider() as one:
        yield one


@pytest.fixture
def scripted(start: Callable[..., App], provider: LoopbackProvider) -> App:
    """An app with a scripted model that has the recall tool."""
    models = {"chat": provider.models()["chat"]}
    app = start(model="chat", models=models, generate={"tools": ["recall"]})
    app.script = Script(provider)
    return app


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """An event for a model that waits in the middle of an answer; set at the end of the test."""
    one = threading.Event()
    yield one
    one.set()


def done(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine in a thread, outside the browser's event loop."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result(300)


def words(text: str) -> re.Pattern[str]:
    return re.compile(re.escape(text))
