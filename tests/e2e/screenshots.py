"""The pictures of README and docs, taken from the app itself, so that they stay true: `make screenshots`."""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, expect, sync_playwright

import palaver
from palaver.server.settings import ServerSettings
from palaver.testing import FakeClock
from palaver.testing.providers import LoopbackProvider, Say
from tests.e2e.browser import ARGUMENTS, chromium, why_not
from tests.e2e.conftest import Script, Tab, done
from tests.server.conftest import Running, running

GENERATE = {"tools": ["recall"], "token_budget": 1_500}
PICTURES = Path(__file__).parents[2] / "docs" / "img"
WIDE, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}

EARLIER = [
    ("Trip to Lisbon", 1, "We land on Friday at 9. Which tram goes up to the castle?", "Tram 28, from Martim Moniz."),
    ("Invoice wording", 1, "Make this friendlier: pay within 14 days.", "Thank you! Please settle it within 14 days."),
    ("Python generators", 3, "When is a generator better than a list?", "When you need one item at a time."),
    ("Garden in May", 5, "What can I sow in May?", "Beans, courgettes, sunflowers."),
    ("Names for a cat", 20, "A grey one, very serious.", "Baron, Pewter, Ms Ash."),
    ("Sourdough", 41, "Why is it flat?", "Too warm, too long: shorten the second rise."),
]
KITCHEN = [
    ("I'm allergic to peanuts, and I cook for two.", "Noted: no peanuts, portions for two."),
    ("We decided to eat early on weekdays: dinner at six.", "Dinner at six on weekdays it is."),
    ("From now on, give me times in minutes.", "Will do: times in minutes."),
    ("My oven has no fan, by the way.", "Good to know: 20 degrees more than recipes for fan ovens say."),
]
# Weeks of dinners since: more than a small budget holds, so that there is something to summarise, recall and leave out.
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
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday")
DINNERS = [
    (
        f"{DAYS[n % 5]} should be {dish}. What do I need for it?",
        f"For {dish} take onions, garlic and {14 + n} minutes. The rest is in your cupboard since last week.",
    )
    for n, dish in enumerate((DISHES * 3)[:20])
]
ANSWER = """A satay without peanuts works well: **sunflower butter** has the same body.

| step | minutes |
|---|---|
| rice | 12 |
| sauce | 5 |
| vegetables | 8 |

```python
start = dinner - timedelta(minutes=12 + 5 + 8)   # 17:35
```

Start at 17:35, and dinner for two is ready at six."""


async def _fill(url: str) -> str:
    now = datetime.now(UTC)
    clock = FakeClock(now)
    async with palaver.open(url, tenant="default", clock=clock, embedder=None) as store:
        for title, days, question, answer in sorted(EARLIER, key=lambda one: -one[1]):
            clock.set(now - timedelta(days=days))
            talk = await store.conversation(title=title)
            await talk.append_many([{"role": "user", "content": question}, {"role": "assistant", "content": answer}])
        clock.set(now - timedelta(minutes=45))
        by_rules = {"compaction": {"summarizer_model": "offline"}}  # the script is for answers alone
        talk = await store.conversation(title="Dinner without peanuts", settings=by_rules)
        for question, answer in DINNERS[:12] + KITCHEN + DINNERS[12:]:
            clock.advance(60)
            await talk.append("user", question)
            await talk.append("assistant", answer)
        await store.settle()
        await talk.compact(keep_tokens=150)
        await talk.extract_facts()
        return talk.id


@contextmanager
def _demo() -> Iterator[tuple[Running, Script, str]]:
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        url = f"sqlite:///{folder}/chat.db?synchronous=NORMAL"
        provider = stack.enter_context(LoopbackProvider())
        talk = done(_fill(url))
        models = {"gpt-5-mini": provider.models("gpt-5-mini")["chat"]}
        settings = ServerSettings(url=url, embedder="none", model="gpt-5-mini", models=models, generate=GENERATE)
        yield stack.enter_context(running(settings)), Script(provider), talk


def _page(browser: Browser, size: dict[str, int], scheme: Any, **more: Any) -> Page:
    page = browser.new_page(viewport=size, color_scheme=scheme, device_scale_factor=1, locale="en-GB", **more)  # type: ignore[arg-type]
    page.set_default_timeout(30_000)
    return page


def _shoot(page: Page, name: str) -> None:
    page.evaluate("document.activeElement?.blur()")
    page.mouse.move(0, 0)
    page.screenshot(path=PICTURES / f"{name}.png", animations="disabled")
    print(f"docs/img/{name}.png  {(PICTURES / f'{name}.png').stat().st_size // 1000} kB")


def main() -> None:
    if reason := why_not():
        sys.exit(reason)
    with _demo() as (server, script, talk), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=list(ARGUMENTS))
        tab = Tab(_page(browser, WIDE, "light"), server.url).open(f"/c/{talk}")
        expect(tab.answers.last).to_be_visible()
        script.add(Say("", calls=[("recall", {"query": "allergic to"})]), Say([ANSWER]))
        tab.send("Can we have satay tonight? When do I start?")
        expect(tab.answers.last).to_contain_text("ready at six")
        expect(tab.page.locator(".hljs-keyword, .hljs-number").first).to_be_attached()
        _shoot(tab.page, "web-chat")
        tab.answers.last.hover()
        tab.page.get_by_role("button", name="What the model saw").last.click()
        expect(tab.page.get_by_role("complementary")).to_be_visible()
        tab.page.wait_for_timeout(500)
        _shoot(tab.page, "web-saw")
        tab.page.get_by_role("button", name="Memory", exact=True).click()
        expect(tab.page.get_by_role("complementary", name="Memory")).to_be_visible()
        tab.page.wait_for_timeout(500)
        _shoot(tab.page, "web-memory")
        _dark_and_small(browser, server, script, talk)
        browser.close()


def _dark_and_small(browser: Browser, server: Running, script: Script, talk: str) -> None:
    gate = threading.Event()
    dark = Tab(_page(browser, WIDE, "dark"), server.url).open(f"/c/{talk}")
    script.add(Say("Two cups of rice, rinsed three times, then twelve minutes.", hold_after=(7, gate)))
    dark.send("How much rice?")
    expect(dark.page.locator(".is-streaming")).to_contain_text("rinsed")
    _shoot(dark.page, "web-dark")
    gate.set()
    expect(dark.answers.last).to_contain_text("twelve minutes")
    phone = Tab(_page(browser, PHONE, "light", is_mobile=True, has_touch=True), server.url).open(f"/c/{talk}")
    expect(phone.answers.last).to_be_visible()
    _shoot(phone.page, "web-phone")


if __name__ == "__main__":
    main()
