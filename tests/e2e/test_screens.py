"""Geometry at every width, with and without a panel: nothing overlaps, only code and tables scroll sideways."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, expect

from palaver.testing.providers import LoopbackProvider
from tests.e2e.conftest import App, Script, Tab, _context
from tests.e2e.test_for_everyone import PHONE
from tests.e2e.test_layout import TITLE, assert_nothing_sticks_out, assert_on_screen, box
from tests.server.conftest import Running

ARABIC = "مرحبا! هذه إجابة باللغة العربية تحتوي على `code` وقائمة:\n\n- العنصر الأول\n- العنصر الثاني مع English"
JAPANESE = "日本語の回答です。東京は日本の首都であり、約1400万人が住んでいます。これは折り返しの確認用の長い段落です。"
ANSWER = f"""
| Option | Latency | Cold start | Price | Region | What to watch out for when it grows |
|---|---|---|---|---|---|
| AWS Lambda | 40 ms | 900 ms | varies | Frankfurt | Cold starts; scales to zero and back |

```python
def a_very_long_line(of_code: str, that_goes_on: str, and_on: str) -> str: return "past the edge"
```

$$\\int_0^\\infty e^{{-x^2}}\\,dx = \\frac{{\\sqrt{{\\pi}}}}{{2}} + a + b + c + d + e + f + g + h + i + j + k + l + m$$

{ARABIC}

