"""palaver person."""

from __future__ import annotations

import json


def test_a_person_is_shown_changed_exported_and_forgotten(ok, lines, store):
    talk = store.conversation("trip", owner="ada", title="Lisbon trip")
    talk.append("user", "I live in Berlin. I am allergic to peanuts.", actor="ada")
    assert "Nothing is remembered." in ok("person", "ada")
    assert "ada lives in Berlin" in ok("person", "ada", "--learn")
    assert "Lisbon trip" in ok("person", "ada")
    assert "I live in Rome" not in ok("person", "ada", "--remember", "I live in Rome")
    items = {one["text"]: one for one in lines("person", "ada")}
    assert set(items) == {"ada lives in Rome", "ada is allergic to peanuts"}
    ok("person", "ada", "--drop", items["ada lives in Rome"]["id"])
    assert "Facts:" in ok("person", "ada", "--profile")
    exported = json.loads(ok("person", "ada", "--export"))
    assert (exported["id"], len(exported["items"])) == ("ada", 2)
    assert ok("person", "ada", "--forget") == "Nothing is remembered.\n"
