"""Reading: code, diagrams, files, the terms of the drawer, budgets, and the look of the page."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import expect

from palaver.testing.providers import Say
from tests.e2e.conftest import App, words
from tests.e2e.test_faults import talk_of
from tests.e2e.test_files import choose, file
from tests.e2e.test_layout import box

CODE = "print('" + "very long " * 40 + "')"
ZIP = b"PK\x05\x06" + bytes(18)  # an empty archive
# One page with nothing on it.
PDF = (
    b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj 2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj "
    b"3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 99 99]>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF\n"
)


def test_code_is_wrapped_copied_and_downloaded(shared: App) -> None:
    shared.context.grant_permissions(["clipboard-read", "clipboard-write"])
    id = talk_of(shared, "Code", "Show me.", f"```python\n{CODE}\n```")
    tab = shared.tab(f"/c/{id}")
    block = tab.answers.locator(".code")
    is_sideways = "one => one.scrollWidth > one.clientWidth"
    assert block.locator("pre").evaluate(is_sideways)
    tab.button("Wrap long lines", block).click()
    expect(block).to_have_class(words("is-wrapped"))
    assert not block.locator("pre").evaluate(is_sideways)
    tab.button("Copy the code", block).click()
    expect(tab.button("Copied", block)).to_have_text("Copied")
    assert tab.page.evaluate("navigator.clipboard.readText()") == CODE
    with tab.page.expect_download() as saved:
        tab.button("Download the code", block).click()
    assert saved.value.suggested_filename.endswith(".py")
    assert Path(saved.value.path()).read_text() == CODE
    copy = tab.answers.get_by_role("button", name="Copy answer")
    expect(copy).to_have_text("Copy")  # in words, not only as an icon
    copy.click()
    expect(tab.button("Copied", tab.answers.locator(".actions"))).to_be_visible()
    assert CODE in tab.page.evaluate("navigator.clipboard.readText()")


def test_code_in_ones_own_message_is_set_apart(shared: App) -> None:
    typed = "Why does *this* fail?\n```python\nprint(1\n```\nIt is `line 1`."
    tab = shared.tab(f"/c/{talk_of(shared, 'Own code', typed, 'A bracket is missing.')}")
    bubble = tab.questions
    expect(bubble.locator(".code pre")).to_have_text("print(1")
    expect(bubble.locator(".code figcaption")).to_contain_text("python")
    expect(bubble).to_contain_text("Why does *this* fail?")  # everything else as it was typed
    expect(bubble).to_contain_text("It is `line 1`.")
    expect(bubble).not_to_contain_text("```")


def test_formulas_and_diagrams_are_loaded_when_one_appears(shared: App) -> None:
    tab = shared.tab(f"/c/{talk_of(shared, 'Plain', 'Hi', 'Hello, that costs $5.')}")
    asked: list[str] = []
    tab.page.on("request", lambda request: asked.append(request.url))
    tab.page.reload()
    expect(tab.answers).to_have_count(1)
    assert not [url for url in asked if "diagram" in url or "/math" in url]
    shared.script.add(Say("```mermaid\ngraph TD; A-->B;\n```\n\n$a^2$"))  # type: ignore[union-attr]
    tab.ask("Draw it.")
    expect(tab.answers.last.frame_locator("iframe").locator("svg")).to_be_visible()
    expect(tab.answers.last.locator(".katex-html")).to_be_visible()
    assert [url for url in asked if "diagram" in url]
    assert [url for url in asked if "/math" in url]


def test_the_answer_begins_where_the_wait_for_it_was(shared: App, gate: threading.Event) -> None:
    assert shared.script
    shared.script.add(Say("Rice, as you asked.", hold=gate))
    tab = shared.tab(f"/c/{talk_of(shared, 'Waiting', 'Hi', 'Hello')}")
    expect(tab.answers).to_have_count(1)
    tab.send("What can I eat?")
    waiting = tab.page.locator(".item.is-assistant").last
    expect(waiting).to_contain_text("Thinking")
    expect(tab.page.locator(".is-sending")).to_have_count(0)
    place = box(waiting.locator(":scope > *").first)
    question = box(tab.questions.last)
    gate.set()
    expect(tab.answers).to_have_count(2)
    answer = box(tab.answers.last.locator(".markdown"))
    assert abs(answer["y"] - box(tab.questions.last)["bottom"] - (place["y"] - question["bottom"])) < 8


def test_what_was_sent_of_a_file_is_said_for_each(start: Callable[..., App]) -> None:
    app = start(generate={"token_budget": 2_000})
    tab = app.tab()
    choose(tab, file("long.txt", b"The lease ends on 3 May. " * 2_000), file("songs.zip", ZIP, "application/zip"))
    tab.ask("When does the lease end?")
    tab.answers.last.get_by_role("button", name="What the model saw").click()
    listed = (
        tab.page.get_by_role("complementary", name="What the model saw")
        .locator("section, div")
        .filter(has=tab.page.get_by_role("heading", name="Files of your message"))
    )
    expect(listed.last).to_contain_text("long.txt in part")
    expect(listed.last).to_contain_text("songs.zip not sent")
    for name, state in (("long.txt", "Sent to the model in part"), ("songs.zip", "Not sent to the model")):
        tab.page.get_by_label("Files", exact=True).get_by_role("button", name=words(name)).click()
        dialog = tab.page.get_by_role("dialog", name=name)
        expect(dialog.get_by_role("region", name="What was sent to the model")).to_contain_text(state)
        tab.page.keyboard.press("Escape")


def test_a_file_of_an_earlier_message_is_named_as_not_repeated(shared: App) -> None:
    tab = shared.tab()
    choose(tab, file("lease.txt", b"The lease ends on 3 May."))
    tab.ask("Keep this.")
    tab.ask("Summarise the file.")
    drawer = tab.page.get_by_role("complementary", name="What the model saw")
    left_out = drawer.get_by_role("region", name="Left out")
    tab.answers.last.get_by_role("button", name="What the model saw").click()
    expect(left_out).to_contain_text("not repeated: lease.txt")
    tab.button("Close", drawer).click()
    tab.answers.first.hover()
    tab.answers.first.get_by_role("button", name="What the model saw").click()
    expect(left_out).to_contain_text("Every message is in the prompt")
    expect(left_out).not_to_contain_text("lease.txt")


def test_a_pdf_is_previewed_in_a_frame(shared: App) -> None:
    tab = shared.tab()
    choose(tab, file("paper.pdf", PDF, "application/pdf"))
    tab.ask("What is this?")
    tab.page.get_by_label("Files", exact=True).get_by_role("button", name=words("paper.pdf")).click()
    frame = tab.page.get_by_role("dialog", name="paper.pdf").locator("iframe.pdf")
    expect(frame).to_have_attribute("src", words("blob:"))
    tab.errors[:] = [one for one in tab.errors if "chrome-extension" not in one]  # Chromium's own viewer


def test_the_drawer_explains_its_terms(shared: App) -> None:
    tab = shared.tab()
    tab.ask("Hi")
    button = tab.answers.last.get_by_role("button", name="What the model saw")
    expect(button).to_have_text("")  # an icon, with its name when the pointer is on it
    expect(button).to_have_attribute("title", "What the model saw")
    button.click()
    drawer = tab.page.get_by_role("complementary", name="What the model saw")
    drawer.get_by_text("What these terms mean").click()
    for term in ("Token", "Budget", "Policy", "Recall", "Cached"):
        expect(drawer.get_by_role("term").filter(has_text=term).first).to_be_visible()


def test_the_settings_show_what_is_used_of_a_budget_and_what_is_left(start: Callable[..., App]) -> None:
    app = start(budgets={"tenant": {"requests_per_day": 5}})
    tab = app.tab()
    tab.ask("Hi")
    tab.open("/settings")
    budgets = tab.page.get_by_role("list", name="Budgets")
    expect(budgets).to_contain_text("Requests per day for everyone")
    expect(budgets).to_contain_text("4 left of 5")


def test_preferences_and_goals_are_kept_for_a_person(offline: App) -> None:
    tab = offline.tab("/memory")
    for kind, text in (("preferences", "I like window seats"), ("goals", "Run a marathon in May")):
        region = tab.page.get_by_role("region", name=words(kind.capitalize()))
        tab.button(f"Add to {kind}").click()
        region.get_by_label(f"Add to {kind}").fill(text)
        tab.button("Save", region).click()
        expect(region.get_by_role("article")).to_contain_text(text.removeprefix("I "), ignore_case=True)
    tab.page.reload()
    expect(tab.page.get_by_role("article")).to_have_count(2)


def test_the_page_is_weighted_as_it_is_used(shared: App) -> None:
    """One radius and one border for fields and cards; New chat is filled and Search is not; versions are in sight."""
    assert shared.script
    tab = shared.tab()
    tab.ask("One?")
    tab.answers.last.get_by_role("button", name="Regenerate").click()
    picker = tab.page.get_by_role("group", name=words("Versions of this"))
    expect(picker).to_contain_text("2 / 2")
    tab.page.mouse.move(0, 0)
    assert picker.evaluate("one => getComputedStyle(one).opacity") == "1"
    style = "(one, name) => getComputedStyle(one)[name]"
    new, search = tab.button("New chat", tab.list), tab.button("Search", tab.list)
    assert new.evaluate(style, "backgroundColor") != search.evaluate(style, "backgroundColor")
    assert search.evaluate(style, "backgroundColor") == "rgba(0, 0, 0, 0)"
    tab.search("x")
    field = tab.page.get_by_label("Search conversations")
    parts = [new, tab.page.locator(".composer"), tab.button("Memory"), field]
    assert len({one.evaluate(style, "borderTopLeftRadius") for one in parts}) == 1
    tab.page.keyboard.press("Escape")
    tab.open("/settings")
    select = tab.page.get_by_label("Theme", exact=True)
    assert select.evaluate(style, "appearance") == "none"
    assert select.evaluate(style, "borderTopLeftRadius") == new.evaluate(style, "borderTopLeftRadius")
