"""The methods over HTTP: stored data comes back unchanged, and a refusal has a reason."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from palaver.audit.seals import seal_everything
from palaver.errors import EngineError, EngineUnavailable
from palaver.testing.providers import LoopbackProvider, Say
from tests.server.conftest import ok, running

QUIET = {"titles": False}

# ---- conversations -------------------------------------------------------------------------------------------------


def test_a_key_names_one_conversation(client: httpx.Client) -> None:
    first = client.post("/api/conversations", json={"key": "support/42", "title": "Peanuts"})
    assert first.status_code == 201
    client.post(f"/api/conversations/{first.json()['id']}/turns", json={"role": "user", "content": "Hi"})
    again = client.post("/api/conversations", json={"key": "support/42"})
    assert again.status_code == 200
    assert again.json()["id"] == first.json()["id"]
    assert ok(client.get("/api/conversations/find", params={"key": "support/42"}))["title"] == "Peanuts"
    assert client.get(first.headers["location"]).json()["id"] == first.json()["id"]


def test_lists_go_on_from_page_to_page_and_know_their_dates(client: httpx.Client) -> None:
    made = [ok(client.post("/api/conversations", json={"title": f"No {n}"}))["id"] for n in range(7)]
    seen, path = [], "/api/conversations?limit=3&group=date&timezone=Europe/Berlin"
    while path:
        answer = client.get(path)
        page = ok(answer)
        assert [id for group in page["groups"] for id in group["conversations"]] == [one["id"] for one in page["items"]]
        seen += [one["id"] for one in page["items"]]
        assert (answer.links.get("next") is None) == (page["next"] is None)
        path = page["next"]
    assert seen == made[::-1]


def test_search_says_where_the_words_stand(client: httpx.Client, talk: str) -> None:
    client.post(f"{talk}/turns", json={"role": "user", "content": "I am allergic to peanuts."})
    (found,) = ok(client.get("/api/search", params={"q": "peanut"}))["items"]
    (match,) = found["matches"]
    start, end = match["spans"][0]
    assert match["turn"]["content"][start:end] == "peanuts"
    assert len(ok(client.get(f"{talk}/search", params={"q": "allergic"}))["items"]) == 1


def test_a_change_is_partial_and_null_clears(client: httpx.Client, talk: str) -> None:
    client.patch(talk, json={"title": "One", "metadata": {"a": 1}})
    changed = ok(client.patch(talk, json={"title": None}))
    assert (changed["title"], changed["metadata"]) == (None, {"a": 1})


def test_what_was_deleted_is_gone_and_its_log_stays(client: httpx.Client, talk: str) -> None:
    client.post(f"{talk}/turns", json={"role": "user", "content": "secret"})
    assert client.delete(talk).status_code in (202, 204)
    assert client.get(talk).status_code == 410
    kinds = [one["kind"] for one in ok(client.get(f"{talk}/audit"))["items"]]
    assert kinds[-1] == "forget"


def test_reset_forgets_and_keeps(client: httpx.Client, talk: str) -> None:
    client.post(f"{talk}/turns", json={"role": "user", "content": "x"})
    assert ok(client.post(f"{talk}/reset"))["turn_count"] == 0
    assert ok(client.get(f"{talk}/turns"))["items"] == []


# ---- turns ---------------------------------------------------------------------------------------------------------


def test_the_same_idempotency_key_stores_once(client: httpx.Client, talk: str) -> None:
    headers = {"Idempotency-Key": "k1"}
    first = ok(client.post(f"{talk}/turns", json={"role": "user", "content": "Hi"}, headers=headers))
    second = ok(client.post(f"{talk}/turns", json={"role": "user", "content": "Hi"}, headers=headers))
    assert first["id"] == second["id"]
    other = client.post(f"{talk}/turns", json={"role": "user", "content": "Ho"}, headers=headers)
    assert (other.status_code, other.json()["type"]) == (409, "urn:palaver:problem:idempotency-conflict")


def test_an_append_can_insist_on_what_it_saw(client: httpx.Client, talk: str) -> None:
    etag = client.get(f"{talk}/turns").headers["etag"]
    first = client.post(f"{talk}/turns", json={"role": "user", "content": "1"}, headers={"If-Match": etag})
    late = client.post(f"{talk}/turns", json={"role": "user", "content": "2"}, headers={"If-Match": etag})
    assert (first.status_code, late.status_code) == (201, 412)
    late = client.post(f"{talk}/turns", json={"role": "user", "content": "2", "expected_seq": 0})
    assert (late.status_code, late.json()["expected"], late.json()["found"]) == (409, 0, 1)


def test_a_change_can_insist_on_what_it_saw(client: httpx.Client, talk: str) -> None:
    etag = client.get(talk).headers["etag"]
    first = client.patch(talk, json={"metadata": {"a": 1}}, headers={"If-Match": etag})
    late = client.patch(talk, json={"metadata": {"b": 2}}, headers={"If-Match": etag})
    assert (first.status_code, late.status_code) == (200, 412)
    assert late.json()["expected"] < late.json()["found"]
    assert ok(client.get(talk))["metadata"] == {"a": 1}
    now = first.headers["etag"]
    assert client.patch(talk, json={"metadata": {"b": 2}}, headers={"If-Match": now}).status_code == 200
    assert client.patch(talk, json={"title": "Any"}, headers={"If-Match": "*"}).status_code == 200
    for one in (f'"1.0", {now}', f"W/{now}"):
        late = client.patch(talk, json={"title": "Late"}, headers={"If-Match": one})
        assert (late.status_code, late.json().get("field")) == (412, None)
    now = client.get(talk).headers["etag"]
    assert client.patch(talk, json={"title": "Any"}, headers={"If-Match": f'"1.0", W/{now}'}).status_code == 200
    for other in ('"abc"', "7", '"1.2.3"', '"9999999999999999999.1"'):
        refused = client.patch(talk, json={"title": "No"}, headers={"If-Match": other})
        assert (refused.status_code, refused.json()["field"]) == (412, "If-Match")
    assert ok(client.get(talk))["title"] == "Any"


def test_a_page_that_did_not_change_is_not_sent_again(client: httpx.Client, talk: str) -> None:
    for path in (talk, f"{talk}/turns"):
        etag = client.get(path).headers["etag"]
        assert client.get(path, headers={"If-None-Match": etag}).status_code == 304
        client.patch(talk, json={"title": f"for {path}"})
        assert client.get(path, headers={"If-None-Match": etag}).status_code == 200


def test_history_is_read_in_both_directions(client: httpx.Client, talk: str) -> None:
    turns = [{"role": "user", "content": str(n)} for n in range(10)]
    ok(client.post(f"{talk}/turns/batch", json={"turns": turns}), 201)
    back, path = [], f"{talk}/turns?limit=3"
    while path:
        page = ok(client.get(path))
        back = [one["content"] for one in page["items"]] + back
        path = page["older"]
    assert back == [str(n) for n in range(10)]
    first = ok(client.get(f"{talk}/turns?limit=10"))["items"][0]
    forth, path = [first["content"]], f"{talk}/turns?limit=4&after={first['id']}"
    while path:
        page = ok(client.get(path))
        forth += [one["content"] for one in page["items"]]
        path = page["newer"]
    assert forth == back


def test_the_next_page_is_of_the_same_question(client: httpx.Client, talk: str) -> None:
    """A parameter that is there twice is there twice on every page."""
    roles = ("user", "assistant", "system") * 3
    turns = [{"role": role, "content": role} for role in roles]
    ok(client.post(f"{talk}/turns/batch", json={"turns": turns}), 201)
    found, path = [], f"{talk}/turns?limit=2&role=user&role=assistant"
    while path:
        page = ok(client.get(path))
        found = [one["role"] for one in page["items"]] + found
        path = page["older"]
    assert found == ["user", "assistant"] * 3
    kinds, path = [], f"{talk}/audit?limit=1&kind=create&kind=append"
    while path:
        page = ok(client.get(path))
        kinds += [one["kind"] for one in page["items"]]
        path = page["next"]
    assert kinds == ["create"] + ["append"] * 9


def test_an_edit_is_a_branch_that_one_can_leave(client: httpx.Client, talk: str) -> None:
    first = ok(client.post(f"{talk}/turns", json={"role": "user", "content": "A"}))
    ok(client.post(f"{talk}/turns", json={"role": "assistant", "content": "a"}))
    ok(client.post(f"{talk}/turns/{first['id']}/edit", json={"content": "B"}), 201)
    assert [one["content"] for one in ok(client.get(f"{talk}/turns"))["items"]] == ["B"]
    (branch,) = ok(client.get(f"{talk}/branches", params={"turn": first["id"]}))["items"]
    assert {one["content"] for one in branch["turns"]} == {"A", "B"}
    ok(client.post(f"{talk}/turns/{first['id']}/switch"))
    assert [one["content"] for one in ok(client.get(f"{talk}/turns"))["items"]] == ["A", "a"]


def test_a_forgotten_turn_is_a_stub(client: httpx.Client, talk: str) -> None:
    turn = ok(client.post(f"{talk}/turns", json={"role": "user", "content": "secret"}))
    assert client.delete(f"{talk}/turns/{turn['id']}").status_code in (202, 204)
    left = client.get(f"{talk}/turns/{turn['id']}")
    assert "secret" not in left.text
    assert "secret" not in client.get(f"{talk}/turns?include_superseded=true").text


def test_a_turn_in_pieces(client: httpx.Client, talk: str) -> None:
    turn = ok(client.post(f"{talk}/streams", json={"actor": "bot"}), 201)
    path = f"{talk}/streams/{turn['id']}"
    assert ok(client.post(f"{path}/chunks", json={"n": 0, "text": "You can "}))["next"] == 1
    assert ok(client.post(f"{path}/chunks", json={"n": 0, "text": "You can "}))["next"] == 1
    assert ok(client.post(f"{path}/chunks", json={"n": 1, "text": "eat rice."}))["next"] == 2
    assert client.post(f"{path}/renew").status_code == 204
    done = ok(client.post(f"{path}/commit", json={"tokens": {"prompt": 3, "completion": 4}}))
    assert (done["content"], done["status"], done["actor"]) == ("You can eat rice.", "complete", "bot")
    assert client.post(f"{path}/chunks", json={"n": 2, "text": "!"}).status_code == 409
    other = ok(client.post(f"{talk}/streams", json={}))
    assert ok(client.post(f"{talk}/streams/{other['id']}/abort"))["status"] == "aborted"


# ---- memory --------------------------------------------------------------------------------------------------------


def test_what_was_said_is_recalled_and_explained(client: httpx.Client, talk: str) -> None:
    said = ok(client.post(f"{talk}/turns", json={"role": "user", "content": "I am allergic to peanuts."}))
    hits = ok(client.post(f"{talk}/recall", json={"query": "allergic", "include_facts": False}))["items"]
    assert hits[0]["turn"]["id"] == said["id"]
    for shape in ("neutral", "openai", "responses", "anthropic"):
        body = {"token_budget": 500, "query": "What can I eat?", "format": shape}
        context = ok(client.post(f"{talk}/context", json=body))
        assert context["tokens"] <= 500
        assert said["id"] in context["turn_ids"]
        assert context["explanation"]["budget"] == 500
    small = client.post(f"{talk}/context", json={"token_budget": 1})
    assert (small.status_code, small.json()["budget"]) == (422, 1)


def test_notes_are_added_corrected_and_dropped(client: httpx.Client, talk: str) -> None:
    assert ok(client.post(f"{talk}/memory/goals", json={"text": "Ship"}), 201)["goals"][0]["text"] == "Ship"
    assert ok(client.put(f"{talk}/memory/goals/0", json={"text": "Ship it"}))["goals"][0]["text"] == "Ship it"
    assert ok(client.delete(f"{talk}/memory/goals/0"))["goals"] == []
    assert client.put(f"{talk}/memory/goals/9", json={"text": "x"}).status_code == 422
    assert client.post(f"{talk}/memory/secrets", json={"text": "x"}).status_code == 422


def test_facts_and_summaries(client: httpx.Client, talk: str) -> None:
    for n in range(12):
        ok(client.post(f"{talk}/turns", json={"role": "user", "content": f"My name is Ada. Line {n}. " * 20}))
    facts = ok(client.post(f"{talk}/facts/extract"))["items"] or ok(client.get(f"{talk}/facts"))["items"]
    assert facts
    assert client.delete(f"{talk}/facts/{facts[0]['id']}").status_code in (202, 204)
    assert client.delete(f"{talk}/facts/{facts[0]['id']}").status_code == 404
    assert ok(client.post(f"{talk}/summarize"))["items"]
    assert ok(client.post(f"{talk}/compact", json={}))["summaries"] >= 0
    assert ok(client.get(f"{talk}/summaries"))["items"]
    page = ok(client.get(f"{talk}/turns", params={"include_summaries": True, "limit": 100}))
    assert {"seq", "level"} <= {name for one in page["items"] for name in one}


# ---- the log, usage, files -----------------------------------------------------------------------------------------


def test_the_log_verifies(client: httpx.Client, talk: str) -> None:
    ok(client.post(f"{talk}/turns", json={"role": "user", "content": "x"}))
    ok(client.post(f"{talk}/stop"), 202)
    verified = ok(client.post(f"{talk}/verify"))
    assert (verified["ok"], verified["turns"]) == (True, 1)
    pages, path = [], f"{talk}/audit?limit=1"
    while path:
        page = ok(client.get(path))
        pages += [one["kind"] for one in page["items"]]
        path = page["next"]
    assert pages == ["create", "append", "stop"]


def test_a_server_with_a_key_seals_the_log_and_checks_the_seals(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even when it failed the first time."""
    failures = iter([EngineError("damaged"), EngineUnavailable("out of reach")])

    async def at_last(*given: Any) -> int:
        if problem := next(failures, None):
            raise problem
        return await seal_everything(*given)

    monkeypatch.setattr("palaver.server.components.seal_everything", at_last)
    chosen = settings(audit_key="a key that is kept elsewhere", seal_every=0.02)
    with running(chosen) as server, server.client() as client:
        talk = f"/api/conversations/{ok(client.post('/api/conversations', json={}))['id']}"
        while not (verified := ok(client.post(f"{talk}/verify")))["seals"]:
            pass  # until the sealer came by
        assert verified["ok"]


