"""For everyone: axe-core in light and dark, a phone's width, keys alone, and no stalls in a long thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from palaver.testing.providers import LoopbackProvider, Say
from tests.e2e.conftest import App, Tab

AXE = Path(__file__).parents[2] / "web" / "node_modules" / "axe-core" / "axe.min.js"
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
RICH = """
## Rice

You can eat **rice**, see [a page](https://example.org):

1. wash it
2. boil it

| grain | minutes |
|---|---|
| rice | 12 |

```python
def boil(minutes: int = 12) -> str:
    return f"{minutes} minutes"  # and wait
```

![a chart](https://example.org/chart.png)
"""


def violations(page: Page) -> list[str]:
    """Findings of axe-core in light and dark mode that are not minor. Only colours differ between them."""
    if not AXE.exists():
        pytest.skip("axe-core is not installed: run `make web`")
    page.evaluate(AXE.read_text())
    found: list[Any] = []
    for scheme, options in (("dark", "{ runOnly: ['color-contrast'] }"), ("light", "{}")):
        page.emulate_media(color_scheme=scheme)
        page.evaluate("document.getAnimations().forEach((one) => { try { one.finish() } catch { one.cancel() } })")
        found += page.evaluate(f"async () => (await axe.run({options})).violations")
    serious = [one for one in found if one["impact"] != "minor"]
    return [f"{one['id']}: {node['target']} {node['failureSummary']}" for one in serious for node in one["nodes"]]


def a_full_page(app: App) -> Tab:
    """A thread with everything in it: a file, tools, Markdown, sources, names."""
    from tests.e2e.test_files import choose, file, png

    assert app.script
    app.script.add(Say("Let me look.", calls=[("recall", {"query": "nuts"})]), Say([RICH]))
    tab = app.tab()
    choose(tab, file("picture.png", png(), "image/png"), file("notes.txt", b"x"))
    tab.ask("What can I eat?")
    expect(tab.page.locator(".hljs-keyword").first).to_be_visible()
    return tab


def test_axe_finds_nothing_serious(scripted: App) -> None:
    tab = a_full_page(scripted)
    assert not violations(tab.page)
    tab.page.locator(".step summary").click()
    tab.search("eat")
    expect(tab.found.locator(".passage")).to_have_count(2)
    assert not violations(tab.page)
    tab.page.keyboard.press("Escape")
    tab.choose("A fine title", "Delete")
    expect(tab.button("Undo")).to_be_visible()
    assert not violations(tab.page)
    tab.page.keyboard.press("Control+/")
    expect(tab.page.get_by_role("dialog")).to_be_visible()
    assert not violations(tab.page)


def test_axe_finds_nothing_serious_at_the_door_and_offline(start: Callable[..., App]) -> None:
    app = start(require_auth=True, jwt_secret="s" * 32)
    key = app.server.key("acme", "ada")
    tab = app.tab()
    assert not violations(tab.page)
    tab.page.get_by_label("Access key").fill(key)
    tab.button("Sign in").click()
    expect(tab.message).to_be_visible()
    assert not violations(tab.page)


def test_a_phone_shows_all_of_it_without_scrolling_sideways(
    start: Callable[..., App], provider: LoopbackProvider
) -> None:
    from tests.e2e.conftest import Script

    app = start(model="chat", models={"chat": provider.models()["chat"]}, generate={"tools": ["recall"]}, context=PHONE)
    app.script = Script(provider)
    tab = a_full_page(app)
    width = "document.scrollingElement.scrollWidth"
    assert tab.page.evaluate(width) <= 390
    expect(tab.list).not_to_be_in_viewport()
    tab.button("Open sidebar").tap()
    expect(tab.rows).to_have_count(1)
    expect(tab.rows).to_be_in_viewport()
    assert not violations(tab.page)
    tab.rows.tap()
    expect(tab.rows).not_to_be_in_viewport()
    tab.button("Memory").tap()
    panel = tab.page.get_by_role("complementary", name="Memory")
    expect(panel).to_be_in_viewport()
    assert tab.page.evaluate(width) <= 390
    tab.button("Close", panel).tap()
    expect(panel).to_have_count(0)
    assert not violations(tab.page)


def test_a_chat_can_be_had_with_keys_alone(scripted: App) -> None:
    tab = scripted.tab()
    keys = tab.page.keyboard
    keys.type("What can I eat?")
    keys.press("Enter")
    expect(tab.answers).to_have_count(1)
    for _ in range(30):  # to the last thing in the thread, backwards
        keys.press("Shift+Tab")
        if tab.page.evaluate("document.activeElement.ariaLabel") == "What the model saw":
            break
    keys.press("Enter")
    drawer = tab.page.get_by_role("complementary", name="What the model saw")
    expect(drawer.get_by_role("heading").first).to_be_focused()
    keys.press("Escape")
    expect(drawer).to_have_count(0)
    assert tab.page.evaluate("document.activeElement.ariaLabel") == "What the model saw"
    keys.press("Control+b")
    expect(tab.list).not_to_be_in_viewport()
    keys.press("Control+b")
    expect(tab.rows).to_be_in_viewport()


def test_enter_that_ends_a_composition_sends_nothing(offline: App) -> None:
    tab = offline.tab()
    tab.message.fill("に")
    tab.message.evaluate(
        """box => box.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", isComposing: true, bubbles: true }))"""
    )
    tab.message.press("Shift+Enter")
    expect(tab.message).to_have_value("に\n")
    expect(tab.questions).to_have_count(0)


IN_SLICES = """
    window.slices = [];
    new MutationObserver((all) => {
        const added = all.flatMap((one) => [...one.addedNodes]).filter((node) => node.nodeType === 1);
        const items = added.map((node) => node.querySelectorAll(".item").length + (node.matches(".item") ? 1 : 0));
        const count = items.reduce((sum, one) => sum + one, 0);
        if (count) window.slices.push(count);
    }).observe(document, { subtree: true, childList: true });
"""


@pytest.mark.parametrize("count", [100, pytest.param(400, marks=pytest.mark.slow)])
def test_the_work_of_the_page_does_not_grow_with_the_thread(scripted: App, gate: threading.Event, count: int) -> None:
    """Messages come into the page a few per task, and what streams in redraws nothing else."""
    assert scripted.script
    id = _long_thread(scripted, count)
    scripted.context.add_init_script(IN_SLICES)
    tab = scripted.tab(f"/c/{id}")
    items = tab.page.locator(".item")
    expect(items).to_have_count(30)  # a page of them
    while (shown := items.count()) < count:
        tab.page.locator(".thread").evaluate("one => (one.scrollTop = 0)")
        expect(items.nth(shown)).to_be_attached()
    slices = tab.page.evaluate("window.slices")
    assert sum(slices) == count
    assert max(slices) <= 5
    pieces = [f"Paragraph {n} of **many**.\n\n" for n in range(100)]
    scripted.script.add(Say(pieces, hold_after=(1, gate)))
    tab.send("Go on.")
    expect(tab.page.locator(".is-streaming")).to_contain_text("Paragraph 0")
    tab.page.evaluate("""() => {
        const last = [...document.querySelectorAll(".item")].at(-1);
        window.elsewhere = [];
        new MutationObserver((all) => {
            for (const one of all) if (!last.contains(one.target)) window.elsewhere.push(one.target.className);
        }).observe(document.querySelector(".thread-content"), { subtree: true, childList: true, characterData: true });
    }""")
    gate.set()
    expect(tab.page.get_by_text("Paragraph 99 of many.")).to_be_attached()
    assert tab.page.evaluate("window.elsewhere") == []


def _long_thread(app: App, count: int) -> str:
    with app.api() as api:
        id = str(api.post("/api/conversations", json={"title": "Long"}).json()["id"])
        turns = [
            {"role": ("user", "assistant")[n % 2], "content": f"**Line** {n}." + "\n\nMore." * (n % 7)}
            for n in range(count)
        ]
        assert api.post(f"/api/conversations/{id}/turns/batch", json={"turns": turns}).is_success
    return id


def test_what_is_being_read_stays_where_it_is_while_earlier_messages_come(scripted: App) -> None:
    tab = scripted.tab(f"/c/{_long_thread(scripted, 60)}")
    items = tab.page.locator(".item")
    expect(items).to_have_count(30)
    read = items.filter(has_text="Line 33.")
    top = "one.getBoundingClientRect().top"
    before = read.evaluate(f"""one => {{
        one.closest(".thread").scrollTop = one.offsetTop + 20; // the first in sight, near enough to the beginning
        return {top};
    }}""")
    expect(items).to_have_count(60)
    tab.page.evaluate("new Promise((seen) => requestAnimationFrame(() => requestAnimationFrame(seen)))")
    assert abs(read.evaluate(f"one => {top}") - before) < 10  # pixels: half a line, for what is rounded


def _thread_with_tools(app: App, count: int) -> str:
    """A thread with many tool turns, in which no two messages begin in the same eight positions."""
    text = "**Line**." + "\n\nMore." * 80  # higher than what the browser lays out around the view
    turns: list[dict[str, Any]] = []
    for n in range(count):
        role = ("assistant", "user")[n % 2]
        if role == "assistant":
            turns += _tool_rounds(7 if n else 3)  # with the text, 15 turns; the first question is the eighth turn
        turns.append({"role": role, "content": text})
    with app.api() as api:
        id = str(api.post("/api/conversations", json={"title": "Tools"}).json()["id"])
        assert api.post(f"/api/conversations/{id}/turns/batch", json={"turns": turns}).is_success
    return id


def _tool_rounds(count: int) -> list[dict[str, Any]]:
    turns: list[dict[str, Any]] = []
    for n in range(count):
        turns.append({"role": "assistant", "tool_calls": [{"id": f"c{n}", "name": "look", "arguments": {}}]})
        turns.append({"role": "tool", "tool_results": [{"id": f"c{n}", "content": "12"}]})
    return turns


@pytest.mark.parametrize(("make", "count"), [(_long_thread, 100), (_thread_with_tools, 40)])
def test_what_is_out_of_sight_is_skipped_and_keeps_its_height(
    scripted: App, make: Callable[[App, int], str], count: int
) -> None:
    """A long thread costs no more than what is in view, and nothing is estimated that would move later."""
    tab = scripted.tab(f"/c/{make(scripted, count)}")
    tab.page.wait_for_function(
        """(count) => {
            const thread = document.querySelector(".thread");
            if (thread) thread.scrollTop = thread.scrollTop ? 0 : 1; // a scroll event, which loads earlier messages
            return document.querySelectorAll(".item").length === count && !document.querySelector(".earlier");
        }""",
        arg=count,
    )
    skipped = """[...document.querySelectorAll(".item")]
        .filter((one) => !one.checkVisibility({ contentVisibilityAuto: true })).length"""
    tab.page.wait_for_function("""() => {
        const inside = [...document.querySelectorAll(".chunk")].slice(2, -2);
        return inside.every((one) => one.matches(".is-settled"));
    }""")
    tab.page.wait_for_function(f"() => {skipped} > {count // 2}")
    height = "document.querySelector('.thread').scrollHeight"
    before = tab.page.evaluate(height)
    tab.page.evaluate(
        "document.querySelectorAll('.thread *').forEach((one) => (one.style.contentVisibility = 'visible'))"
    )
    assert tab.page.evaluate(skipped) == 0
    assert tab.page.evaluate(height) == before


def test_reading_further_up_is_not_disturbed_by_what_comes_in(scripted: App, gate: threading.Event) -> None:
    assert scripted.script
    many = "\n\n".join(f"Paragraph {n} " + "word " * 30 for n in range(30))
    scripted.script.add(Say([many]), Say([many, "\n\nlater", "\n\nlast"], hold_after=(1, gate)))
    tab = scripted.tab()
    tab.ask("Much.")
    tab.send("More.")
    expect(tab.page.get_by_text("Paragraph 29").nth(1)).to_be_in_viewport()
    thread = tab.page.locator(".thread")
    tab.page.mouse.move(700, 400)
    tab.page.mouse.wheel(0, -600)
    expect(tab.button("Jump to latest")).to_be_visible()
    before = thread.evaluate("one => one.scrollTop")
    gate.set()
    expect(tab.answers).to_have_count(2)
    assert thread.evaluate("one => one.scrollTop") == before
    tab.button("Jump to latest").click()
    expect(tab.page.get_by_text("last", exact=True)).to_be_in_viewport()
