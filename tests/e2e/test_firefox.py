"""The long form of the browser tests: the app in Firefox, driven over WebDriver BiDi (`make firefox`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from palaver.server.settings import ServerSettings
from tests.e2e.browser import why_not
from tests.e2e.conftest import done
from tests.e2e.firefox import Firefox, browsing, firefox
from tests.server.conftest import Running, running

pytestmark = pytest.mark.slow
ANSWER = (
    "Inline $e^{i\\pi}$ and it costs $5.\n\n| one | two |\n|---|---|\n| " + "wide " * 60 + " | 2 |\n\n"
    "```python\n" + "x = 1  # " + "long " * 60 + "\n```\n\nمرحبا بالعالم\n\n```mermaid\ngraph TD; A-->B;\n```"
)
OVERFLOW = "document.scrollingElement.scrollWidth - innerWidth"
ANSWERS = "document.querySelectorAll('.item.is-assistant .actions').length"


def test_a_chat_can_be_had_in_firefox(tmp_path: Path) -> None:
    if firefox() is None:
        pytest.skip("there is no Firefox on this machine")
    if reason := why_not():
        pytest.skip(reason)
    settings = ServerSettings(url=f"sqlite:///{tmp_path}/chat.db", embedder="none")
    with running(settings) as server:
        done(_chat(server, tmp_path / "profile"))


async def _chat(server: Running, profile: Path) -> None:
    profile.mkdir()
    with server.client() as api:
        id = api.post("/api/conversations", json={"title": "Formulas, tables and a long title " * 2}).json()["id"]
        turns = [{"role": "user", "content": "Show me."}, {"role": "assistant", "content": ANSWER}]
        assert api.post(f"/api/conversations/{id}/turns/batch", json={"turns": turns}).is_success
    async with browsing(profile) as tab:
        await tab.open(server.url)
        await tab.wait("document.activeElement?.id === 'message'")
        await tab.type("I'm allergic to peanuts.")
        await tab.press("Enter")
        await tab.wait(f"{ANSWERS} === 1")
        await tab.type("What am I allergic to?")
        await tab.press("Enter")
        await tab.wait(f"{ANSWERS} === 2")
        assert "allergic to peanuts" in await tab.value(
            "[...document.querySelectorAll('.markdown')].at(-1).textContent"
        )
        await tab.press("Control", "k")
        await tab.wait("document.querySelector('.palette') !== null")
        await tab.type("formuals")  # with a mistake
        await tab.wait("document.querySelectorAll('.palette .result').length === 1")
        await tab.press("Enter")
        await tab.wait(f"location.pathname === '/c/{id}' && {ANSWERS} === 1")
        await _is_drawn(tab)
        for width in (390, 768, 1280):
            await tab.size(width, 800)
            await tab.wait(f"innerWidth === {width}")
            assert await tab.value(OVERFLOW) <= 0
            right = await tab.value("document.querySelector('.send').getBoundingClientRect().right")
            assert right <= width


async def _is_drawn(tab: Firefox) -> None:
    await tab.wait("document.querySelectorAll('.katex-html').length === 1")
    await tab.wait("document.querySelector('.diagram iframe')?.className === ''")  # the frame reported its height
    direction = (
        "getComputedStyle([...document.querySelectorAll('.markdown p')].find((one) => /مرحبا/.test(one.textContent)))"
    )
    assert await tab.value(f"{direction}.direction") == "rtl"