def test_tokens_are_counted_by_day_owner_and_model(client: httpx.Client, talk: str) -> None:
    for tokens in ({"prompt": 10, "completion": 5}, {"prompt": 1}):
        body = {"role": "assistant", "content": "x", "tokens": tokens, "model": "m", "created": "2026-01-02T03:04:05Z"}
        ok(client.post(f"{talk}/turns", json=body))
    expected = {"day": "2026-01-02", "user": "", "model": "m", "calls": 2, "prompt": 11, "completion": 5}
    assert ok(client.get("/api/usage"))["items"] == [expected]
    for later in ("2026-01-03T00:00:00Z", "2026-01-03"):  # a date alone is the beginning of that day in UTC
        assert ok(client.get("/api/usage", params={"since": later}))["items"] == []
        assert ok(client.post(f"{talk}/recall", json={"query": "x", "since": later}))["items"] == []
    assert ok(client.get("/api/stats"))["turns"] == 2


def test_a_file_comes_back_as_it_went_and_never_as_a_page(client: httpx.Client, talk: str) -> None:
    name = 'ev"il; ü.html'
    sent = client.post(
        f"{talk}/attachments", params={"filename": name}, content=b"<script>", headers={"content-type": "text/html"}
    )
    file = ok(sent, 201)
    ok(client.post(f"{talk}/turns", json={"role": "user", "content": "look", "attachments": [file["id"]]}))
    assert ok(client.get(f"{talk}/attachments/{file['id']}"))["bytes"] == 8
    back = client.get(f"{talk}/attachments/{file['id']}/content")
    assert back.content == b"<script>"
    assert back.headers["content-type"] == "application/octet-stream"
    assert back.headers["content-disposition"] == (
        "attachment; filename=\"ev_il_ _.html\"; filename*=UTF-8''ev%22il%3B%20%C3%BC.html"
    )
    assert "sandbox" in back.headers["content-security-policy"]


