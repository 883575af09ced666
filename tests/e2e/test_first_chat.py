"""The first visit: no key, no model, nothing set up."""

from __future__ import annotations

import json
from typing import Any

import pytest
from playwright.sync_api import expect

from palaver.testing.providers import LoopbackProvider, Say
from tests.e2e.conftest import App
from tests.e2e.test_for_everyone import violations


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
    expect(tab.page.get_by_role("form", name="Add a model")).to_be_visible()
    tab.button("Close").click()
    expect(tab.message).to_be_visible()


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


def test_the_example_is_found_again(offline: App) -> None:
    """The first idea, and the question that everybody asks next; there is no model and no embedder."""
    tab = offline.tab()
    tab.page.get_by_label("Ideas").get_by_role("button").first.click()
    tab.message.press("Enter")
    expect(tab.answers).to_have_count(1)
    tab.ask("How many people do I cook for?")
    expect(tab.answers.last).to_contain_text("I cook for two")
    expect(tab.answers.last.get_by_label("Sources").get_by_role("link")).to_have_count(1)


def test_a_sample_conversation_shows_memory_recall_and_the_prompt(offline: App) -> None:
    tab = offline.tab()
    tab.button("Or look at a sample conversation").click()
    expect(tab.answers.last).to_contain_text("I cook for two")
    tab.answers.last.get_by_role("button", name="What the model saw").click()
    drawer = tab.page.get_by_role("complementary", name="What the model saw")
    expect(drawer.locator(".block", has_text="Memory")).to_be_visible()
    expect(drawer.locator(".block", has_text="Summaries")).to_be_visible()
    tab.button("Memory").click()
    panel = tab.page.get_by_role("complementary", name="Memory")
    expect(panel).to_contain_text("Cook simple dinners on weekdays")
    panel.get_by_role("tab", name="Facts").click()
    expect(panel).to_contain_text("is allergic to")


def test_a_model_is_connected_in_the_settings(offline: App, provider: LoopbackProvider) -> None:
    provider.otherwise = Say("Rice.")
    tab = offline.tab()
    tab.button("Connect a model").click()
    form = tab.page.get_by_role("form", name="Add a model")
    form.get_by_label("Provider").select_option("local")
    form.get_by_label("Model", exact=True).fill("test")
    form.get_by_label("Address").fill("http://169.254.169.254/v1")
    form.get_by_label("API key").fill("sk-secret")
    tab.button("Save and test", form).click()
    expect(form.get_by_role("alert")).to_contain_text("is not allowed")
    form.get_by_label("Address").fill(str(provider.models()["chat"]["base_url"]))
    form.get_by_label("API key").fill("sk-secret")
    tab.button("Save and test", form).click()
    card = tab.page.get_by_role("article", name="test")
    expect(card).to_contain_text("Default")
    expect(card).to_contain_text("key stored")
    assert "sk-secret" not in tab.page.content()
    tab.button("Test", card).click()
    expect(card).to_contain_text("It works")
    tab.button("Close").click()
    expect(tab.page.get_by_text("No model connected")).to_have_count(0)
    tab.ask("What can I eat?")
    expect(tab.answers).to_contain_text("Rice.")


