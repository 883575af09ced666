"""Answers of a model that follows a script: streaming, stop, again, edit, versions, failures, reload, two tabs."""

from __future__ import annotations

import threading
from collections.abc import Callable

from playwright.sync_api import expect

from palaver.testing.providers import Fail, LoopbackProvider, Say
from tests.e2e.conftest import TITLE, App, words

LONG = "One two three four five six seven eight."


def test_thoughts_are_shown_while_they_come(start: Callable[..., App], provider: LoopbackProvider) -> None:
    app = start(model="claude", models={"claude": provider.models()["messages"]})
    provider.otherwise = Say("Rice.", thinking="Nuts are out.")
    tab = app.tab()
    tab.ask("What can I eat?")
    thoughts = tab.page.locator(".thoughts")
    expect(thoughts).to_contain_text("Nuts are out.")
    expect(tab.answers.locator(".markdown")).to_have_text("Rice.")


def test_stop_keeps_what_came(scripted: App, gate: threading.Event) -> None:
    assert scripted.script
    scripted.script.add(Say(LONG, hold_after=(3, gate)))
    tab = scripted.tab()
    tab.send("Count.")
    expect(tab.page.locator(".markdown.is-streaming")).to_have_text("One two three")
    tab.page.keyboard.press("Escape")
    expect(tab.answers).to_contain_text("One two three")
    expect(tab.answers).to_contain_text("stopped")
    gate.set()
    tab.page.reload()
    expect(tab.answers.locator(".markdown")).to_have_text("One two three")


def test_an_answer_made_again_is_a_version_of_it(scripted: App) -> None:
    assert scripted.script
    scripted.script.add(Say("Rice."), Say("Beans."))
    tab = scripted.tab()
    tab.ask("What can I eat?")
    tab.button("Regenerate").click()
    expect(tab.answers).to_contain_text("Beans.")
    expect(tab.answers).to_have_count(1)
    expect(tab.questions).to_have_count(1)
    versions = tab.page.get_by_role("group", name="Versions of this answer")
    expect(versions).to_contain_text("2 / 2")
    tab.button("Previous version of this answer").click()
    expect(tab.answers).to_contain_text("Rice.")
    expect(versions).to_contain_text("1 / 2")
    tab.page.reload()
    expect(tab.answers).to_contain_text("Rice.")
    tab.button("Next version of this answer").click()
    expect(tab.answers).to_contain_text("Beans.")


def test_an_edited_question_opens_a_branch(scripted: App) -> None:
    assert scripted.script
    scripted.script.add(Say("Rice."), Say("Tea."), Say("Soup."))
    tab = scripted.tab()
    tab.ask("What can I eat?")
    tab.ask("And to drink?")
    first = tab.page.locator(".item.is-user").first
    first.hover()
    tab.button("Edit", first).click()
    editor = tab.page.get_by_label("Edit message")
    expect(editor).to_have_value("What can I eat?")
    editor.fill("What can I eat tonight?")
    editor.press("Enter")
    expect(tab.answers).to_contain_text(["Soup."])
    expect(tab.questions).to_have_text(["What can I eat tonight?"])
    versions = tab.page.get_by_role("group", name="Versions of this message")
    expect(versions).to_contain_text("2 / 2")
    tab.button("Previous version of this message").click()
    expect(tab.questions).to_have_text(["What can I eat?", "And to drink?"])
    expect(tab.answers).to_contain_text(["Rice.", "Tea."])


def test_arrow_up_in_an_empty_box_edits_the_last_message(scripted: App) -> None:
    tab = scripted.tab()
    tab.ask("What can I eat?")
    tab.message.press("ArrowUp")
    editor = tab.page.get_by_label("Edit message")
    expect(editor).to_be_focused()
    editor.press("Escape")
    expect(editor).to_have_count(0)
    expect(tab.questions).to_have_text(["What can I eat?"])


def test_a_model_that_fails_can_be_asked_again(scripted: App) -> None:
    assert scripted.script
    scripted.script.add(Fail(400, message="no", kind="invalid_request_error"), Say("Rice."))
    tab = scripted.tab()
    tab.send("What can I eat?")
    failure = tab.page.locator(".failure")
    expect(failure).to_be_visible()
    expect(tab.questions).to_have_text(["What can I eat?"])
    tab.button("Try again", failure).click()
    expect(tab.answers).to_contain_text("Rice.")
    expect(failure).to_have_count(0)
    expect(tab.questions).to_have_count(1)


def test_an_answer_that_breaks_off_is_kept_in_sight(scripted: App) -> None:
    assert scripted.script
    scripted.script.add(Say(LONG, cut_after=3), Say("Whole."))
    tab = scripted.tab()
    tab.send("Count.")
    expect(tab.page.locator(".is-cut")).to_contain_text("One two three")
    tab.button("Try again").click()
    expect(tab.answers).to_contain_text("Whole.")
    expect(tab.page.locator(".is-cut")).to_have_count(0)


def test_a_message_that_cannot_be_sent_is_not_lost(scripted: App) -> None:
    tab = scripted.tab()
    tab.ask("Hello.")
    scripted.context.set_offline(True)
    tab.send("Are you there?")
    failure = tab.page.locator(".is-sending .failure")
    expect(failure).to_contain_text("Not sent")
    scripted.context.set_offline(False)
    tab.button("Send again", failure).click()
    expect(tab.answers).to_have_count(2)
    expect(tab.questions).to_have_text(["Hello.", "Are you there?"])