def test_settings_say_who_asks_and_where_the_limits_are(client: httpx.Client) -> None:
    found = ok(client.get("/api/settings"))
    assert found["caller"]["tenant"] == "default"
    assert found["limits"]["file_bytes"] == 50_000_000
    assert ok(client.post("/api/sweep", json={}))["turns"] == 0


def test_an_admin_erases_a_person_and_checks_the_receipt(client: httpx.Client) -> None:
    talk = ok(client.post("/api/conversations", json={"key": "erased", "participants": ["zoe"], "title": "with zoe"}))
    ok(client.post(f"/api/conversations/{talk['id']}/turns", json={"role": "user", "content": "x", "actor": "zoe"}))
    receipt = ok(client.post("/api/erasures", json={"user": "zoe"}))
    assert receipt["counts"]["turns"] == 1
    assert ok(client.get(f"/api/conversations/{talk['id']}"))["title"] == "with [erased]"
    assert ok(client.post("/api/erasures/verify", json={"receipt": receipt})) == {"ok": True, "problem": None}
    receipt["erased"]["conversations"] = [talk["id"]]
    assert not ok(client.post("/api/erasures/verify", json={"receipt": receipt}))["ok"]
    assert client.post("/api/erasures", json={"user": "assistant"}).status_code == 422
    assert client.post("/api/erasures/verify", json={"receipt": {}}).status_code == 422