def test_a_local_model_needs_no_key_and_one_that_fails_can_be_removed(
    offline: App, provider: LoopbackProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    tab = offline.tab("/settings#models")
    form = tab.page.get_by_role("form", name="Add a model")
    form.get_by_label("Provider").select_option("local")
    form.get_by_label("Model", exact=True).fill("test")
    form.get_by_label("Address").fill("http://127.0.0.1:9/v1")
    tab.button("Save and test", form).click()
    expect(form.get_by_role("alert")).to_contain_text("the test failed")
    card = tab.page.get_by_role("article", name="test")
    expect(card).to_contain_text("no key")
    tab.button("Remove", card).click()
    expect(card).to_have_count(0)
    form.get_by_label("Address").fill(str(provider.models()["chat"]["base_url"]))
    tab.button("Save and test", form).click()
    expect(card).to_contain_text("Default")
    expect(form).to_have_count(0)


@pytest.mark.parametrize("width", [360, 768, 1024, 1280, 1920])
def test_the_fields_of_a_model_stand_in_line(offline: App, width: int) -> None:
    tab = offline.tab("/settings")
    tab.page.set_viewport_size({"width": width, "height": 900})
    form = tab.page.get_by_role("form", name="Add a model")
    form.get_by_label("Provider").select_option("local")
    boxes = [one.bounding_box() or {} for one in form.locator("input, select").all()]
    assert len(boxes) == 4
    for at, one in enumerate(boxes):
        assert one["height"] == boxes[0]["height"]
        for other in boxes[at + 1 :]:
            aside = one["x"] + one["width"] <= other["x"] or other["x"] + other["width"] <= one["x"]
            assert aside or one["y"] + one["height"] <= other["y"] or other["y"] + other["height"] <= one["y"]
            assert abs(one["y"] - other["y"]) < 1 or abs(one["y"] - other["y"]) > one["height"]  # one line, or another
    cards = tab.page.locator("#models .card").evaluate_all(
        "all => all.map((one) => one.getBoundingClientRect().toJSON())"
    )
    assert cards[1]["top"] > cards[0]["bottom"]


def test_settings_change_the_page_and_stay(offline: App) -> None:
    tab = offline.tab("/settings")
    tab.page.get_by_label("Theme", exact=True).select_option("dark")
    tab.page.get_by_label("Text size").select_option("large")
    tab.page.get_by_label("Language of dates").select_option("de")
    tab.page.reload()
    root = tab.page.locator("html")
    expect(root).to_have_attribute("data-theme", "dark")
    assert root.evaluate("one => parseFloat(getComputedStyle(one).fontSize)") > 16
    expect(tab.page.get_by_label("Language of dates")).to_have_value("de")
    assert not violations(tab.page)
    with tab.page.expect_download() as saved:
        tab.button("Export").click()
    assert saved.value.suggested_filename.endswith(".jsonl")


def test_an_export_of_another_product_is_imported_with_a_report(offline: App) -> None:
    export = [
        {
            "uuid": "c1", "name": "Trip to Lisbon", "created_at": "2025-05-01T10:00:00Z",
            "updated_at": "2025-05-01T10:01:00Z", "chat_messages": [
                {"uuid": "m1", "sender": "human", "text": "Which tram?", "created_at": "2025-05-01T10:00:00Z"},
                {"uuid": "m2", "sender": "assistant", "text": "Tram 28.", "created_at": "2025-05-01T10:01:00Z"},
            ],
        }
    ]  # fmt: skip
    tab = offline.tab("/settings")
    data = tab.page.get_by_role("region", name="Your data")
    for report in ("Imported 2 messages of 1 conversation.", "2 were already here"):
        with tab.page.expect_file_chooser() as chooser:
            tab.button("Import", data).click()
        chooser.value.set_files(
            {"name": "conversations.json", "mimeType": "application/json", "buffer": json.dumps(export).encode()}
        )
        expect(data.get_by_role("status")).to_contain_text(report)
    tab.row("Trip to Lisbon").locator(".row-link").click()
    expect(tab.answers).to_contain_text("Tram 28.")
    tab.open("/settings")
    with tab.page.expect_file_chooser() as chooser:
        tab.button("Import", data).click()
    chooser.value.set_files({"name": "x.json", "mimeType": "application/json", "buffer": b"[1]"})
    expect(data.get_by_role("status")).to_contain_text("The import failed. This file isn't an export of ChatGPT")


def test_an_import_says_what_was_left_out_and_why(offline: App) -> None:
    def message(id: str, role: str, text: str) -> dict[str, Any]:
        return {"id": id, "author": {"role": role}, "content": {"content_type": "text", "parts": [text]}}

    chain = [("a", "system", ""), ("b", "user", "Which tram?"), ("c", "assistant", "Tram 28.")]
    ids = [None, *(id for id, _, _ in chain), None]
    mapping = {
        id: {
            "id": id,
            "parent": ids[at],
            "children": [ids[at + 2]] if ids[at + 2] else [],
            "message": message(id, role, text),
        }
        for at, (id, role, text) in enumerate(chain)
    }
    talk = {"title": "Lisbon", "mapping": mapping, "current_node": "c", "create_time": 1.7e9}
    tab = offline.tab("/settings")
    data = tab.page.get_by_role("region", name="Your data")
    with tab.page.expect_file_chooser() as chooser:
        tab.button("Import", data).click()
    export = json.dumps([{**talk, "conversation_id": "c1"}, talk]).encode()
    chooser.value.set_files({"name": "conversations.json", "mimeType": "application/json", "buffer": export})
    expect(data.get_by_role("status")).to_have_text(
        "Imported 2 messages of 2 conversations; 1 message left out (hidden system message); "
        "1 conversation left out (has no id)."
    )
    tab.row("Lisbon").locator(".row-link").click()
    expect(tab.answers).to_contain_text("Tram 28.")
