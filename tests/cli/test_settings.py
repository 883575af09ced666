"""palaver settings: what a conversation is set to, and how that is changed."""

from __future__ import annotations


def test_settings_are_shown_and_changed(ok, lines, store):
    store.conversation("k")
    assert ok("settings", "k").strip() == "No settings are stored: the defaults apply."
    shown = ok("settings", "k", "context.policy=recent-chars", "context.char_budget=20000", "redact=true")
    assert sorted(shown.split("\n")[:-1]) == [
        "context.char_budget = 20000",
        "context.policy = recent-chars",
        "redact = true",
    ]
    (found,) = lines("settings", "k")
    assert found == {"context": {"policy": "recent-chars", "char_budget": 20_000}, "redact": True}
    (found,) = lines("settings", "k", "context.policy=", "context.char_budget=")
    assert found == {"redact": True}


def test_explain_follows_the_conversation(ok, lines, store):
    talk = store.conversation("k", settings={"context": {"policy": "last-20"}})
    talk.append("user", "Hi")
    assert lines("explain", "k")[0]["policy"] == "last-20"
    assert lines("explain", "k", "--policy", "balanced")[0]["policy"] == "balanced"


def test_the_environment_has_defaults(lines, cli, store, monkeypatch):
    store.conversation("k").append("user", "Hi")
    monkeypatch.setenv("PALAVER_GENERATE", '{"policy": "recent-chars"}')
    assert lines("explain", "k")[0]["policy"] == "recent-chars"
    monkeypatch.setenv("PALAVER_GENERATE", "recent-chars")
    assert "PALAVER_GENERATE" in cli("explain", "k").output


def test_a_mistake_is_named(cli, store):
    store.conversation("k")
    for wrong, words in (
        ("context.polcy=x", "did you mean 'policy'"),
        ("redact", "NAME=VALUE"),
        ("a.b=1", "settings.a"),
    ):
        result = cli("settings", "k", wrong)
        assert result.exit_code != 0
        assert words in result.output
    assert store.find("k").info.settings == {}