# ---- answers -------------------------------------------------------------------------------------------------------


def test_an_answer_as_json_and_what_was_sent_for_it(settings: Any) -> None:
    with LoopbackProvider() as provider:
        provider.script(Say("You can eat rice.", prompt_tokens=40), Say("Or beans."))
        with (
            running(settings(model="chat", models=provider.models(), generate=QUIET)) as server,
            server.client() as client,
        ):
            talk = f"/api/conversations/{ok(client.post('/api/conversations', json={}))['id']}"
            first = ok(client.post(f"{talk}/generate", json={"message": "What can I eat?"}))
            assert first["turn"]["content"] == "You can eat rice."
            assert first["usage"]["prompt"] == 40
            assert first["explanation"]["tokens"] > 0
            (request,) = ok(client.get(f"{talk}/requests", params={"turn": first["turn"]["id"]}))["items"]
            assert request["id"] == first["request"]
            second = ok(client.post(f"{talk}/turns/{first['turn']['id']}/regenerate", json={}))
            assert second["turn"]["content"] == "Or beans."
            shown = [one["content"] for one in ok(client.get(f"{talk}/turns"))["items"]]
            assert shown == ["What can I eat?", "Or beans."]


def test_an_answer_with_an_idempotency_key_is_made_once(settings: Any) -> None:
    with (
        LoopbackProvider() as provider,
        running(settings(model="chat", models=provider.models(), generate=QUIET)) as server,
    ):
        with server.client() as client:
            talk = f"/api/conversations/{ok(client.post('/api/conversations', json={}))['id']}"
            headers = {"Idempotency-Key": "once"}
            answers = [ok(client.post(f"{talk}/generate", json={"message": "?"}, headers=headers)) for _ in range(2)]
            assert answers[0]["turn"]["id"] == answers[1]["turn"]["id"]
        assert len(provider.received) == 1


