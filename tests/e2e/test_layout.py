"""Everything stays inside its part of the page, at every width and with very long titles, names and words."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Locator, expect

from tests.e2e.conftest import App, Tab
from tests.e2e.test_files import choose, file
from tests.e2e.test_for_everyone import PHONE

TITLE = "Can you help me plan a trip to Lisbon in May with two small children and a dog?!"
WORD = "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft" * 2
ANSWER = f"""
# {WORD}

See `{WORD}` and [{WORD}](https://example.org/{WORD}).

| place | {WORD} |
|---|---|
| {WORD} | 12 |

```text
{WORD} {WORD}
```

1. {WORD}
   > {WORD}
"""
assert len(TITLE) == 80

# Elements that stick out of a container sideways. Boxes that scroll sideways may be wider inside.
STICKING_OUT = """root => {
    const { left, right } = root.getBoundingClientRect();
    const names = [];
    const visit = (element) => {
        const box = element.getBoundingClientRect();
        const style = getComputedStyle(element);
        if (!box.width || !box.height || style.visibility === "hidden" || element.matches(".sr-only")) return;
        if (box.left < left - 1 || box.right > right + 1) names.push(`${element.tagName}.${element.className}`);
        if (element === root || style.overflowX === "visible") [...element.children].forEach(visit);
        else if (style.overflowX === "hidden" && style.textOverflow !== "ellipsis") inside(element);
    };
    const inside = (element) => {
        if (element.scrollWidth > element.clientWidth + 1) names.push(`content of .${element.className}`);
        [...element.children].forEach(visit);
    };
    visit(root);
    return names;
}"""

STILL = """() => {
    const isMoving = (one) => one.effect.getComputedTiming().endTime !== Infinity && one.animationName !== "run-out";
    const moving = document.getAnimations().filter(isMoving);
    return Promise.allSettled(moving.map((one) => one.finished)).then(() => undefined);
}"""


def conversation(app: App, title: str = TITLE, content: str = ANSWER) -> str:
    with app.api() as api:
        id: str = api.post("/api/conversations", json={"title": title}).json()["id"]
        turns = [{"role": "user", "content": WORD}, {"role": "assistant", "content": content}]
        assert api.post(f"/api/conversations/{id}/turns/batch", json={"turns": turns}).is_success
        assert api.post(f"/api/conversations/{id}/memory/goals", json={"text": WORD}).is_success
        assert api.post(f"/api/conversations/{id}/summarize").is_success
    return id


def box(one: Locator) -> dict[str, float]:
    """The place of an element, when it has stopped moving."""
    one.evaluate(STILL)
    found = one.bounding_box()
    assert found
    return {**found, "right": found["x"] + found["width"], "bottom": found["y"] + found["height"]}


def assert_nothing_sticks_out(*parts: Locator) -> None:
    for part in parts:
        box(part)
        assert part.evaluate(STICKING_OUT) == []


def assert_on_screen(tab: Tab, *parts: Locator) -> None:
    size = tab.page.viewport_size
    assert size
    for part in parts:
        place = box(part)
        assert place["x"] >= 0, part
        assert place["right"] <= size["width"], part
        assert place["bottom"] <= size["height"], part


@pytest.mark.parametrize("width", [360, 390])
def test_send_is_on_the_screen_of_a_phone_with_a_long_title(start: Callable[..., App], width: int) -> None:
    app = start(context={**PHONE, "viewport": {"width": width, "height": 844}})
    for title in (TITLE, WORD):
        tab = app.tab(f"/c/{conversation(app, title)}")
        expect(tab.answers).to_have_count(1)
        assert_on_screen(tab, tab.button("Send"), tab.button("Memory"), tab.button("Options for this conversation"))
        assert_nothing_sticks_out(tab.page.locator("main"))
        tab.page.close()


@pytest.mark.parametrize("width", [1024, 1280])
def test_the_chat_does_not_lie_over_an_open_panel(offline: App, width: int) -> None:
    tab = offline.tab(f"/c/{conversation(offline)}")
    tab.page.set_viewport_size({"width": width, "height": 800})
    main = tab.page.locator("main")
    composer, send = tab.page.locator(".composer"), tab.button("Send")
    expect(tab.answers).to_have_count(1)
    tab.ask("Where shall we stay?")
    for panel in panels(tab):
        left = box(panel)["x"]
        for part in (main, composer, send, tab.button("Memory"), tab.button("Options for this conversation")):
            assert box(part)["right"] <= left
        assert_nothing_sticks_out(main, panel)
        assert_on_screen(tab, panel)


def panels(tab: Tab) -> Iterator[Locator]:
    """Each panel with each of its tabs, open."""
    tab.button("Memory").click()
    memory = tab.page.get_by_role("complementary", name="Memory")
    for name in ("Notes", "Facts", "Summaries", "Recall", "Rules", "Log"):
        memory.get_by_role("tab", name=name).click()
        expect(memory.get_by_text("Loading…")).to_have_count(0)
        expect(memory.locator(".ghost")).to_have_count(0)
        if name == "Rules":
            save = box(tab.button("Save", memory))
            assert save["x"] >= box(tab.page.locator(".composer"))["right"]
        yield memory
    tab.answers.last.get_by_role("button", name="What the model saw").click()
    drawer = tab.page.get_by_role("complementary", name="What the model saw")
    expect(drawer.locator(".budget-bar")).to_be_visible()
    yield drawer


@pytest.mark.parametrize("width", [360, 1280])
def test_long_names_of_files_results_and_notices_stay_inside(start: Callable[..., App], width: int) -> None:
    app = start(context={"viewport": {"width": width, "height": 844}})
    tab = app.tab(f"/c/{conversation(app, WORD)}")
    main = tab.page.locator("main")
    expect(tab.answers).to_have_count(1)
    choose(tab, file(f"{WORD}.txt", b"x"), file(f"{WORD}.exe", b"MZ"))
    expect(tab.page.get_by_label("Files to send").get_by_role("alert")).to_be_visible()
    assert_nothing_sticks_out(main)
    tab.page.get_by_role("button", name=f"Remove {WORD}.exe").click()
    tab.ask(f"Look at {WORD}.")
    expect(tab.page.get_by_label("Files", exact=True)).to_be_visible()
    assert_nothing_sticks_out(main)
    choose(tab, file(f"{WORD}.txt", b""))
    toast = tab.page.locator(".toast.is-problem")
    assert_on_screen(tab, toast, tab.button("Dismiss", toast))
    assert_nothing_sticks_out(toast)
    tab.page.locator(".chat-title button").click()
    assert_nothing_sticks_out(main)
    tab.page.keyboard.press("Escape")
    tab.search(WORD)
    expect(tab.found.locator(".result")).to_have_count(1)
    assert_nothing_sticks_out(tab.found)
    tab.page.keyboard.press("Escape")
    if width < 960:
        tab.button("Open sidebar").click()
    assert_nothing_sticks_out(tab.list)
