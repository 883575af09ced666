"""Sign-in with a key or a JWT, where the server requires one."""

from __future__ import annotations

import time
from collections.abc import Callable

import jwt
from playwright.sync_api import expect

from tests.e2e.conftest import App, Tab

SECRET = "s" * 32


def sign_in(tab: Tab, key: str, *, stay: bool = False) -> None:
    tab.page.get_by_label("Access key").fill(key)
    if stay:
        tab.page.get_by_label("Stay signed in on this device").check()
    tab.button("Sign in").click()


def protected(start: Callable[..., App]) -> App:
    return start(require_auth=True, jwt_secret=SECRET)


def test_a_key_opens_the_door_for_its_user(start: Callable[..., App]) -> None:
    app = protected(start)
    key = app.server.key("acme", "ada")
    tab = app.tab()
    expect(tab.page.get_by_role("heading", name="Sign in to Palaver")).to_be_visible()
    sign_in(tab, "pal_wrong_key")
    expect(tab.page.get_by_role("alert")).to_be_visible()
    sign_in(tab, key)
    expect(tab.list).to_contain_text("ada")
    expect(tab.list).to_contain_text("acme")
    tab.ask("I'm allergic to peanuts.")
    tab.page.reload()
    expect(tab.answers).to_have_count(1)
    assert key not in tab.page.url
    assert key not in tab.page.content()


def test_a_jwt_does_as_well_and_users_do_not_see_each_other(start: Callable[..., App]) -> None:
    app = protected(start)
    claims = {"sub": "grace", "aud": "authenticated", "exp": time.time() + 600, "tenant": "acme"}
    ada, grace = app.tab(), app.tab()
    sign_in(ada, app.server.key("acme", "ada"))
    ada.ask("A secret.")
    sign_in(grace, jwt.encode(claims, SECRET, algorithm="HS256"))
    expect(grace.list).to_contain_text("grace")
    expect(grace.list).to_contain_text("No conversations yet")
    grace.open(f"/c/{ada.conversation}")
    expect(grace.page.get_by_role("alert")).to_contain_text("Conversation not found")


def test_signing_out_forgets_the_key(start: Callable[..., App]) -> None:
    app = protected(start)
    tab = app.tab()
    sign_in(tab, app.server.key("acme", "ada"), stay=True)
    tab.ask("Hello.")
    other = app.tab()
    expect(other.list).to_contain_text("ada")
    tab.button("Sign out").click()
    expect(tab.page.get_by_label("Access key")).to_be_visible()
    tab.page.reload()
    expect(tab.page.get_by_label("Access key")).to_be_visible()
    assert tab.page.evaluate("localStorage.length + sessionStorage.length") == 0


def test_a_key_that_is_revoked_leads_back_to_the_door(start: Callable[..., App]) -> None:
    from palaver.conversations.api_keys import list_keys, revoke_key
    from palaver.model import Scope

    app = protected(start)
    tab = app.tab()
    sign_in(tab, app.server.key("acme", "ada"))
    tab.ask("Hello.")
    store = app.server.app.state.services.store.scoped(Scope.of("acme", None))
    keys = app.server.do(list_keys(store))
    app.server.do(revoke_key(store, keys[0].id))
    tab.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")  # the tab becomes visible again
    expect(tab.page.get_by_label("Access key")).to_be_visible()
    expect(tab.page.get_by_role("alert")).to_contain_text("no longer valid")


def test_files_are_shown_to_those_who_are_signed_in(start: Callable[..., App]) -> None:
    from tests.e2e.test_files import choose, file, png

    app = protected(start)
    tab = app.tab()
    sign_in(tab, app.server.key("acme", "ada"))
    choose(tab, file("a.png", png(), "image/png"))
    tab.ask("Look.")
    expect(tab.page.get_by_label("Files", exact=True).get_by_role("img")).to_be_visible()
