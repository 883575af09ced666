"""A bounded dictionary keeps its newest entries."""

from palaver.core.bounded_dict import BoundedDict


def test_the_oldest_entry_is_dropped_beyond_the_limit() -> None:
    entries: BoundedDict[str, int] = BoundedDict(2)
    for number, key in enumerate("abc"):
        entries[key] = number
    assert dict(entries) == {"b": 1, "c": 2}


def test_setting_a_key_again_makes_it_the_newest() -> None:
    entries: BoundedDict[str, int] = BoundedDict(2)
    for key in "abac":
        entries[key] = 0
    assert list(entries) == ["a", "c"]


def test_reading_does_not_keep_an_entry_unless_it_is_moved_to_the_end() -> None:
    entries: BoundedDict[str, int] = BoundedDict(2)
    entries["a"], entries["b"] = 1, 2
    assert entries.get("a") == 1
    entries["c"] = 3
    assert "a" not in entries
    entries.move_to_end("b")
    entries["d"] = 4
    assert list(entries) == ["b", "d"]
