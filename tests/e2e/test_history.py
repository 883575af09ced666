"""The list: groups, search, rename, delete and undo, export, and ten thousand of them."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from playwright.sync_api import expect

import palaver
from palaver.testing import FakeClock
from tests.e2e.conftest import done

NOON = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0)


def at(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/chat.db?synchronous=NORMAL"


def fill(url: str, talks: list[tuple[str, float, str]]) -> None:
    """Conversations as (title, days ago, text), written by a clock that stood there then."""

    async def write() -> None:
        clock = FakeClock(NOON)
        async with palaver.open(url, tenant="default", clock=clock, embedder=None) as store:
            for title, days, text in sorted(talks, key=lambda one: -one[1]):
                clock.set(NOON - timedelta(days=days))
                talk = await store.conversation(title=title)
                await talk.append("user", text)

    done(write())


def test_conversations_are_grouped_by_date(start, tmp_path: Path) -> None:
    fill(at(tmp_path), [("Older", 70, "a"), ("Last week", 4, "b"), ("The day before", 1, "c")])
    tab = start(at(tmp_path), context={"timezone_id": "UTC"}).tab()
    tab.ask("Now.")
    month = f"{NOON - timedelta(days=70):%B %Y}"
    groups = tab.list.get_by_role("heading")
    expect(groups).to_have_text(["Today", "Yesterday", "Previous 7 days", month])
    expect(tab.rows).to_have_text(["Now.", "The day before", "Last week", "Older"])


def test_search_finds_titles_and_text_and_marks_the_words(start, tmp_path: Path) -> None:
    fill(at(tmp_path), [
        ("Dinner", 1, "🥜🥜 I am allergic to peanuts, all of them."),
        ("Peanuts in general", 2, "A chat about plants."),
        ("Other", 3, "Nothing of the kind."),
    ])  # fmt: skip
    app = start(at(tmp_path))
    tab = app.tab()
    tab.page.keyboard.press("Control+k")
    search = tab.page.get_by_label("Search conversations")
    expect(search).to_be_focused()
    search.fill("peanu")
    expect(tab.found.locator(".result")).to_have_text(["Peanuts in general"])
    expect(tab.found.locator(".result mark")).to_have_text(["Peanu"])
    expect(tab.found.locator(".passage mark")).to_have_text(["peanuts"])
    tab.found.locator(".passage").click()
    expect(tab.page.locator(".item.is-found")).to_contain_text("allergic to peanuts")
    tab.search("unheard-of")
    expect(tab.found).to_contain_text("No results")
    search.press("Escape")
    expect(tab.found).to_have_count(0)


def test_a_match_far_back_in_a_long_thread_is_shown(start, tmp_path: Path) -> None:
    app = start(at(tmp_path))
    with app.api() as api:
        id = api.post("/api/conversations", json={}).json()["id"]
        turns = [{"role": "user", "content": f"Line {n}." + (" The needle." if n == 5 else "")} for n in range(100)]
        assert api.post(f"/api/conversations/{id}/turns/batch", json={"turns": turns}).is_success
    tab = app.tab()
    tab.search("needle")
    tab.found.locator(".passage").click()
    found = tab.page.locator(".item.is-found")
    expect(found).to_contain_text("Line 5. The needle.")
    expect(found).to_be_in_viewport()


def test_a_title_is_changed_in_place(start, tmp_path: Path) -> None:
    fill(at(tmp_path), [("Old name", 0, "a")])
    app = start(at(tmp_path))
    tab = app.tab()
    tab.rows.first.focus()
    tab.rows.first.press("F2")
    field = tab.list.get_by_label("Title")
    field.fill("New name")
    field.press("Enter")
    expect(tab.rows).to_have_text(["New name"])
    tab.rows.first.dblclick()
    expect(field).to_be_focused()
    field.fill("Newer name")
    field.press("Enter")
    expect(tab.rows).to_have_text(["Newer name"])
    tab.page.get_by_role("heading", name="Newer name").get_by_role("button").click()
    title = tab.page.get_by_role("main").get_by_label("Title")
    title.fill("Newest name")
    title.press("Enter")
    expect(tab.rows).to_have_text(["Newest name"])
    tab.page.reload()
    expect(tab.rows).to_have_text(["Newest name"])


def test_a_title_that_is_refused_is_put_back_with_a_message(start, tmp_path: Path) -> None:
    fill(at(tmp_path), [("Kept", 0, "a")])
    app = start(at(tmp_path))
    tab = app.tab()
    tab.rows.first.focus()
    tab.rows.first.press("F2")
    app.context.set_offline(True)
    tab.list.get_by_label("Title").fill("Lost")
    tab.list.get_by_label("Title").press("Enter")
    expect(tab.page.locator(".toast.is-problem")).to_contain_text("The title was not changed")
    expect(tab.rows).to_have_text(["Kept"])


def test_a_deletion_can_be_taken_back_until_its_time_is_over(start, tmp_path: Path) -> None:
    fill(at(tmp_path), [("One", 0, "a"), ("Two", 1, "b")])
    app = start(at(tmp_path))
    tab = app.tab(None)
    tab.page.clock.install()
    tab.open()
    other = app.tab()
    expect(other.rows).to_have_count(2)
    tab.choose("One", "Delete")
    expect(tab.rows).to_have_text(["Two"])
    tab.button("Undo").click()
    expect(tab.rows).to_have_text(["One", "Two"])
    tab.choose("One", "Delete")
    expect(tab.rows).to_have_text(["Two"])
    with app.api() as api:
        assert len(api.get("/api/conversations").json()["items"]) == 2
    with tab.page.expect_response(lambda answer: answer.request.method == "DELETE") as answer:
        tab.page.clock.fast_forward(5_000)
    assert answer.value.status == 204
    expect(other.rows).to_have_text(["Two"])
    expect(tab.button("Undo")).to_have_count(0)


def test_a_deletion_is_sent_when_the_page_closes(start, tmp_path: Path) -> None:
    fill(at(tmp_path), [("One", 0, "a"), ("Two", 1, "b")])
    app = start(at(tmp_path))
    tab = app.tab()
    tab.choose("One", "Delete")
    expect(tab.rows).to_have_text(["Two"])
    tab.page.goto("about:blank")
    tab.errors.clear()
    again = app.tab()
    expect(again.rows).to_have_text(["Two"])
    with app.api() as api:
        assert [one["title"] for one in api.get("/api/conversations").json()["items"]] == ["Two"]


def test_a_conversation_is_exported(start, tmp_path: Path) -> None:
    fill(at(tmp_path), [("Dinner: 🥜 / rice", 0, "I'm allergic to peanuts.")])
    tab = start(at(tmp_path)).tab()
    for kind in ("Markdown", "JSON"):
        with tab.page.expect_download() as saved:
            tab.choose("Dinner", f"Export as {kind}")
        text = Path(saved.value.path()).read_text()
        assert "I'm allergic to peanuts." in text
        assert saved.value.suggested_filename.startswith("Dinner")
    assert [turn["role"] for turn in json.loads(text)["turns"]] == ["user"]


@pytest.mark.parametrize("count", [1_000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_a_long_list_is_scrolled_with_few_rows_in_the_page(start, tmp_path: Path, count: int) -> None:
    async def write() -> None:
        async with palaver.open(at(tmp_path), tenant="default", embedder=None) as store:
            for n in range(0, count, 500):
                await asyncio.gather(*(store.conversation(title=f"Talk {m}") for m in range(n, n + 500)))

    done(write())
    tab = start(at(tmp_path)).tab()
    expect(tab.rows.first).to_be_visible()
    space = tab.list.locator(".list-space")
    while (height := space.evaluate("one => (one.parentElement.scrollTop = one.offsetHeight)")) < count * 40:
        assert tab.rows.count() < 60
        expect(space).not_to_have_css("height", f"{height}px")  # each page makes it longer
    expect(tab.rows.last).to_be_in_viewport()
    assert tab.rows.count() < 60
    last = tab.rows.last
    last.click()
    expect(tab.page.locator(".chat-title")).to_have_text(last.inner_text())


def test_keys_lead_through_the_list(start, tmp_path: Path) -> None:
    fill(at(tmp_path), [("One", 0, "first"), ("Two", 1, "second")])
    tab = start(at(tmp_path)).tab()
    expect(tab.rows).to_have_count(2)
    tab.page.keyboard.press("Alt+ArrowDown")
    expect(tab.questions).to_have_text(["first"])
    tab.page.keyboard.press("Alt+ArrowDown")
    expect(tab.questions).to_have_text(["second"])
    tab.page.go_back()
    expect(tab.questions).to_have_text(["first"])
    tab.rows.first.focus()
    tab.page.keyboard.press("ArrowDown")
    expect(tab.rows.nth(1)).to_be_focused()
    tab.page.keyboard.press("Enter")
    expect(tab.questions).to_have_text(["second"])
    tab.page.keyboard.press("Control+Shift+o")
    expect(tab.message).to_be_focused()
    expect(tab.questions).to_have_count(0)
    tab.page.keyboard.press("Control+/")
    expect(tab.page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
