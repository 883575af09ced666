"""Files: by the paperclip, dropped, pasted; shown again; each refusal."""

from __future__ import annotations

import base64
import hashlib
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import Locator, expect

from tests.e2e.conftest import App, Tab, words


def png(width: int = 24, height: int = 16) -> bytes:
    """A small picture, all of one colour."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + b"\x0f\x6f\x67" * width for _ in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def choose(tab: Tab, *files: Any) -> None:
    with tab.page.expect_file_chooser() as chooser:
        tab.button("Attach files").click()
    chooser.value.set_files(list(files))


def file(name: str, data: bytes, kind: str = "text/plain") -> dict[str, Any]:
    return {"name": name, "mimeType": kind, "buffer": data}


def hand_over(tab: Tab, target: Locator, event: str, name: str, data: bytes, kind: str) -> None:
    """Dispatch the events of a browser when files are dropped or pasted."""
    target.evaluate(
        """(target, [event, name, data, kind]) => {
            const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
            const transfer = new DataTransfer();
            transfer.items.add(new File([bytes], name, { type: kind }));
            const make = event === "paste"
                ? () => new ClipboardEvent("paste", { clipboardData: transfer, bubbles: true, cancelable: true })
                : (kind) => new DragEvent(kind, { dataTransfer: transfer, bubbles: true, cancelable: true });
            const kinds = event === "paste" ? ["paste"] : ["dragenter", "dragover", "drop"];
            for (const one of kinds) target.dispatchEvent(make(one));
        }""",
        [event, name, base64.b64encode(data).decode(), kind],
    )


def sent_files(app: App, tab: Tab) -> list[dict[str, Any]]:
    with app.api() as api:
        turns = api.get(f"/api/conversations/{tab.conversation}/turns").json()["items"]
    return [one for turn in turns for one in turn["attachments"]]


def test_files_come_by_paperclip_by_drop_and_by_paste(offline: App) -> None:
    tab = offline.tab()
    uploads = tab.page.get_by_label("Files to send")
    choose(tab, file("notes.txt", b"buy rice"))
    expect(uploads.get_by_role("listitem")).to_have_count(1)
    hand_over(tab, tab.page.get_by_role("main"), "drop", "dropped.png", png(), "image/png")
    expect(uploads.get_by_role("listitem")).to_have_count(2)
    hand_over(tab, tab.message, "paste", "image.png", png(30, 30), "image/png")
    expect(uploads.get_by_role("listitem")).to_have_count(3)
    expect(uploads.get_by_role("progressbar")).to_have_count(0)
    tab.ask("Look at these.")
    expect(uploads).to_have_count(0)
    found = sent_files(offline, tab)
    assert [one["filename"] for one in found] == ["notes.txt", "dropped.png", "image.png"]
    assert found[1]["sha256"] == hashlib.sha256(png()).hexdigest()
    shown = tab.page.get_by_label("Files", exact=True)
    expect(shown.get_by_role("img")).to_have_count(2)
    tab.page.reload()
    expect(shown.get_by_role("img")).to_have_count(2)
    assert shown.get_by_role("img").first.evaluate("async one => (await one.decode(), one.naturalWidth)") == 24
    shown.get_by_role("button", name=words("notes.txt")).click()
    with tab.page.expect_download() as saved:
        tab.button("Save notes.txt").click()
    assert Path(saved.value.path()).read_bytes() == b"buy rice"
    assert saved.value.suggested_filename == "notes.txt"


def test_a_file_can_be_taken_out_again(offline: App) -> None:
    tab = offline.tab()
    choose(tab, file("one.txt", b"1"), file("two.txt", b"2"))
    tab.button("Remove one.txt").click()
    tab.ask("Just the second.")
    assert [one["filename"] for one in sent_files(offline, tab)] == ["two.txt"]


def test_what_is_written_stays_when_a_file_makes_the_chat_a_conversation(offline: App) -> None:
    tab = offline.tab()
    tab.message.fill("Half a thought")
    choose(tab, file("one.txt", b"1"))
    expect(tab.page).to_have_url(words("/c/"))
    expect(tab.message).to_have_value("Half a thought")
    tab.page.reload()
    expect(tab.message).to_have_value("Half a thought")


def test_files_stay_behind_when_another_conversation_is_opened(offline: App) -> None:
    tab = offline.tab()
    tab.ask("First.")
    choose(tab, file("one.txt", b"1"))
    expect(tab.page.get_by_label("Files to send")).to_have_count(1)
    tab.button("New chat").click()
    expect(tab.page.get_by_label("Files to send")).to_have_count(0)


def test_a_file_may_be_the_whole_message(offline: App) -> None:
    tab = offline.tab()
    expect(tab.button("Send")).to_be_disabled()
    choose(tab, file("one.txt", b"1"))
    tab.button("Send").click()
    expect(tab.answers).to_have_count(1)
    assert [one["filename"] for one in sent_files(offline, tab)] == ["one.txt"]


def test_what_is_too_large_or_empty_is_refused_before_it_is_sent(offline: App, tmp_path: Path) -> None:
    large = tmp_path / "large.bin"
    with large.open("wb") as sparse:
        sparse.truncate(50_000_001)
    tab = offline.tab()
    choose(tab, str(large))
    expect(tab.page.locator(".toast.is-problem")).to_contain_text("is too large: 50.0 MB. The limit is 50.0 MB.")
    choose(tab, file("nothing.txt", b""))
    expect(tab.page.locator(".toast.is-problem").nth(1)).to_contain_text("is empty")
    expect(tab.page.get_by_label("Files to send")).to_have_count(0)


def test_what_the_server_refuses_says_why(start: Callable[..., App]) -> None:
    tab = start(max_upload=1_000).tab()
    choose(tab, file("big.txt", b"x" * 2_000))
    refused = tab.page.get_by_label("Files to send").get_by_role("alert")
    expect(refused).to_contain_text("1,000 bytes")
    tab.message.fill("Without it, then.")
    tab.message.press("Enter")
    expect(tab.answers).to_have_count(1)
    expect(tab.page.get_by_label("Files", exact=True)).to_have_count(0)


def test_what_is_not_taken_or_not_what_it_says_is_refused_with_the_reason(offline: App) -> None:
    tab = offline.tab()
    choose(tab, file("program.exe", b"MZ"), file("fake.png", b"just words", "image/png"))
    refused = tab.page.get_by_label("Files to send").get_by_role("alert")
    expect(refused).to_contain_text(["isn't supported", "its content is text/plain"])
    expect(tab.button("Send")).to_be_disabled()


def test_more_than_ten_files_are_too_many(offline: App) -> None:
    tab = offline.tab()
    choose(tab, *(file(f"{n}.txt", b"x") for n in range(11)))
    expect(tab.page.locator(".toast.is-problem")).to_contain_text("At most 10 files")
    expect(tab.page.get_by_label("Files to send").get_by_role("listitem")).to_have_count(10)


def edit_message(tab: Tab, text: str) -> Locator:
    """Open the form in which the last message is edited, and write into it."""
    message = tab.page.locator(".item.is-user").last
    message.hover()
    tab.button("Edit", message).click()
    tab.page.get_by_label("Edit message").fill(text)
    return tab.page.locator(".edit-form")


def test_an_edited_message_keeps_its_files(scripted: App) -> None:
    assert scripted.script
    tab = scripted.tab()
    choose(tab, file("keep-me.txt", b"buy rice"), file("picture.png", png(), "image/png"))
    tab.ask("What is in these?")
    form = edit_message(tab, "What is in these files?")
    expect(form.get_by_label("Attached files").get_by_role("listitem")).to_have_count(2)
    tab.page.keyboard.press("Enter")
    expect(tab.page.get_by_role("group", name="Versions of this message")).to_contain_text("2 / 2")
    expect(tab.answers).to_have_count(1)
    shown = tab.page.get_by_label("Files", exact=True)
    expect(shown).to_contain_text("keep-me.txt")
    expect(shown.get_by_role("img")).to_have_count(1)
    found = sent_files(scripted, tab)
    assert [one["filename"] for one in found] == ["keep-me.txt", "picture.png"]
    assert found[0]["sha256"] == hashlib.sha256(b"buy rice").hexdigest()
    last = scripted.script.provider.bodies[-1]["messages"][-1]["content"]
    assert "keep-me.txt" in str(last)
    tab.button("Regenerate").click()
    expect(tab.page.get_by_role("group", name="Versions of this answer")).to_contain_text("2 / 2")
    expect(tab.answers).to_have_count(1)
    assert [one["filename"] for one in sent_files(scripted, tab)] == ["keep-me.txt", "picture.png"]


def test_a_file_can_be_removed_while_its_message_is_edited(offline: App) -> None:
    tab = offline.tab()
    choose(tab, file("one.txt", b"1"), file("two.txt", b"2"))
    tab.ask("Both.")
    form = edit_message(tab, "Just the second.")
    tab.button("Remove one.txt", form).click()
    expect(form.get_by_role("listitem")).to_have_count(1)
    tab.button("Send", form).click()
    expect(tab.page.get_by_role("group", name="Versions of this message")).to_contain_text("2 / 2")
    expect(tab.button("Send")).to_be_visible()  # versions are not switched while an answer is being written
    assert [one["filename"] for one in sent_files(offline, tab)] == ["two.txt"]
    tab.button("Previous version of this message").click()
    expect(tab.page.get_by_label("Files", exact=True)).to_contain_text("one.txt")


def test_a_message_that_cannot_be_sent_keeps_its_files(offline: App) -> None:
    tab = offline.tab()
    failure = tab.page.locator(".is-sending .failure")
    choose(tab, file("one.txt", b"1"))
    tab.page.route("**/generate", lambda route: route.abort())
    tab.send("Look at this.")
    tab.button("Edit message", failure).click()
    expect(tab.message).to_have_value("Look at this.")
    expect(tab.page.get_by_label("Files to send")).to_contain_text("one.txt")
    tab.message.press("Enter")
    expect(failure).to_be_visible()
    tab.page.unroute("**/generate")
    tab.button("Send again", failure).click()
    expect(tab.answers).to_have_count(1)
    assert [one["filename"] for one in sent_files(offline, tab)] == ["one.txt"]


def test_an_edit_that_cannot_be_sent_keeps_its_files(offline: App) -> None:
    tab = offline.tab()
    failure = tab.page.locator(".is-sending .failure")
    choose(tab, file("one.txt", b"1"), file("two.txt", b"2"))
    tab.ask("Look at these.")
    form = edit_message(tab, "Look at this one.")
    tab.button("Remove two.txt", form).click()
    tab.page.route("**/generate", lambda route: route.abort())
    tab.button("Send", form).click()
    tab.button("Edit message", failure).click()
    expect(tab.page.get_by_label("Edit message")).to_have_value("Look at this one.")
    expect(form.get_by_role("listitem")).to_contain_text(["one.txt"])
    tab.button("Send", form).click()
    expect(failure).to_be_visible()
    tab.page.unroute("**/generate")
    tab.button("Send again", failure).click()
    expect(tab.page.get_by_role("group", name="Versions of this message")).to_contain_text("2 / 2")
    expect(tab.answers).to_have_count(1)
    assert [one["filename"] for one in sent_files(offline, tab)] == ["one.txt"]


def test_a_message_that_waits_for_its_file_takes_nothing_else_along(offline: App) -> None:
    tab = offline.tab()
    tab.ask("Here.")
    tab.message.fill("A draft")
    tab.page.keyboard.press("Control+Shift+O")
    expect(tab.message).to_have_value("")
    tab.page.route("**/attachments?*", lambda route: None)  # on its way for ever
    choose(tab, file("notes.txt", b"x"))
    tab.send("With a file.")
    expect(tab.page.locator(".send .spinner")).to_be_visible()
    tab.row("Here").locator(".row-link").click()
    expect(tab.message).to_have_value("A draft")
    expect(tab.page.get_by_label("Files to send")).to_have_count(0)
    expect(tab.button("Send")).to_be_enabled()
    expect(tab.questions).to_have_text(["Here."])