def test_callers_choose_only_among_the_models_of_the_server(client: httpx.Client, talk: str) -> None:
    refused = client.post(f"{talk}/generate", json={"message": "Hi", "model": "openai:gpt-5"})
    assert (refused.status_code, refused.json()["field"]) == (422, "model")
    client.patch(talk, json={"model": "openai:gpt-5"})
    assert client.post(f"{talk}/generate", json={"message": "Hi"}).status_code == 422


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/turns", {"role": "pope", "content": "x"}, "role"),
        ("/turns", {"role": "user", "content": "x\x00"}, "content"),
        ("/turns", {"role": "user", "content": "x", "surprise": 1}, "surprise"),
        ("/turns", {"role": "user", "content": "x", "metadata": {"a": "x" * 70_000}}, "metadata"),
        ("/turns", {"role": "tool"}, "tool_results"),
        ("/context", {"policy": "nonsense"}, "policy"),
        ("/recall", {"query": "x", "k": -1}, "k"),
        ("/generate", {"message": "x", "settings": {"messages": []}}, "settings.messages"),
    ],
)
def test_a_refusal_names_the_field(client: httpx.Client, talk: str, path: str, body: Any, field: str) -> None:
    refused = client.post(talk + path, json=body)
    assert refused.status_code in (413, 422)
    assert refused.headers["content-type"] == "application/problem+json"
    assert refused.json()["field"] == field