{JAPANESE}
"""
WIDTHS = [360, 390, 768, 1024, 1280, 1920]
SIDEWAYS = """() => [...document.querySelectorAll("main *, nav *, aside *")].filter((one) =>
    one.scrollWidth > one.clientWidth + 1 && ["auto", "scroll"].includes(getComputedStyle(one).overflowX)
    && !one.matches("pre, .table, .formula, .tabs, .words")).map((one) => `${one.tagName}.${one.className}`)"""
# The size of everything that a finger can press: 44 px in one direction, and in the other unless it is text in a line.
SMALL_TARGETS = """() => [...document.querySelectorAll("button, a[href], select, summary")].filter((one) => {
    const box = one.getBoundingClientRect();
    const isShown = box.width > 0 && one.checkVisibility({ visibilityProperty: true }) && !one.closest("[inert]");
    return isShown && !one.matches(".markdown a, .link, .skip") && (box.height < 43.5 || box.width < 43.5);
}).map((one) => `${one.className}: ${one.ariaLabel ?? one.textContent} ${one.offsetWidth} × ${one.offsetHeight}`)"""


@pytest.fixture(scope="module")
def talk(shared_server: tuple[Running, LoopbackProvider]) -> str:
    server, _ = shared_server
    with server.client() as api:
        id: str = api.post("/api/conversations", json={"title": TITLE}).json()["id"]
        said = [("user", "How do I ship it?"), ("assistant", ANSWER), ("user", ARABIC), ("assistant", JAPANESE)]
        turns = [{"role": role, "content": content} for role, content in said]
        assert api.post(f"/api/conversations/{id}/turns/batch", json={"turns": turns}).is_success
    return id


@pytest.fixture
def phone(browser: Browser, shared_server: tuple[Running, LoopbackProvider]) -> Iterator[App]:
    server, provider = shared_server
    with _context(browser, **PHONE) as context:
        app = App(server, context, Script(provider))
        yield app
        assert not [error for tab in app.tabs for error in tab.errors]


def test_nothing_overlaps_and_nothing_scrolls_sideways_at_any_width(shared: App, talk: str) -> None:
    tab = shared.tab(f"/c/{talk}")
    expect(tab.answers).to_have_count(2)
    expect(tab.page.locator(".katex-html").first).to_be_visible()
    for width in WIDTHS:
        tab.page.set_viewport_size({"width": width, "height": 800})
        assert_fits(tab, width)
        if tab.button("Open sidebar").is_visible() and width >= 960:
            tab.button("Open sidebar").click()
        for name in ("Memory", "What the model saw"):
            panel = open_panel(tab, name)
            assert_fits(tab, width, panel)
            panel.get_by_role("button", name="Close", exact=True).click()
            expect(panel).to_have_count(0)


def open_panel(tab: Tab, name: str) -> Locator:
    if name == "Memory":
        tab.button("Memory").click()
    else:
        tab.answers.last.get_by_role("button", name=name).click()
    panel = tab.page.get_by_role("complementary", name=name)
    expect(panel.locator(".panel-body")).to_be_visible()
    expect(panel.locator(".ghost")).to_have_count(0)
    return panel


def assert_fits(tab: Tab, width: int, panel: Locator | None = None) -> None:
    main, send = tab.page.locator("main"), tab.button("Send")
    assert tab.page.evaluate("document.scrollingElement.scrollWidth") <= width
    assert tab.page.evaluate(SIDEWAYS) == []
    assert_nothing_sticks_out(main)
    assert_on_screen(tab, tab.page.locator(".composer"))
    if panel is None or width >= 960:
        assert_on_screen(tab, send)
    if panel is not None:
        assert_on_screen(tab, panel)
        if width >= 960:  # on smaller screens it covers the chat
            assert box(main)["right"] <= box(panel)["x"] + 1
            assert box(send)["right"] <= box(panel)["x"]


@pytest.mark.parametrize("width", [360, 390])
def test_fingers_have_targets_of_44_pixels(phone: App, talk: str, width: int) -> None:
    tab = phone.tab(f"/c/{talk}")
    tab.page.set_viewport_size({"width": width, "height": 844})
    expect(tab.answers).to_have_count(2)
    assert tab.page.evaluate(SMALL_TARGETS) == []
    tab.button("Open sidebar").tap()
    expect(tab.rows.first).to_be_in_viewport()
    assert tab.page.evaluate(SMALL_TARGETS) == []
    tab.list.get_by_role("button", name="Options for").first.tap()
    expect(tab.page.get_by_role("menuitem", name="Archive")).to_be_visible()
    assert tab.page.evaluate(SMALL_TARGETS) == []
    tab.page.keyboard.press("Escape")
    tab.button("Search", tab.list).tap()
    expect(tab.found).to_be_visible()
    assert tab.page.evaluate(SMALL_TARGETS) == []
    tab.button("Close", tab.found).tap()  # there is no Esc on a phone
    expect(tab.found).to_have_count(0)


def test_words_of_a_table_stay_whole_on_a_phone(phone: App, talk: str) -> None:
    tab = phone.tab(f"/c/{talk}")
    table = tab.page.locator(".table")
    expect(table).to_be_visible()
    assert table.evaluate("one => one.scrollWidth > one.clientWidth")  # it scrolls instead
    lines = "one => { const all = new Range(); all.selectNodeContents(one); return all.getClientRects().length; }"
    for text in ("Latency", "AWS Lambda", "Frankfurt"):
        assert table.get_by_text(text, exact=True).evaluate(lines) == 1


def test_code_is_as_large_as_text_needs(shared: App, talk: str) -> None:
    tab = shared.tab(f"/c/{talk}")
    size = tab.page.locator(".code pre code").evaluate("one => parseFloat(getComputedStyle(one).fontSize)")
    assert 13 <= size <= 14


def test_text_is_written_in_its_own_direction(shared: App, talk: str) -> None:
    tab = shared.tab(f"/c/{talk}")
    expect(tab.answers).to_have_count(2)
    direction = "one => getComputedStyle(one).direction"
    answer = tab.answers.first
    assert answer.locator("p", has_text="مرحبا").evaluate(direction) == "rtl"
    assert answer.locator("ul", has_text="العنصر").evaluate(direction) == "rtl"
    assert answer.locator("p", has_text="日本語").evaluate(direction) == "ltr"
    assert tab.questions.last.evaluate(direction) == "rtl"
    tab.message.fill("مرحبا")
    assert tab.message.evaluate(direction) == "rtl"


def test_a_question_stands_nearer_to_its_answer_than_to_the_one_before(shared: App, talk: str) -> None:
    tab = shared.tab(f"/c/{talk}")
    expect(tab.answers).to_have_count(2)
    first, second = box(tab.answers.first.locator(".markdown")), box(tab.questions.last)
    third = box(tab.answers.last.locator(".markdown"))
    assert third["y"] - second["bottom"] < second["y"] - first["bottom"]


def test_the_ring_of_an_edited_message_is_not_cut_off(shared: App, talk: str) -> None:
    tab = shared.tab(f"/c/{talk}")
    question = tab.page.locator(".item.is-user").last
    question.hover()
    tab.button("Edit", question).click()
    assert question.evaluate("one => getComputedStyle(one).contentVisibility") == "visible"
    tab.page.keyboard.press("Escape")
    expect(tab.button("Edit", question)).to_be_focused()
