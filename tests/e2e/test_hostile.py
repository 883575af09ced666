"""Text of a model or another person runs nothing, loads nothing and navigates nowhere by itself."""

from __future__ import annotations

from playwright.sync_api import expect

from palaver.testing.providers import Say
from tests.e2e.conftest import App
from tests.e2e.test_files import choose, file, png

MARKDOWN = """
<script>window.hacked = 1</script>
<img src=x onerror="window.hacked = 1">
<svg onload="window.hacked = 1"></svg>
<iframe src="javascript:window.hacked = 1"></iframe>
<a href="javascript:window.hacked = 1">raw</a>
<style>body { display: none }</style>

[script](javascript:window.hacked=1) [data](data:text/html,<script>window.hacked=1</script>)
[vb](vbscript:x) [relative](/api/settings) [good](https://example.org/page) [mail](mailto:ada@example.org)

![remote](https://example.org/spy.png) ![bad](javascript:window.hacked=1) ![own](/api/settings)

```html"><img src=x onerror=window.hacked=1>
<script>window.hacked = 1</script>
```

| <img src=x onerror="window.hacked=1"> | b |
|---|---|
| <script>window.hacked=1</script> | [x](javascript:window.hacked=1) |
"""
NAMES = ['<img src=x onerror="window.hacked=1">.txt', '"; window.hacked=1; ".txt', "${window.hacked=1}.txt"]
TURNING = "photo\u202egnp.txt"  # shown as photo.txt.png


def test_hostile_markdown_does_nothing(scripted: App) -> None:
    assert scripted.script
    scripted.script.add(Say([MARKDOWN]))
    tab = scripted.tab()
    tab.ask("Be nasty. <script>window.hacked = 1</script>")
    answer = tab.answers.locator(".markdown")
    hrefs = answer.locator("a").evaluate_all("all => all.map(one => one.getAttribute('href'))")
    assert hrefs == ["https://example.org/page", "mailto:ada@example.org"]
    for link in answer.locator("a").all():
        rel = link.get_attribute("rel") or ""
        assert "noopener" in rel
        assert "noreferrer" in rel
    for element in ("script", "iframe", "style", "svg:not(.icon)", "img"):
        expect(answer.locator(element)).to_have_count(0)
    tab.page.reload()
    expect(tab.answers).to_have_count(1)
    assert tab.page.evaluate("window.hacked") is None


def test_a_remote_picture_waits_for_a_click_and_gets_a_frame_of_its_own(scripted: App) -> None:
    assert scripted.script
    asked: list[str] = []
    scripted.script.add(Say(["![a chart](http://pictures.example/chart.png)"]))
    tab = scripted.tab()
    scripted.context.route(
        "http://pictures.example/**",
        lambda route: (asked.append(route.request.url), route.fulfill(body=png(), content_type="image/png")),
    )
    tab.ask("Draw.")
    waiting = tab.answers.get_by_role("button", name="a chart from pictures.example: click to load")
    expect(waiting).to_be_visible()
    assert not asked
    waiting.click()
    picture = tab.page.frame_locator("iframe[title='a chart']").locator("img")
    expect(picture).to_be_visible()
    assert asked == ["http://pictures.example/chart.png"]
    tab.errors = [one for one in tab.errors if "pictures.example" not in one]  # this one was asked for


def test_hostile_titles_and_names_are_shown_as_they_are(offline: App) -> None:
    title = '<img src=x onerror="window.hacked=1"> {{7*7}} ${1}'
    with offline.api() as api:
        id = api.post("/api/conversations", json={"title": title}).json()["id"]
        turn = {"role": "user", "actor": '<b onclick="window.hacked=1">ada</b>', "content": title}
        assert api.post(f"/api/conversations/{id}/turns", json=turn).is_success
    tab = offline.tab(f"/c/{id}")
    expect(tab.rows).to_have_text([title])
    expect(tab.page.get_by_role("heading", name=title)).to_be_visible()
    expect(tab.page.locator(".actor")).to_contain_text("<b onclick")
    expect(tab.page).to_have_title(f"{title} · Palaver")
    tab.search("onerror")
    expect(tab.found.locator(".passage")).to_contain_text("<img src=x")
    assert tab.page.evaluate("window.hacked") is None


def test_hostile_file_names_are_names(offline: App) -> None:
    tab = offline.tab()
    choose(tab, *(file(name, b"x") for name in (*NAMES, TURNING)))
    refused = tab.page.get_by_label("Files to send").get_by_role("alert")
    expect(refused).to_contain_text("control characters")
    # A message that waits for its files is not sent by itself when one of them was refused.
    expect(tab.page.get_by_label("Files to send").get_by_role("progressbar")).to_have_count(0)
    tab.ask("Files.")
    shown = tab.page.get_by_label("Files", exact=True)
    expect(shown.get_by_role("button")).to_have_count(3)
    expect(shown).to_contain_text("<img src=x")
    tab.page.reload()
    expect(shown.get_by_role("button")).to_have_count(3)
    assert tab.page.evaluate("window.hacked") is None


def test_the_page_may_run_and_load_its_own_only(offline: App) -> None:
    tab = offline.tab()
    answer = tab.page.request.get(tab.url)
    policy = answer.headers["content-security-policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    blocked = tab.page.evaluate(
        """() => new Promise((done) => {
            document.addEventListener("securitypolicyviolation", (event) => done(event.effectiveDirective));
            const script = document.createElement("img");
            script.src = "http://127.0.0.1:9/x.png";
            document.body.append(script);
        })"""
    )
    assert blocked == "img-src"
    tab.errors.clear()  # that was the browser, saying so


def test_sources_lead_nowhere_dangerous(offline: App) -> None:
    with offline.api() as api:
        id = api.post("/api/conversations", json={}).json()["id"]
        sources = [
            {"url": "javascript:window.hacked=1", "title": "bad"},
            {"url": "https://example.org/", "title": "good"},
        ]
        turn = {"role": "assistant", "content": "See.", "sources": sources}
        assert api.post(f"/api/conversations/{id}/turns", json=turn).is_success
    tab = offline.tab(f"/c/{id}")
    links = tab.page.get_by_label("Sources").get_by_role("link")
    expect(links).to_have_count(1)
    expect(links).to_have_attribute("href", "https://example.org/")