def test_a_misspelt_setting_is_refused_with_a_suggestion(client: httpx.Client, talk: str) -> None:
    body = {"settings": {"redcat": True}}
    for refused in (client.post("/api/conversations", json=body), client.patch(talk, json=body)):
        assert (refused.status_code, refused.json()["field"]) == (422, "settings.redcat")
        assert "did you mean 'redact'" in refused.json()["detail"]


def test_a_body_that_cannot_be_read_is_called_so(client: httpx.Client) -> None:
    broken = client.post("/api/conversations", content=b'{"key":', headers={"content-type": "application/json"})
    assert (broken.status_code, broken.json()["field"]) == (422, "body")


def test_a_limit_is_named_with_its_number(client: httpx.Client, talk: str) -> None:
    refused = client.post(f"{talk}/turns", json={"role": "user", "content": "x" * 5_000_001}).json()
    assert (refused["status"], refused["limit"], refused["unit"]) == (413, 5_000_000, "bytes")


def test_a_body_without_its_type_is_told_which_header_is_missing(client: httpx.Client, talk: str) -> None:
    """As `curl -d` sends it."""
    form = {"content-type": "application/x-www-form-urlencoded"}
    refused = client.post(f"{talk}/turns", content=b'{"role": "user", "content": "Hi"}', headers=form)
    assert refused.status_code == 422
    assert "content-type: application/json" in refused.json()["detail"]


# ---- settings ------------------------------------------------------------------------------------------------------


def test_other_settings_for_a_key_that_exists_are_refused(client: httpx.Client) -> None:
    made = {"key": "s", "settings": {"redact": True}}
    first = client.post("/api/conversations", json=made)
    assert client.post("/api/conversations", json=made).json()["id"] == first.json()["id"]
    refused = client.post("/api/conversations", json={"key": "s", "settings": {"redact": False}})
    assert refused.status_code == 409
    assert refused.json()["type"] == "urn:palaver:problem:settings-conflict"
    assert (refused.json()["field"], refused.json()["conversation"]) == ("settings.redact", first.json()["id"])


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"redcat": True}, "settings.redcat"),
        ({"context": {"polcy": "x"}}, "settings.context.polcy"),
        ({"context": {"token_budget": 0}}, "settings.context.token_budget"),
        ({"compaction": {"triggerTurns": 9}}, "settings.compaction.triggerTurns"),
    ],
)
def test_settings_are_checked_when_they_are_stored(client: httpx.Client, talk: str, given: Any, field: str) -> None:
    for refused in (
        client.post("/api/conversations", json={"settings": given}),
        client.patch(talk, json={"settings": given}),
    ):
        assert refused.status_code == 422
        assert refused.json()["field"] == field


