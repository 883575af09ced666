"""The inspector ("What the model saw") shows what the API returns, for every kind of answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Locator, expect

from palaver.testing.providers import LoopbackProvider, Say
from tests.e2e.conftest import App, Script, Tab, words
from tests.e2e.test_for_everyone import PHONE, violations

NAMES = {
    "memory": "Memory",
    "summaries": "Summaries",
    "omission note": "Note on what is missing",
    "recent": "Recent messages",
    "recalled": "Recalled messages",
    "current": "Your message",
}
EARLY = "I'm allergic to peanuts."
TALK = "Today it was {n}, and we spoke of rice, of rain and of the long way home from the market."


def a_long_talk(app: App, exchanges: int = 40) -> str:
    """A conversation with something to recall at its start. It is not summarised by itself."""
    late = {"compaction": {"trigger_turns": 100_000, "trigger_tokens": 10_000_000}}
    with app.api() as api:
        id: str = api.post("/api/conversations", json={"title": "Long", "settings": late}).json()["id"]
        said = [("user", EARLY), ("assistant", "No peanuts, then.")]
        for n in range(exchanges):
            said += [("user", TALK.format(n=n)), ("assistant", f"So it was {n}.")]
        turns = [{"role": role, "content": content} for role, content in said]
        assert api.post(f"/api/conversations/{id}/turns/batch", json={"turns": turns}).status_code == 201
    return id


@pytest.fixture
def small(start: Callable[..., App]) -> App:
    """Offline, with a budget that a long talk does not fit."""
    return start(generate={"token_budget": 1_500})


def ask_on(tab: Tab, text: str) -> None:
    """Ask in a thread that is still being read, page by page."""
    expect(tab.answers.last).to_be_visible()
    tab.send(text)
    expect(tab.page.locator(f'.item.is-user:has-text("{text}") + .item.is-assistant .inspect')).to_be_visible()
    expect(tab.button("Send")).to_be_visible()


def open_drawer(tab: Tab, answer: Locator | None = None) -> Locator:
    (answer or tab.answers.last).get_by_role("button", name="What the model saw").click()
    drawer = tab.page.get_by_role("complementary", name="What the model saw")
    expect(drawer.locator(".budget-bar")).to_be_visible()
    return drawer


def number(value: int) -> str:
    return f"{value:,}"


def shows(drawer: Locator, explanation: dict[str, Any]) -> None:
    """Every figure of an explanation stands in the drawer."""
    expect(drawer.locator(".spent")).to_have_text(
        f"{number(explanation['tokens'])} of {number(explanation['budget'])} tokens"
    )
    blocks = drawer.locator(".block > summary")
    expect(blocks.locator(".figure")).to_have_text([number(block["tokens"]) for block in explanation["blocks"]])
    expect(blocks.locator(".block-name")).to_contain_text([NAMES[block["kind"]] for block in explanation["blocks"]])
    left = drawer.locator(".left-out li")
    expect(left).to_have_count(len(explanation["left_out"]))
    for line, one in zip(left.all(), explanation["left_out"], strict=True):
        expect(line).to_contain_text(f"{number(one['turns'])} message")
        expect(line).to_contain_text(one["reason"])
    verbatim, total = explanation["turns"]["verbatim"], explanation["turns"]["total"]
    expect(drawer).to_contain_text(f"{number(verbatim)} of {number(total)} messages in full")


def last_request(app: App, conversation: str) -> dict[str, Any]:
    with app.api() as api:
        found = api.get(f"/api/conversations/{conversation}/requests").json()["items"]
    answers: list[dict[str, Any]] = [one for one in found if one["turn"]]
    return answers[-1]


def test_its_figures_are_those_of_the_api(start: Callable[..., App], provider: LoopbackProvider) -> None:
    models = {"chat": provider.models("test", price={"input": 2, "output": 10})["chat"]}
    app = start(model="chat", models=models, generate={"token_budget": 1_500})
    app.script = Script(provider)
    tab = app.tab(f"/c/{a_long_talk(app)}")
    ask_on(tab, "Hello?")
    ask_on(tab, "What am I allergic to?")
    drawer = open_drawer(tab)
    record = last_request(app, tab.conversation)
    explanation, usage = record["explanation"], record["response"]["usage"]
    assert explanation["left_out"]
    assert "recalled" in [block["kind"] for block in explanation["blocks"]]
    shows(drawer, explanation)
    figures = drawer.get_by_role("region", name="Usage, cost and time")
    expect(figures).to_contain_text(f"{number(usage['prompt'])} tokens")
    expect(figures).to_contain_text(f"{number(usage['completion'])} token")
    expect(figures).to_contain_text(words(f"${record['response']['cost']:.2g}"))
    expect(figures).to_contain_text("stop")
    share = f"{int(explanation['identical_prefix'] * 100 + 0.5)}%"
    expect(drawer.get_by_role("region", name="Reused from the last prompt")).to_contain_text(share)
    outbound = drawer.get_by_role("region", name="Request", exact=True)
    expect(outbound).not_to_contain_text("previous_response_id")
    outbound.get_by_text("The JSON that was sent").click()
    assert json.loads(outbound.locator("pre").inner_text()) == record["body"]
    assert record["body"] in provider.bodies  # a title may have been asked for since
    app.context.grant_permissions(["clipboard-read", "clipboard-write"])
    outbound.get_by_role("button", name="Copy the request").click()
    expect(outbound.get_by_role("button", name="Copied")).to_be_visible()
    assert json.loads(tab.page.evaluate("navigator.clipboard.readText()")) == record["body"]


def test_a_block_opens_to_its_turns_reasons_and_scores(small: App) -> None:
    tab = small.tab(f"/c/{a_long_talk(small)}")
    ask_on(tab, "What am I allergic to?")
    drawer = open_drawer(tab)
    recalled = drawer.locator(".block", has_text="Recalled messages")
    recalled.locator("summary").click()
    expect(recalled).to_contain_text("found for this message")
    line = recalled.locator("li", has_text=EARLY)
    blocks = last_request(small, tab.conversation)["explanation"]["blocks"]
    scores = next(block["scores"] for block in blocks if block["kind"] == "recalled")
    expect(line.get_by_label("Score")).to_contain_text(f"score{scores[0]['score']:.2f}")
    expect(line.get_by_label("Score")).to_contain_text(f"words+{scores[0]['parts']['lexical']:.2f}")
    line.get_by_role("button").click()  # far back: it is not on the page yet
    expect(tab.page.locator(".item.is-found .bubble")).to_have_text(EARLY)
    expect(drawer).to_be_visible()


def test_the_words_of_memory_and_summaries_are_those_that_were_sent(small: App) -> None:
    id = a_long_talk(small)
    with small.api() as api:
        api.post(f"/api/conversations/{id}/summarize")
        api.post(f"/api/conversations/{id}/memory/goals", json={"text": "Eat well <b>and</b> cheaply"})
        summary = api.get(f"/api/conversations/{id}/summaries").json()["items"][0]["text"]
    tab = small.tab(f"/c/{id}")
    ask_on(tab, "What am I allergic to?")
    drawer = open_drawer(tab)
    for name, text in (("Memory", "Eat well <b>and</b> cheaply"), ("Summaries", summary.splitlines()[0])):
        block = drawer.locator(".block", has=tab.page.get_by_text(name, exact=True))
        block.locator("summary").click()
        expect(block.locator(".words")).to_contain_text(text)


def test_another_budget_and_policy_are_shown_as_the_slider_moves(offline: App) -> None:
    id = a_long_talk(offline)
    tab = offline.tab(f"/c/{id}")
    ask_on(tab, "What am I allergic to?")
    drawer = open_drawer(tab)
    sent = last_request(offline, id)["explanation"]
    slider = drawer.get_by_role("slider", name="Budget")
    slider.fill("4")  # 2,000 tokens
    expect(slider).to_have_attribute("aria-valuetext", "2,000 tokens")
    asked = {"token_budget": 2_000, "policy": sent["policy"], "message": "What am I allergic to?", "preview": True}
    with offline.api() as api:
        would_be = api.post(f"/api/conversations/{id}/context", json=asked).json()["explanation"]
        shows(drawer, would_be)
        drawer.get_by_label("Policy").select_option("last-20")
        asked |= {"policy": "last-20"}
        shows(drawer, api.post(f"/api/conversations/{id}/context", json=asked).json()["explanation"])
        drawer.get_by_role("button", name="Back to what was sent").click()
        shows(drawer, sent)
        assert api.get(f"/api/conversations/{id}/summaries").json()["items"] == []


def test_a_budget_that_is_too_small_says_so(offline: App) -> None:
    tab = offline.tab()
    tab.ask("Rice. " * 400)
    drawer = open_drawer(tab)
    drawer.get_by_role("slider").fill("0")
    expect(drawer.get_by_role("alert")).to_contain_text("250")
    drawer.get_by_role("slider").fill("8")
    expect(drawer.get_by_role("alert")).to_have_count(0)
    expect(drawer.locator(".spent")).to_contain_text("of 8,000 tokens")


def test_each_round_of_tools_has_a_prompt_of_its_own(scripted: App) -> None:
    assert scripted.script
    scripted.script.add(Say("", calls=[("recall", {"query": "nuts"})]), Say("No peanuts."))
    tab = scripted.tab()
    tab.ask("What can I eat?")
    drawer = open_drawer(tab)
    with scripted.api() as api:
        found = api.get(f"/api/conversations/{tab.conversation}/requests").json()["items"]
    first, second = [one["explanation"]["tokens"] for one in found if one["turn"]]
    rounds = drawer.get_by_role("group", name="Requests for this answer")
    expect(rounds.get_by_role("button")).to_have_text(["Round 1recall", "Answer"])
    expect(drawer.locator(".spent strong")).to_have_text(number(second))
    rounds.get_by_role("button").first.click()
    expect(drawer.locator(".spent strong")).to_have_text(number(first))


def test_going_on_from_a_providers_memory_is_said(start: Callable[..., App], provider: LoopbackProvider) -> None:
    app = start(model="chat", models={"chat": provider.models()["responses"]})
    tab = app.tab()
    tab.ask("One?")
    tab.ask("Two?")
    expect(open_drawer(tab, tab.answers.first)).not_to_contain_text("previous_response_id")
    tab.button("Close").click()
    expect(open_drawer(tab)).to_contain_text("previous_response_id")


def test_an_answer_that_was_not_made_here_has_no_record_and_says_so(offline: App) -> None:
    id = a_long_talk(offline, 2)
    tab = offline.tab(f"/c/{id}")
    tab.answers.last.hover()
    drawer = open_drawer(tab)
    expect(drawer).to_contain_text("There is no request on record")
    expect(drawer.locator(".spent")).to_contain_text("of 8,000 tokens")
    expect(drawer.get_by_text("The JSON that was sent")).to_have_count(0)


def test_a_body_that_was_deleted_is_not_shown(offline: App) -> None:
    tab = offline.tab()
    tab.ask("My secret is zebra.")
    tab.ask("And now?")
    with offline.api() as api:
        turns = api.get(f"/api/conversations/{tab.conversation}/turns").json()["items"]
        assert api.delete(f"/api/conversations/{tab.conversation}/turns/{turns[0]['id']}").status_code in (202, 204)
    expect(tab.page.locator(".item", has_text="zebra")).to_have_count(0)  # and nothing moves any more
    drawer = open_drawer(tab)
    expect(drawer).to_contain_text("The request was deleted")
    expect(drawer).not_to_contain_text("zebra")


def test_what_went_wrong_is_said_and_can_be_tried_again(offline: App) -> None:
    tab = offline.tab()
    tab.ask("Well?")
    tab.page.route("**/requests*", lambda route: route.abort())
    tab.button("What the model saw").click()
    alert = tab.page.get_by_role("complementary").get_by_role("alert")
    expect(alert).to_be_visible()
    tab.page.unroute("**/requests*")
    alert.get_by_role("button", name="Try again").click()
    expect(tab.page.locator(".budget-bar")).to_be_visible()


def test_keys_open_read_and_close_it(offline: App) -> None:
    tab = offline.tab()
    tab.ask("Well?")
    opener = tab.button("What the model saw")
    opener.focus()
    tab.page.keyboard.press("Enter")
    drawer = tab.page.get_by_role("complementary", name="What the model saw")
    expect(drawer.get_by_role("heading", name="What the model saw")).to_be_focused()
    expect(drawer.locator(".budget-bar")).to_be_visible()
    tab.page.keyboard.press("Tab")
    tab.page.keyboard.press("Tab")
    expect(drawer.locator(".block > summary").first).to_be_focused()
    tab.page.keyboard.press("Enter")
    expect(drawer.locator(".block-inside").first).to_be_visible()
    tab.page.keyboard.press("Escape")
    expect(drawer).to_have_count(0)
    expect(opener).to_be_focused()


def test_on_a_phone_it_fills_the_page_and_gives_way_to_the_turn(start: Callable[..., App]) -> None:
    app = start(context=PHONE)
    tab = app.tab(f"/c/{a_long_talk(app, 4)}")
    ask_on(tab, "What am I allergic to?")
    drawer = open_drawer(tab)
    box = drawer.bounding_box()
    assert box is not None
    assert (box["width"], box["height"]) == (390, 844)
    assert tab.page.evaluate("document.scrollingElement.scrollWidth") <= 390
    assert not violations(tab.page)
    drawer.locator(".block", has_text="Recent messages").locator("summary").tap()
    drawer.get_by_role("button", name=EARLY).tap()
    expect(drawer).to_have_count(0)
    expect(tab.page.locator(".item.is-found .bubble")).to_have_text(EARLY)


def test_axe_finds_nothing_serious_in_it(small: App) -> None:
    tab = small.tab(f"/c/{a_long_talk(small)}")
    ask_on(tab, "What am I allergic to?")
    drawer = open_drawer(tab)
    for block in drawer.locator(".block > summary").all():
        block.click()
    drawer.get_by_text("The JSON that was sent").click()
    expect(drawer.locator(".turn-line").first).to_be_visible()
    drawer.get_by_role("slider").fill("4")
    expect(drawer.locator(".spent")).to_contain_text("of 2,000 tokens")
    assert not violations(tab.page)
