"""palaver erase-user and palaver erasures: a person goes, a receipt stays, and an old copy brings nobody back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import palaver.sync
from palaver import Scope

ADA, WORD = "adazqxkvw", "zqbcdfghjk"
KEY = "a key that is kept elsewhere"


@pytest.fixture(autouse=True)
def talk() -> str:
    with palaver.sync.open("sqlite:///chat.db", worker=False) as store:
        talk = store.conversation("trip", owner="bob", participants=[ADA], title=f"Trip with {ADA}")
        talk.append("user", "from bob", actor="bob")
        talk.append("user", f"{WORD} from ada", actor=ADA)
        store.scoped(Scope.of("default", ADA)).conversation("own").append("user", WORD)
        return talk.id


def traces(folder: Path = Path()) -> list[str]:
    files = [
        file for file in folder.rglob("*") if file.is_file() and "copy" not in file.parts and file.suffix != ".jsonl"
    ]
    return [file.name for file in files for word in (ADA, WORD) if word.encode() in file.read_bytes()]


def test_it_asks_before_it_erases(cli, lines):
    result = cli("erase-user", ADA, input="y\n")
    assert result.exit_code == 1
    assert "--yes" in result.stderr
    assert traces()


def test_a_person_goes_and_the_receipt_can_be_checked(cli, ok, lines, monkeypatch):
    monkeypatch.setenv("PALAVER_AUDIT_KEY", KEY)
    said = ok("erase-user", ADA, "--yes", "--receipt", "receipt.json")
    assert "conversations  1" in said
    assert traces() == []
    receipt = json.loads(Path("receipt.json").read_text())
    assert receipt["counts"] == {"conversations": 1, "details": 1, "logs": 2, "turns": 1}
    assert "items are gone" in ok("erasures", "verify", "receipt.json")
    assert lines("erasures", "list")[0]["state"] == "finished"
    assert "1 conversation of 1 verified" in ok("verify")
    receipt["erased"]["turns"] = []
    Path("receipt.json").write_text(json.dumps(receipt))
    assert cli("erasures", "verify", "receipt.json").exit_code == 1
    Path("receipt.json").write_text("not json")
    assert "is not JSON" in cli("erasures", "verify", "receipt.json").stderr


def test_nobody_is_erased_if_the_receipt_cannot_be_stored(cli, ok):
    """A lost receipt cannot be replaced, and an earlier one may be the only proof."""
    Path("receipt.json").write_text("an earlier receipt")
    for file, problem in (("receipt.json", "already exists"), ("missing/receipt.json", "cannot be written")):
        result = cli("erase-user", ADA, "--yes", "--receipt", file)
        assert result.exit_code == 1
        assert f"receipt: {file} {problem}" in result.stderr
    assert Path("receipt.json").read_text() == "an earlier receipt"
    assert traces()
    Path("killed.json").touch()
    ok("erase-user", ADA, "--yes", "--receipt", "killed.json")
    assert json.loads(Path("killed.json").read_text())["counts"]["conversations"] == 1


def test_a_failed_erasure_leaves_no_empty_receipt(cli, monkeypatch):
    monkeypatch.setenv("PALAVER_AUDIT_KEY", "short")
    assert cli("erase-user", ADA, "--yes", "--receipt", "receipt.json").exit_code == 1
    assert not Path("receipt.json").exists()


def test_nobody_of_that_name(ok):
    assert "Nothing of this user was found" in ok("erase-user", "zoe", "--yes")


def test_a_backup_from_before_is_restored_without_the_person(cli, ok, lines):
    ok("backup", "copy")
    ok("erase-user", ADA, "--yes", "--receipt", "receipt.json")
    (done,) = lines("restore", "copy", "--force")
    assert done["erased"] == 1
    Path(done["aside"]).unlink()
    assert traces() == []
    assert "1 conversation of 1 verified" in ok("verify")
    ok("erasures", "verify", "receipt.json")


def test_tombstones_travel_by_themselves(cli, ok, lines):
    ok("backup", "copy")
    ok("erase-user", ADA, "--yes", "--receipt", "receipt.json")
    Path("erasures.jsonl").write_text(ok("erasures", "export"))
    ok("restore", "copy", "--db", "other.db")
    assert cli("erasures", "verify", "receipt.json", "--db", "other.db").exit_code == 1
    assert lines("erasures", "import", "erasures.jsonl", "--db", "other.db") == [{"tombstones": 1, "persons": 1}]
    ok("erasures", "verify", "receipt.json", "--db", "other.db")
    ok("restore", "copy", "--db", "third.db", "--erasures", "erasures.jsonl")
    ok("erasures", "verify", "receipt.json", "--db", "third.db")
    assert traces() == []
    Path("erasures.jsonl").write_text("{}")
    assert "line 1" in cli("erasures", "import", "erasures.jsonl").stderr


def test_an_export_tells_who_was_erased(cli, ok, lines):
    ok("export", "-o", "before.jsonl")
    ok("erase-user", ADA, "--yes")
    ok("export", "-o", "after.jsonl")
    ok("import", "after.jsonl", "--db", "other.db")
    again = cli("import", "before.jsonl", "--db", "other.db")
    assert again.exit_code == 1  # her own conversation is refused, and bob's has another history
    assert [one["key"] for one in lines("ls", "--db", "other.db")] == ["trip"]
    assert traces() == []