def test_a_policy_of_the_conversation_is_used_by_its_contexts(client: httpx.Client, talk: str) -> None:
    client.post(f"{talk}/turns", json={"role": "user", "content": "Hi"})
    ok(client.patch(talk, json={"settings": {"context": {"policy": "recent-chars"}}}))
    assert ok(client.post(f"{talk}/context", json={}))["explanation"]["policy"] == "recent-chars"
    called = ok(client.post(f"{talk}/context", json={"policy": "last-20"}))["explanation"]
    assert (called["policy"], called["unit"]) == ("last-20", "tokens")


def test_metadata_that_looks_like_a_setting_gets_a_warning(client: httpx.Client, talk: str) -> None:
    wrong = {"metadata": {"compaction": {"strategy": "never"}}}
    for answer in (client.post("/api/conversations", json=wrong), client.patch(talk, json=wrong)):
        assert "settings.compaction" in answer.headers["warning"]
    for answer in (client.post("/api/conversations", json={"metadata": {"a": 1}}), client.patch(talk, json={})):
        assert "warning" not in answer.headers


def test_summaries_through_a_turn_and_a_policy_of_one_call(client: httpx.Client, talk: str) -> None:
    turns = [{"role": "user", "content": f"We spoke of thing {n}."} for n in range(12)]
    stored = ok(client.post(f"{talk}/turns/batch", json={"turns": turns}))["items"]
    assert ok(client.post(f"{talk}/compact", json={}))["summaries"] == 0
    assert ok(client.post(f"{talk}/compact", json={"policy": {"trigger_turns": 10}}))["summaries"] == 1
    found = ok(client.post(f"{talk}/summarize", json={"through": stored[8]["id"]}))["items"]
    assert max(one["through_seq"] for one in found) == 9
    assert client.post(f"{talk}/facts/extract", json={"through": stored[10]["id"]}).status_code == 200
    assert client.post(f"{talk}/summarize").status_code == 200
    for path in ("summarize", "facts/extract"):
        assert client.post(f"{talk}/{path}", json={"throgh": 1}).json()["field"] == "throgh"
        assert client.post(f"{talk}/{path}", json={"through": "no such turn"}).status_code == 404
    refused = client.post(f"{talk}/compact", json={"policy": {"triggerTurns": 10}})
    assert (refused.status_code, refused.json()["field"]) == (422, "policy.triggerTurns")


def test_a_context_may_be_for_an_earlier_question(client: httpx.Client, talk: str) -> None:
    asked = ok(client.post(f"{talk}/turns", json={"role": "user", "content": "Where is the zebra?"}))
    ok(client.post(f"{talk}/turns", json={"role": "user", "content": "And the giraffe?"}))
    context = ok(client.post(f"{talk}/context", json={"question": asked["id"]}))
    assert [one["content"] for one in context["messages"]] == ["Where is the zebra?"]
    assert client.post(f"{talk}/context", json={"question": "0" * 26}).status_code == 404
    both = client.post(f"{talk}/context", json={"question": asked["id"], "message": "x"})
    assert (both.status_code, both.json()["field"]) == (422, "question")


