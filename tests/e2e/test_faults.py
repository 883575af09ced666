"""Faults that people met: each of these tests failed before the fix."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

from playwright.sync_api import expect

import palaver
from palaver.testing import FakeClock
from palaver.testing.providers import Fail, Say
from tests.e2e.conftest import App, done, words
from tests.e2e.test_files import choose, file, hand_over, png

NOON = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0)


def talk_of(app: App, title: str, *said: str) -> str:
    """A conversation with questions and answers by turns."""
    with app.api() as api:
        id: str = api.post("/api/conversations", json={"title": title}).json()["id"]
        turns = [{"role": ("user", "assistant")[n % 2], "content": one} for n, one in enumerate(said)]
        assert api.post(f"/api/conversations/{id}/turns/batch", json={"turns": turns}).is_success
    return id


def test_a_conversation_stays_in_its_place_when_it_is_renamed_pinned_or_rated(start, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/chat.db?synchronous=NORMAL"

    async def write() -> None:
        clock = FakeClock(NOON)
        async with palaver.open(url, tenant="default", clock=clock, embedder=None) as store:
            for title, days in (("Older", 3), ("Yesterday's", 1)):
                clock.set(NOON - timedelta(days=days))
                await (await store.conversation(title=title)).append("user", "Hi")

    done(write())
    tab = start(url, context={"timezone_id": "UTC"}).tab()
    tab.ask("Now.")
    expect(tab.rows).to_have_text(["Now.", "Yesterday's", "Older"])
    tab.choose("Older", "Rename")
    tab.list.get_by_label("Title").fill("Renamed")
    tab.list.get_by_label("Title").press("Enter")
    expect(tab.rows).to_have_text(["Now.", "Yesterday's", "Renamed"])
    tab.page.reload()
    expect(tab.rows).to_have_text(["Now.", "Yesterday's", "Renamed"])
    groups = tab.list.get_by_role("heading")
    expect(groups).to_have_text(["Today", "Yesterday", "Previous 7 days"])
    tab.choose("Renamed", "Pin")
    expect(groups).to_have_text(["Pinned", "Today", "Yesterday"])
    tab.choose("Renamed", "Unpin")
    expect(groups).to_have_text(["Today", "Yesterday", "Previous 7 days"])
    tab.choose("Renamed", "Archive")
    expect(tab.rows).to_have_text(["Now.", "Yesterday's"])
    tab.button("Archived (1)").click()
    expect(tab.rows).to_have_text(["Renamed"])
    tab.choose("Renamed", "Unarchive")
    expect(tab.rows).to_have_text(["Now.", "Yesterday's", "Renamed"])


def test_a_chat_that_was_opened_for_a_file_does_not_stay_empty(offline: App) -> None:
    tab = offline.tab()
    choose(tab, file("one.txt", b"1"))
    expect(tab.page).to_have_url(words("/c/"))
    tab.button("Remove one.txt").click()
    with tab.page.expect_response(lambda answer: answer.request.method == "DELETE"):
        tab.button("New chat", tab.list).click()
    expect(tab.list).to_contain_text("No conversations yet")
    with offline.api() as api:
        assert api.get("/api/conversations").json()["items"] == []


def test_undoing_a_deletion_leads_back_to_the_conversation(shared: App) -> None:
    id = talk_of(shared, "To be deleted", "Hi", "Hello")
    tab = shared.tab(f"/c/{id}")
    expect(tab.answers).to_have_count(1)
    tab.choose("To be deleted", "Delete")
    expect(tab.page).to_have_url(words("/"))
    expect(tab.answers).to_have_count(0)
    tab.button("Undo").click()
    expect(tab.page).to_have_url(words(f"/c/{id}"))
    expect(tab.answers).to_have_count(1)


def test_a_model_is_remembered_with_its_conversation(shared: App) -> None:
    one, two = talk_of(shared, "With reasoner", "Hi", "Hello"), talk_of(shared, "With chat", "Hi", "Hello")
    tab = shared.tab(f"/c/{one}")
    model = tab.page.get_by_label("Model", exact=True)
    with tab.page.expect_response(lambda answer: answer.request.method == "PATCH"):
        model.select_option("reasoner")
    tab.row("With chat").locator(".row-link").click()
    expect(tab.page).to_have_url(words(two))
    expect(model).to_have_value("chat")
    tab.row("With reasoner").locator(".row-link").click()
    expect(model).to_have_value("reasoner")
    tab.page.reload()
    expect(model).to_have_value("reasoner")
    assert shared.script
    tab.ask("Who are you?")
    assert shared.script.provider.bodies[-1]["model"] == "reasoner" or any(
        body["model"] == "reasoner" for body in shared.script.provider.bodies[-2:]
    )


def test_what_is_typed_after_opening_a_conversation_goes_into_the_message(shared: App) -> None:
    talk_of(shared, "Opened by a click", "Hi", "Hello")
    tab = shared.tab()
    tab.row("Opened by a click").locator(".row-link").click()
    expect(tab.answers).to_have_count(1)
    expect(tab.message).to_be_focused()
    tab.page.keyboard.type("Typed at once")
    expect(tab.message).to_have_value("Typed at once")


def test_the_palette_is_driven_by_keys_and_forgives_a_mistake(shared: App) -> None:
    id = talk_of(shared, "Name ideas for a bakery", "We spend the holiday in Lisbon.", "## Lisbon\n\nThe tram goes up.")
    talk_of(shared, "Another one", "Hi", "Hello")
    tab = shared.tab()
    keys = tab.page.keyboard
    keys.press("Control+k")
    keys.type("bakry")
    expect(tab.found.locator(".result")).to_have_text(["Name ideas for a bakery"])
    keys.press("Enter")
    expect(tab.page).to_have_url(words(id))
    expect(tab.message).to_be_focused()
    keys.press("Control+k")
    keys.type("holday")
    passage = tab.found.locator(".passage", has_text="holiday")
    expect(passage.locator("mark")).to_have_text(["holiday"])
    keys.press("ArrowDown")
    keys.press("ArrowUp")
    keys.press("Enter")
    expect(tab.page.locator(".item.is-found .bubble")).to_contain_text("holiday in Lisbon")
    keys.press("Control+k")
    keys.type("hloiday")  # near the beginning of the word
    expect(passage.locator("mark")).to_have_text(["holiday"])
    tab.search("haliday lisbon")  # found by the other word
    expect(passage.locator("mark")).to_have_text(["holiday", "Lisbon"])
    tab.search("tram")
    expect(tab.found.locator(".passage")).not_to_contain_text("##")
    tab.search("settings")
    expect(tab.found.get_by_role("option").first).to_contain_text("Settings")
    keys.press("Enter")
    expect(tab.page.get_by_role("heading", name="Settings")).to_be_visible()
    tab.button("Close").click()
    expect(tab.page).to_have_url(words(id))


def test_a_file_that_is_dropped_anywhere_is_attached(shared: App) -> None:
    tab = shared.tab(f"/c/{talk_of(shared, 'Dropped', 'Hi', 'Hello')}")
    expect(tab.answers).to_have_count(1)
    uploads = tab.page.get_by_label("Files to send").get_by_role("listitem")
    hand_over(tab, tab.list, "drop", "list.txt", b"1", "text/plain")
    expect(uploads).to_have_count(1)
    tab.button("Memory").click()
    panel = tab.page.get_by_role("complementary", name="Memory")
    hand_over(tab, panel, "drop", "panel.txt", b"2", "text/plain")
    expect(uploads).to_have_count(2)


def test_formulas_diagrams_tasks_and_emphasis_are_drawn(shared: App) -> None:
    answer = (
        "Inline $e^{i\\pi}$, \\(a^2\\), and it costs $5 or $10.\n\n$$\\frac{1}{2}$$\n\n\\[ \\vec{x} \\]\n\n"
        "- [x] done\n- [ ] to do\n\n中文：**“加粗”**文字。\n\n"
        "```mermaid\ngraph TD; A-->B;\n```\n\n```mermaid\nnot a diagram at all\n```"
    )
    tab = shared.tab(f"/c/{talk_of(shared, 'Formulas', 'Show me.', answer)}")
    shown = tab.answers.locator(".markdown")
    expect(shown.locator(".katex-html")).to_have_count(4)
    expect(shown.locator(".katex-display")).to_have_count(2)
    expect(shown).to_contain_text("it costs $5 or $10.")
    expect(shown.locator("strong")).to_have_text(["“加粗”"])
    tasks = shown.locator(".contains-task-list")
    assert tasks.evaluate("one => getComputedStyle(one).listStyleType") == "none"
    expect(tasks.get_by_role("img", name="done")).to_have_count(1)
    frame = shown.frame_locator("iframe").first
    expect(frame.locator("svg")).to_be_visible()
    expect(frame.locator(".node")).to_have_count(2)
    expect(shown.locator(".diagram")).to_have_count(1)  # the other one is shown as it was written
    expect(shown.locator(".code", has_text="not a diagram at all")).to_be_visible()
    box = shown.locator(".diagram iframe").get_attribute("sandbox")
    assert box == "allow-scripts"


def test_a_conversation_opens_by_itself_when_the_server_is_back(shared: App) -> None:
    id = talk_of(shared, "Away for a moment", "Hi", "Hello")
    tab = shared.tab()
    tab.page.route("**/turns?*", lambda route: route.abort())
    tab.row("Away for a moment").locator(".row-link").click()
    expect(tab.page.get_by_role("alert")).to_contain_text("Couldn't open this conversation")
    tab.page.unroute("**/turns?*")
    expect(tab.answers).to_have_count(1)
    assert id in tab.page.url


def test_a_question_without_a_reply_says_so_after_the_next_one(shared: App) -> None:
    assert shared.script
    shared.script.add(Fail(400, message="no", kind="invalid_request_error"), Say("Rice."))
    tab = shared.tab()
    tab.send("Are you there?")
    expect(tab.page.locator(".failure")).to_contain_text("refused the request")
    tab.send("What can I eat?")
    expect(tab.answers).to_have_count(1)
    expect(tab.page.locator(".item.is-user").first).to_contain_text("No reply.")
    expect(tab.page.locator(".item.is-user").last).not_to_contain_text("No reply.")


def test_the_next_message_waits_for_the_answer(shared: App, gate: threading.Event) -> None:
    assert shared.script
    shared.script.add(Say("One two three four.", hold_after=(2, gate)), Say("Second."))
    tab = shared.tab()
    tab.send("Count.")
    expect(tab.page.locator(".is-streaming")).to_contain_text("One two")
    tab.send("And then?")
    queue = tab.page.get_by_label("Messages to send next")
    expect(queue).to_contain_text("And then?")
    tab.send("Never mind.")
    tab.button("Remove the next message: Never mind.", queue).click()
    gate.set()
    expect(tab.answers).to_have_count(2)
    expect(tab.questions).to_have_text(["Count.", "And then?"])
    expect(queue).to_have_count(0)


def test_an_answer_that_was_stopped_can_be_continued_and_rated(shared: App, gate: threading.Event) -> None:
    assert shared.script
    shared.script.add(Say("One two three four.", hold_after=(2, gate)), Say("Five six."))
    tab = shared.tab()
    tab.send("Count.")
    expect(tab.page.locator(".is-streaming")).to_contain_text("One two")
    tab.button("Stop").click()
    tab.button("Continue").click()
    gate.set()
    expect(tab.answers.last).to_contain_text("Five six.")
    with tab.page.expect_response(lambda answer: answer.request.method == "PATCH"):
        tab.button("Good answer", tab.answers.last).click()
    tab.page.reload()
    expect(tab.button("Good answer", tab.answers.last)).to_have_attribute("aria-pressed", "true")


def test_pictures_are_previewed_and_a_file_shows_what_was_sent_of_it(shared: App) -> None:
    tab = shared.tab()
    choose(tab, file("photo.png", png(), "image/png"), file("lease.txt", b"The lease ends on 3 May.\nRent is 900."))
    tab.ask("Summarise this file for me.")
    files = tab.page.get_by_label("Files", exact=True)
    files.get_by_role("button", name=words("lease.txt")).click()
    dialog = tab.page.get_by_role("dialog", name="lease.txt")
    sent = dialog.get_by_role("region", name="What was sent to the model")
    expect(sent).to_contain_text("Sent to the model in full")
    expect(sent.locator(".words")).to_contain_text("The lease ends on 3 May.")
    tab.page.keyboard.press("Escape")
    files.get_by_role("button", name=words("photo.png")).click()
    picture = tab.page.get_by_role("dialog", name="photo.png").locator("img.picture")
    assert picture.evaluate("async one => (await one.decode(), one.naturalWidth)") == 24


def test_a_chat_is_shared_as_one_page(shared: App) -> None:
    hostile = "**Bold** <script>alert(1)</script> ![x](https://example.org/x.png)"
    tab = shared.tab(f"/c/{talk_of(shared, 'Shared', 'Hi <b>', hostile)}")
    expect(tab.answers).to_have_count(1)
    tab.button("Options for this conversation").click()
    with tab.page.expect_download() as saved:
        tab.page.get_by_role("menuitem", name="Share as a page").click()
    assert saved.value.suggested_filename == "Shared.html"
    text = Path(saved.value.path()).read_text()
    assert "<strong>Bold</strong>" in text
    assert "Hi &lt;b&gt;" in text
    assert "<script" not in text
    assert "<img" not in text


def test_a_shared_page_reads_like_the_chat(shared: App, tmp_path: Path) -> None:
    answer = (
        "Inline $e^{i\\pi}$ for $5.\n\n$$\\int x^2\\,dx$$\n\n$$\\broken{$$\n\n- [x] done\n- [ ] to do\n\n"
        "中文：**“加粗”**文字。\n\nمرحبا `code` بالعالم."
    )
    tab = shared.tab(f"/c/{talk_of(shared, 'Formulas to share', 'Show me.', answer)}")
    expect(tab.answers).to_have_count(1)
    tab.button("Options for this conversation").click()
    with tab.page.expect_download() as saved:
        tab.page.get_by_role("menuitem", name="Share as a page").click()
    path = tmp_path / "shared.html"
    saved.value.save_as(path)
    page = shared.context.new_page()
    page.goto(path.as_uri())
    expect(page.locator("math")).to_have_count(2)
    expect(page.locator("math[display=block]")).to_have_count(1)
    expect(page.locator("code").first).to_contain_text("\\broken{")
    expect(page.locator("strong")).to_have_text(["“加粗”"])
    tasks = page.locator(".contains-task-list")
    expect(tasks).to_contain_text("☑ done")
    assert tasks.evaluate("one => getComputedStyle(one).listStyleType") == "none"
    arabic = page.locator("p", has_text="مرحبا")
    assert arabic.evaluate("one => getComputedStyle(one).direction") == "rtl"


def test_an_unknown_address_shows_the_app(shared: App) -> None:
    tab = shared.tab("/nope/x")
    expect(tab.page.get_by_role("alert")).to_contain_text("Page not found")
    tab.errors.clear()  # the browser reports the status 404
    with shared.api() as api:
        for path, accept in (("/nope/x", "*/*"), ("/api/nope", "text/html")):
            refused = api.get(path, headers={"Accept": accept})
            assert refused.headers["content-type"] == "application/problem+json"


def test_a_message_about_an_error_does_not_cover_the_message_box(shared: App) -> None:
    tab = shared.tab()
    tab.message.fill("Half a thought")
    choose(tab, file("empty.txt", b""))
    toast, composer = tab.page.locator(".toast").bounding_box(), tab.page.locator(".composer").bounding_box()
    assert toast
    assert composer
    assert toast["y"] + toast["height"] <= composer["y"]
    middle = composer["x"] + composer["width"] / 2
    assert abs(toast["x"] + toast["width"] / 2 - middle) < 2


def test_a_main_button_can_be_read_under_the_pointer(shared: App) -> None:
    tab = shared.tab()
    button = tab.button("New chat").first
    before = button.evaluate("one => getComputedStyle(one).backgroundColor")
    button.hover()
    expect(button).to_have_css("filter", "brightness(1.08)")
    expect(button).to_have_css("background-color", before)


def test_the_prompt_of_a_chat_has_its_own_policy_and_budget(shared: App) -> None:
    tab = shared.tab()
    tab.ask("Now.")
    tab.button("Memory").first.click()
    tab.page.get_by_role("tab", name="Rules").click()
    tab.page.get_by_label("Policy").select_option("recall-heavy")
    tab.page.get_by_label("Budget in tokens").fill("2000")
    tab.button("Save").click()
    expect(tab.page.get_by_text("Saved.")).to_be_visible()
    with shared.api() as api:
        settings = api.get(f"/api/conversations/{tab.conversation}").json()["settings"]
    assert settings["context"] == {"policy": "recall-heavy", "token_budget": 2_000}
