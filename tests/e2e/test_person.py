"""The memory of a person across chats: the page, the chips under an answer, and the switch per chat."""

from __future__ import annotations

import json
from pathlib import Path

from playwright.sync_api import expect

from tests.e2e.conftest import App, words
from tests.e2e.test_for_everyone import violations


def settle(app: App) -> None:
    """Wait for the background work of the server."""
    app.server.do(app.server.app.state.services.store.settle())


def test_what_was_said_in_one_chat_is_known_in_the_next_and_can_be_corrected_and_forgotten(offline: App) -> None:
    with offline.api() as api:
        first = api.post("/api/conversations", json={"title": "About me"}).json()["id"]
    tab = offline.tab(f"/c/{first}")
    tab.ask("I live in Lisbon. I am allergic to peanuts.")
    settle(offline)
    tab.button("New chat", tab.list).click()
    tab.ask("Which food should I avoid?")
    chip = tab.answers.last.get_by_label("Remembered").get_by_role("link", name=words("allergic"))
    expect(chip).to_contain_text("Is allergic to peanuts · remembered from “About me”")
    chip.click()
    expect(tab.page).to_have_url(words(first))
    expect(tab.page.locator(".item.is-found")).to_contain_text("allergic to peanuts")
    tab.button("Your memory").click()
    facts = tab.page.get_by_role("region", name=words("Facts"))
    item = facts.get_by_role("article").filter(has_text="Lisbon")
    expect(item.get_by_role("link")).to_have_attribute("href", words(f"/c/{first}#"))
    assert not violations(tab.page)
    item.get_by_role("button", name=words("Correct:")).click()
    facts.get_by_label("Correct it").fill("I live in Porto")
    tab.button("Save", facts).click()
    expect(facts).to_contain_text("Porto")
    expect(facts).not_to_contain_text("Lisbon")
    facts.get_by_role("article").filter(has_text="peanuts").get_by_role("button", name=words("Forget:")).click()
    expect(facts).not_to_contain_text("peanuts")
    instructions = tab.page.get_by_role("region", name=words("Custom instructions"))
    tab.button("Add to custom instructions").click()
    instructions.get_by_label("Add to custom instructions").fill("Answer in short sentences.")
    tab.button("Save", instructions).click()
    expect(instructions.get_by_role("article")).to_contain_text("Answer in short sentences.")
    with tab.page.expect_download() as saved:
        tab.button("Export").click()
    assert "Porto" in json.dumps(json.loads(Path(saved.value.path()).read_text()))
    tab.page.goto(offline.server.url + "/settings")
    expect(tab.page.get_by_role("region", name=words("Custom instructions"))).to_contain_text("short sentences")
    tab.page.goto(offline.server.url + "/memory")
    tab.button("Forget everything").click()
    tab.button("Forget everything", tab.page.get_by_role("dialog")).click()
    expect(instructions.get_by_role("article")).to_have_count(0)
    expect(facts.get_by_role("article")).to_have_count(0)


def test_a_chat_can_be_left_out_of_it(offline: App) -> None:
    tab = offline.tab()
    tab.ask("Hello.")
    tab.button("Memory").click()
    panel = tab.page.get_by_role("complementary", name="Memory")
    panel.get_by_role("tab", name="Rules").click()
    panel.get_by_label("Your memory in this chat").select_option("off")
    with tab.page.expect_response(lambda answer: answer.request.method == "PATCH"):
        tab.button("Save", panel).click()
    tab.ask("I live in Lisbon.")
    settle(offline)
    tab.button("Your memory").click()
    expect(tab.page.get_by_role("region", name=words("Facts"))).to_be_visible()
    expect(tab.page.get_by_role("article")).to_have_count(0)