def test_an_answer_that_was_interrupted_stays_on_the_page_until_another_takes_its_place(
    client: httpx.Client, talk: str
) -> None:
    ok(client.post(f"{talk}/turns", json={"role": "user", "content": "Go on"}))
    cut = ok(client.post(f"{talk}/streams", json={"role": "assistant"}))["id"]
    ok(client.post(f"{talk}/streams/{cut}/chunks", json={"n": 0, "text": "Half of it"}))
    ok(client.post(f"{talk}/streams/{cut}/abort"))
    shown = ok(client.get(f"{talk}/turns"))["items"]
    assert [(one["content"], one["status"]) for one in shown] == [("Go on", "complete"), ("Half of it", "aborted")]
    ok(client.post(f"{talk}/turns", json={"role": "assistant", "content": "All of it"}))
    shown = ok(client.get(f"{talk}/turns"))["items"]
    assert [one["content"] for one in shown] == ["Go on", "All of it"]


@pytest.mark.parametrize(
    ("path", "theirs", "ours"),
    [
        ("", {"user_id": "ada"}, "owner"),
        ("", {"session_id": "42"}, "key"),
        ("/turns", {"role": "user", "content": "x", "created_at": "2026-01-01T00:00:00Z"}, "created"),
        ("/turns", {"role": "human", "content": "x"}, "user"),
        ("/turns", {"role": "Assistant", "content": "x"}, "assistant"),
        ("/context", {"max_tokens": 100}, "token_budget"),
        ("/context", {"tokenBudget": 100}, "token_budget"),
        ("/generate", {"message": "x", "conversationHistory": []}, "history"),
    ],
)
def test_names_of_other_systems_are_refused_with_ours(
    client: httpx.Client, talk: str, path: str, theirs: dict[str, Any], ours: str
) -> None:
    response = client.post(talk + path if path else "/api/conversations", json=theirs)
    assert response.status_code == 422
    assert f"did you mean '{ours}'" in response.json()["detail"]


@pytest.mark.parametrize("role", [[], {}, ["human"]])
def test_a_role_that_is_not_a_text_is_refused(client: httpx.Client, talk: str, role: object) -> None:
    response = client.post(f"{talk}/turns", json={"role": role, "content": "x"})
    assert response.status_code == 422
    assert response.json()["field"] == "role"


def test_an_unknown_field_is_named_and_its_value_is_not(client: httpx.Client, talk: str) -> None:
    problem = client.post(f"{talk}/turns", json={"role": "user", "content": "x", "x_y": "secret"}).json()
    assert problem["detail"].startswith("x_y: is not known; known fields: content, actor,")
    assert "secret" not in str(problem)


def test_an_unknown_field_of_a_body_that_may_be_left_out_has_the_same_hint(client: httpx.Client, talk: str) -> None:
    problem = client.post(f"{talk}/summarize", json={"through_sequence": 3}).json()
    assert "did you mean 'through'?; see docs/come-from" in problem["detail"]
    assert problem["detail"].endswith("known fields: through")


@pytest.mark.parametrize(
    ("query", "hint"),
    [
        ("user_id=ada", "did you mean 'owner'?"),
        ("Limit=5", "did you mean 'limit'?"),
        ("limit=5&nonsense=secret", "known parameters: "),
    ],
)
def test_an_unknown_parameter_of_a_query_is_refused_with_the_known_ones(
    client: httpx.Client, query: str, hint: str
) -> None:
    """A misspelt filter must not return everything."""
    response = client.get(f"/api/conversations?{query}")
    assert response.status_code == 422
    problem = response.json()
    assert problem["field"] in {"user_id", "Limit", "nonsense"}
    assert hint in problem["detail"]
    assert "secret" not in response.text


def test_routes_without_parameters_and_writes_refuse_them_too(client: httpx.Client, talk: str) -> None:
    assert client.get("/api/models?x=1").json()["detail"] == "x: is not a parameter of this operation; it has none"
    assert client.post(f"{talk}/turns?key=1", json={"role": "user", "content": "x"}).status_code == 422
    assert ok(client.get(f"{talk}/turns"))["items"] == []
    assert client.post(f"{talk}/turns", json={"role": "user", "content": "x"}).status_code == 201
