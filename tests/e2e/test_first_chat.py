"""The first visit: no key, no model, nothing set up."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.e2e.conftest import App


def test_a_first_chat_needs_nothing_and_says_so(offline: App) -> None:
    tab = offline.tab()
    expect(tab.message).to_be_focused()
    expect(tab.page.get_by_text("No model connected")).to_be_visible()
    tab.ask("I'm allergic to peanuts.")
    tab.ask("What am I allergic to?")
    expect(tab.answers.nth(1)).to_contain_text("I'm allergic to peanuts.")
    expect(tab.message).to_be_focused()
    expect(tab.message).to_have_value("")
    expect(tab.rows).to_have_count(1)
    with offline.api() as api:
        turns = api.get(f"/api/conversations/{tab.conversation}/turns").json()["items"]
    assert [turn["role"] for turn in turns] == ["user", "assistant"] * 2
    log = tab.page.get_by_role("log")
    before = log.text_content()
    assert before
    tab.page.reload()
    expect(log).to_have_text(before)  # what was said is there after a reload
    source = tab.answers.nth(1).get_by_label("Sources").get_by_role("link")
    expect(source).to_contain_text("I'm allergic to peanuts.")
    source.click()
    expect(tab.page.locator(".item.is-found .bubble")).to_have_text("I'm allergic to peanuts.")


def test_how_to_add_a_model_is_one_click_away(offline: App) -> None:
    tab = offline.tab()
    tab.button("Connect a model").click()
    dialog = tab.page.get_by_role("dialog", name="Connect a model")
    expect(dialog).to_contain_text("OPENAI_API_KEY")
    expect(dialog).to_contain_text("palaver serve --model")
    tab.page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()


def test_an_idea_is_put_into_the_message_box(offline: App) -> None:
    tab = offline.tab()
    idea = tab.page.get_by_label("Ideas").get_by_role("button").first
    text = idea.inner_text()
    idea.click()
    expect(tab.message).to_have_value(text)
    expect(tab.message).to_be_focused()


def test_a_conversation_that_is_not_there_says_so(offline: App) -> None:
    tab = offline.tab("/c/01K00000000000000000000000")
    expect(tab.page.get_by_role("alert")).to_contain_text("Conversation not found")
    tab.button("New chat", tab.page.get_by_role("alert")).click()
    expect(tab.message).to_be_focused()
