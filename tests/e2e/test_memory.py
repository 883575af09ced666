"""The memory panel: what it shows is what the API says, and what is changed in it is changed for everybody."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest
from playwright.sync_api import Locator, expect

from tests.e2e.conftest import App, Tab
from tests.e2e.test_for_everyone import PHONE, violations

ALLERGY = "I'm allergic to peanuts."
SAID = [
    ("user", f"My name is Ada. {ALLERGY}"),
    ("assistant", "No peanuts, Ada."),
    ("user", "We decided to ship the beta on 3 May."),
    ("assistant", "Noted."),
    ("user", "Always answer in short sentences."),
    ("assistant", "I will."),
]


def a_talk(app: App, exchanges: int = 3, **fields: Any) -> str:
    """A conversation with something to remember, and some more."""
    more = [
        (role, f"And on it goes, for the time number {n}.") for n in range(exchanges) for role in ("user", "assistant")
    ]
    turns = [{"role": role, "content": content} for role, content in (*SAID, *more)]
    with app.api() as api:
        id: str = api.post("/api/conversations", json={"title": "Kitchen", **fields}).json()["id"]
        assert api.post(f"/api/conversations/{id}/turns/batch", json={"turns": turns}).status_code == 201
    return id


def get(app: App, path: str) -> Any:
    with app.api() as api:
        return api.get(f"/api/conversations/{path}").json()


def open_memory(tab: Tab, name: str = "Notes") -> Locator:
    tab.button("Memory").click()
    panel = tab.page.get_by_role("complementary", name="Memory")
    panel.get_by_role("tab", name=name).click()
    return panel


# ---- notes


def test_notes_are_added_corrected_and_removed(offline: App) -> None:
    id = a_talk(offline)
    tab = offline.tab(f"/c/{id}")
    panel = open_memory(tab)
    tab.button("Decisions", panel).click()
    panel.get_by_role("textbox").fill("Ship before May")
    panel.get_by_role("textbox").press("Enter")
    note = panel.get_by_role("listitem")
    expect(note).to_contain_text("Ship before May")
    expect(tab.button("Add to decisions", panel)).to_be_focused()
    tab.button("Edit: Ship before May", panel).click()
    panel.get_by_role("textbox").fill("Ship before June")
    tab.button("Save", panel).click()
    expect(note).to_contain_text("Ship before June")
    assert [one["text"] for one in get(offline, f"{id}/memory")["decisions"]] == ["Ship before June"]
    tab.button("Remove: Ship before June", panel).click()
    expect(note).to_have_count(0)
    assert get(offline, f"{id}/memory")["decisions"] == []
    tab.button("Undo").click()
    expect(note).to_contain_text("Ship before June")
    tab.page.reload()
    expect(open_memory(tab).get_by_role("listitem")).to_contain_text("Ship before June")


def test_a_concurrent_note_is_kept_and_not_changed_by_mistake(offline: App) -> None:
    id = a_talk(offline)
    tab = offline.tab(f"/c/{id}")
    panel = open_memory(tab)
    with offline.api() as api:
        for text in ("First", "Second"):
            api.post(f"/api/conversations/{id}/memory/goals", json={"text": text})
        expect(panel.get_by_role("listitem")).to_have_count(2)
        tab.button("Edit: Second", panel).click()
        api.delete(f"/api/conversations/{id}/memory/goals/0")  # "Second" is the first one now
        panel.get_by_role("textbox").fill("Second, better")
        tab.button("Save", panel).click()
        expect(panel.get_by_role("listitem")).to_contain_text(["Second, better"])
        api.delete(f"/api/conversations/{id}/memory/goals/0")
    expect(panel.get_by_role("listitem")).to_have_count(0)


def test_a_note_that_is_refused_says_why_and_is_not_lost(offline: App) -> None:
    tab = offline.tab(f"/c/{a_talk(offline)}")
    panel = open_memory(tab)
    tab.page.route("**/memory/goals", lambda route: route.abort())
    tab.button("Goals", panel).click()
    panel.get_by_role("textbox").fill("Eat well")
    tab.button("Save", panel).click()
    expect(tab.page.locator(".toast.is-problem")).to_contain_text("Not saved.")
    expect(panel.get_by_role("textbox")).to_have_value("Eat well")


# ---- summaries


def test_summaries_are_a_timeline_with_the_span_of_each(offline: App) -> None:
    id = a_talk(offline)
    tab = offline.tab(f"/c/{id}")
    panel = open_memory(tab, "Summaries")
    expect(panel).to_contain_text("after 50 messages or 8,000 tokens")
    tab.button("Summarise now", panel).click()
    shown = panel.get_by_role("article")
    expect(shown).to_have_count(1)
    (summary,) = get(offline, f"{id}/summaries")["items"]
    first, last = summary["from_seq"] + 1, summary["through_seq"]
    expect(shown).to_contain_text(f"messages {first}–{last}")
    expect(shown).to_contain_text(summary["text"].splitlines()[0])
    expect(panel).to_contain_text(f"messages {last + 1}–12 are not summarised")
    panel.get_by_role("button", name=f"Summary of messages, messages {first}–{last}").click()
    expect(shown).to_be_focused()
    tab.button(f"messages {first}–{last}", panel).click()
    expect(tab.page.locator(".item.is-found")).to_contain_text(ALLERGY)
    panel.get_by_role("tab", name="Notes").click()
    expect(panel.get_by_role("region", name="Decisions")).to_contain_text("We decided to ship the beta on 3 May.")


def test_summaries_of_summaries_open_to_what_they_were_made_from(offline: App) -> None:
    id = a_talk(offline, 150)
    tab = offline.tab(f"/c/{id}")
    panel = open_memory(tab, "Summaries")
    top = panel.locator(".timeline > li > .level-1")
    expect(top.first).to_be_visible()
    tops = [one for one in get(offline, f"{id}/summaries")["items"] if one["level"] == 1]
    expect(top.first).to_contain_text(f"messages {tops[0]['from_seq'] + 1}–{tops[0]['through_seq']}")
    top.first.locator("details > summary").first.click()
    expect(top.first.locator(".level-0").first).to_contain_text("messages 1–")


# ---- facts


def test_facts_have_confidence_validity_and_a_way_to_their_source(offline: App) -> None:
    id = a_talk(offline, 40, settings={"compaction": {"strategy": "never"}})
    tab = offline.tab(f"/c/{id}")
    panel = open_memory(tab, "Facts")
    expect(panel).to_contain_text("No facts yet.")
    tab.button("Extract facts now", panel).click()
    row = panel.get_by_role("row").filter(has_text="peanuts")
    expect(row).to_be_visible()
    facts = get(offline, f"{id}/facts")["items"]
    fact = next(one for one in facts if one["object"] == "peanuts")
    expect(panel.get_by_role("row")).to_have_count(len(facts) + 1)
    expect(row).to_contain_text(f"{fact['confidence']:.0%}")
    expect(row.locator("time")).to_have_attribute("datetime", fact["valid_from"])
    tab.button("source", row).click()
    expect(tab.page.locator(".item.is-found")).to_contain_text(ALLERGY)
    row.get_by_role("button", name="Delete permanently").click()
    expect(row).to_have_count(0)
    assert "peanuts" not in str(get(offline, f"{id}/facts"))


def test_a_fact_that_no_longer_holds_is_shown_on_demand(offline: App) -> None:
    id = a_talk(offline)
    with offline.api() as api:
        for place in ("Oslo", "Rome"):
            api.post(f"/api/conversations/{id}/turns", json={"role": "user", "content": f"I live in {place}."})
            api.post(f"/api/conversations/{id}/facts/extract")
    panel = open_memory(offline.tab(f"/c/{id}"), "Facts")
    expect(panel.get_by_role("row").filter(has_text="Rome")).to_be_visible()
    old = panel.get_by_role("row").filter(has_text="Oslo")
    expect(old).to_have_count(0)
    panel.get_by_label("Show outdated facts").check()
    expect(old).to_contain_text("until")


# ---- recall


def test_recall_shows_live_what_the_api_finds_and_why(offline: App) -> None:
    id = a_talk(offline)
    panel = open_memory(offline.tab(f"/c/{id}"), "Recall")
    panel.get_by_role("searchbox").press_sequentially("peanuts")
    found = panel.get_by_label("Found").get_by_role("listitem")
    expect(found.first).to_contain_text(ALLERGY)
    with offline.api() as api:
        asked = {"query": "peanuts", "k": 12, "scope": "conversation"}
        hits = api.post(f"/api/conversations/{id}/recall", json=asked).json()["items"]
    expect(found).to_have_count(len(hits))
    expect(found.first.get_by_label("Score")).to_contain_text(f"score{hits[0]['score']:.2f}")
    expect(found.first.get_by_label("Score")).to_contain_text(f"words+{hits[0]['parts']['lexical']:.2f}")
    found.first.get_by_role("button").click()
    expect(offline.tabs[0].page.locator(".item.is-found")).to_contain_text(ALLERGY)


# ---- rules


def test_rules_are_saved_and_say_what_they_mean(offline: App) -> None:
    id = a_talk(offline, settings={"facts": True, "compaction": {"trigger_turns": 70}})
    tab = offline.tab(f"/c/{id}")
    panel = open_memory(tab, "Rules")
    save = tab.button("Save", panel)
    expect(save).to_be_disabled()
    expect(panel.get_by_label("After this many messages")).to_have_value("70")
    panel.get_by_label("Keep summaries only").check()
    expect(panel).to_contain_text("Deleted text cannot be restored.")
    panel.get_by_label("Delete the conversation after").select_option("A week")
    panel.get_by_label("Redact secrets").check()
    panel.get_by_label("Rolling").check()
    panel.get_by_label("or this many tokens").fill("5000")
    save.click()
    expect(save).to_be_disabled()
    info = get(offline, id)
    assert info["settings"] == {
        "facts": True,
        "retention": "ephemeral",
        "redact": True,
        "compaction": {"trigger_turns": 70, "trigger_tokens": 5_000, "strategy": "rolling"},
    }
    assert info["ttl"] == 7 * 24 * 3600
    expect(panel).to_contain_text("At the moment:")
    panel.get_by_label("Delete the conversation after").select_option("Never")
    tab.button("Undo changes", panel).click()
    expect(panel.get_by_label("Delete the conversation after")).to_have_value("604800")
    tab.ask("My card is 4111 1111 1111 1111.")
    expect(tab.questions.last).to_have_text("My card is [card].")


# ---- the log


def test_the_log_tells_who_did_what_and_is_verified(offline: App, tmp_path: Path) -> None:
    id = a_talk(offline)
    tab = offline.tab(f"/c/{id}")
    panel = open_memory(tab, "Log")
    events = get(offline, f"{id}/audit")["items"]
    lines = panel.locator(".log-line")
    expect(lines).to_have_count(len([one for one in events if one["kind"] not in ("open", "chunk")]))
    expect(lines.last).to_contain_text("opened the conversation")
    tab.button("sent a message", lines.nth(lines.count() - 2)).click()
    expect(tab.page.locator(".item.is-found")).to_contain_text(ALLERGY)
    tab.button("Verify", panel).click()
    expect(panel.locator(".verdict")).to_contain_text(f"Intact. {len(events)} events, 12 turns, 0 files")
    database = apsw.Connection(f"{tmp_path}/chat.db")  # not sqlite3: its close would delete the server's WAL
    database.execute("UPDATE turns SET content = 'Something else' WHERE seq = 1")
    database.close()
    tab.button("Verify", panel).click()
    expect(panel.locator(".verdict.is-bad")).to_contain_text("(seq 1): its content is not the content that was stored")


# ---- for everyone


def test_keys_go_from_tab_to_tab_and_out_again(offline: App) -> None:
    tab = offline.tab(f"/c/{a_talk(offline)}")
    expect(tab.answers.last).to_be_visible()
    tab.message.press("Alt+m")
    panel = tab.page.get_by_role("complementary", name="Memory")
    expect(panel.get_by_role("heading", name="Memory")).to_be_focused()
    tab.page.keyboard.press("Tab")
    tab.page.keyboard.press("Tab")
    expect(panel.get_by_role("tab", name="Notes")).to_be_focused()
    tab.page.keyboard.press("ArrowRight")
    expect(panel.get_by_role("tab", name="Facts")).to_be_focused()
    expect(panel.get_by_role("tabpanel", name="Facts")).to_be_visible()
    tab.page.keyboard.press("End")
    expect(panel.get_by_role("tabpanel", name="Log")).to_be_visible()
    tab.page.keyboard.press("Escape")
    expect(panel).to_have_count(0)
    expect(tab.message).to_be_focused()


@pytest.mark.parametrize("context", [None, PHONE], ids=["wide", "phone"])
def test_axe_finds_nothing_serious_in_any_tab(start: Callable[..., App], context: Any) -> None:
    app = start(context=context)
    id = a_talk(app, 30, settings={"facts": True, "compaction": {"trigger_turns": 20}})
    tab = app.tab(f"/c/{id}")
    panel = open_memory(tab, "Summaries")
    expect(panel.get_by_role("article").first).to_be_visible()
    ready = {"Notes": ".note", "Facts": ".facts-table", "Summaries": ".summary", "Rules": ".choice", "Log": ".log-line"}
    for name, selector in ready.items():
        panel.get_by_role("tab", name=name).click()
        expect(panel.locator(selector).first).to_be_visible()
        assert not violations(tab.page), name
    panel.get_by_role("tab", name="Recall").click()
    panel.get_by_role("searchbox").fill("peanuts")
    expect(panel.get_by_label("Score").first).to_be_visible()
    assert not violations(tab.page)
    assert tab.page.evaluate("document.scrollingElement.scrollWidth <= innerWidth")