def test_an_answer_streams_in_and_goes_on_over_a_reload(scripted: App, gate: threading.Event) -> None:
    assert scripted.script
    first = threading.Event()
    scripted.script.add(Say(LONG, hold=first, hold_after=(4, gate)))
    tab = scripted.tab()
    tab.send("Count.")
    expect(tab.page.get_by_text("Thinking…")).to_be_visible()
    first.set()
    streaming = tab.page.locator(".markdown.is-streaming")  # it has the cursor
    expect(streaming).to_have_text("One two three four")
    expect(tab.page.get_by_text("Thinking…")).to_have_count(0)
    expect(tab.button("Stop")).to_be_visible()
    tab.page.reload()
    expect(streaming).to_have_text("One two three four")
    expect(tab.button("Stop")).to_be_visible()
    gate.set()
    expect(tab.answers.locator(".markdown")).to_have_text(LONG)
    expect(streaming).to_have_count(0)
    expect(tab.button("Send")).to_be_visible()


def test_two_tabs_show_the_same_live(scripted: App, gate: threading.Event) -> None:
    assert scripted.script
    scripted.script.add(Say("Hello."), Say("Naïve 🥜 " + LONG, hold_after=(5, gate)))
    one = scripted.tab()
    one.ask("Hi.")
    two = scripted.tab(f"/c/{one.conversation}")
    expect(two.answers).to_have_count(1)
    one.send("Count.")
    for tab in (one, two):
        expect(tab.page.locator(".markdown.is-streaming")).to_have_text("Naïve 🥜 One two three")
    two.button("Stop").wait_for()
    gate.set()
    for tab in (one, two):
        expect(tab.answers.nth(1).locator(".markdown")).to_have_text("Naïve 🥜 " + LONG)
    two.ask("From the other side.")
    expect(one.questions).to_have_text(["Hi.", "Count.", "From the other side."])
    expect(one.answers).to_have_count(3)


def test_a_title_comes_by_itself_in_every_tab(scripted: App) -> None:
    one = scripted.tab()
    two = scripted.tab()
    one.ask("Hi.")
    for tab in (one, two):
        expect(tab.rows).to_have_text([words(TITLE)])


def test_tools_are_shown_while_they_run_and_the_same_after_a_reload(scripted: App, gate: threading.Event) -> None:
    assert scripted.script
    scripted.script.add(Say("Let me look.", calls=[("recall", {"query": "nuts"})]), Say("Peanuts.", hold=gate))
    tab = scripted.tab()
    tab.send("I'm allergic to peanuts. Which nuts are bad for me?")
    steps = tab.page.get_by_label("Tools")
    expect(steps).to_contain_text("recall")
    expect(steps).to_contain_text("query: nuts")
    expect(tab.page.get_by_text("Thinking…")).to_be_visible()
    gate.set()
    expect(tab.answers).to_contain_text("Peanuts.")
    expect(steps.locator(".step.is-done")).to_have_count(1)
    steps.locator("summary").click()
    expect(steps).to_contain_text("allergic to peanuts")
    tab.page.evaluate("document.querySelectorAll('details').forEach((one) => (one.open = false))")
    before = tab.answers.inner_html()
    tab.page.reload()
    expect(tab.answers).to_contain_text("Peanuts.")
    assert tab.answers.inner_html() == before


def test_a_thread_that_ends_with_tools_can_be_gone_on_with(scripted: App) -> None:
    assert scripted.script
    with scripted.api() as api:
        id = api.post("/api/conversations", json={}).json()["id"]
        turns = [
            {"role": "user", "content": "How warm is it?"},
            {"role": "assistant", "tool_calls": [{"id": "c1", "name": "look", "arguments": {}}]},
            {"role": "tool", "tool_results": [{"id": "c1", "content": "12 °C"}]},
        ]
        assert api.post(f"/api/conversations/{id}/turns/batch", json={"turns": turns}).is_success
    scripted.script.add(Say("It is 12 °C."))
    tab = scripted.tab(f"/c/{id}")
    expect(tab.page.locator(".step.is-done")).to_be_visible()
    tab.button("Get a reply").click()
    expect(tab.page.get_by_text("It is 12 °C.")).to_be_visible()


def test_several_actors_have_names_and_colours(scripted: App) -> None:
    with scripted.api() as api:
        id = api.post("/api/conversations", json={}).json()["id"]
        turns = [
            {"role": "user", "actor": "ada", "content": "Dinner?"},
            {"role": "assistant", "actor": "cook", "content": "Rice."},
            {"role": "assistant", "actor": "sommelier", "content": "And tea."},
        ]
        assert api.post(f"/api/conversations/{id}/turns/batch", json={"turns": turns}).is_success
    tab = scripted.tab(f"/c/{id}")
    names = tab.page.locator(".actor")
    expect(names).to_have_text([words("ada"), words("cook"), words("sommelier")])
    colours = {names.nth(n).evaluate("one => getComputedStyle(one).color") for n in range(3)}
    assert len(colours) == 3
