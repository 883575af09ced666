"""Conversations with questions whose evidence is known, read from a folder. None of the data is part of the project."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Said:
    """One turn. `proof` is the part of the text that must be in a context for the turn to count as quoted."""

    name: str  # the data set's own id
    role: str
    actor: str
    text: str
    created: datetime
    proof: str


@dataclass(frozen=True, slots=True)
class Question:
    text: str
    kind: str
    gold: frozenset[str]  # names of turns
    headline: bool = True  # counts in the figure of its data set
    answer: str = ""  # the reference answer; empty if the data set has none
    replaced: frozenset[str] = frozenset()  # turns whose statement a later turn replaced


@dataclass(frozen=True, slots=True)
class Talk:
    data: str
    name: str
    turns: tuple[Said, ...]
    questions: tuple[Question, ...]


def load(folder: Path) -> dict[str, list[Talk]]:
    """Load every data set in the folder."""
    found: dict[str, list[Talk]] = {"LoCoMo": [], "BEAM": [], "LoCoMo-Plus": []}
    for file in sorted(folder.glob("locomo/*.json")):
        found["LoCoMo"] += [_locomo(one, n) for n, one in enumerate(_json(file))]
    for chat in sorted(folder.glob("beam*/*/chat.json")):
        found["BEAM"].append(_beam(chat))
    for file in sorted(folder.glob("locomo-plus/*.json")):
        found["LoCoMo-Plus"] += _plus(_json(file), found["LoCoMo"])
    return {name: talks for name, talks in found.items() if talks}


def _json(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))


def _timed(start: datetime, entries: Sequence[dict[str, Any]]) -> Iterator[tuple[datetime, dict[str, Any]]]:
    """Give turns times half a minute apart, because a data set dates only its sessions."""
    for n, entry in enumerate(entries):
        yield start + timedelta(seconds=30 * n), entry


# ---- LoCoMo --------------------------------------------------------------------------------------------------------

_LOCOMO_KINDS = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}


def _locomo(sample: dict[str, Any], n: int) -> Talk:
    talk = sample["conversation"]
    turns = [said for key in _sessions(talk) for said in _locomo_session(talk, key)]
    known = {said.name for said in turns}
    questions = [question for entry in sample["qa"] if (question := _locomo_question(entry, known))]
    return Talk("LoCoMo", str(sample.get("sample_id", n)), tuple(turns), tuple(questions))


def _sessions(talk: dict[str, Any]) -> list[str]:
    keys = [key for key, value in talk.items() if re.fullmatch(r"session_\d+", key) and value]
    return sorted(keys, key=lambda key: int(key.split("_")[1]))


def _locomo_session(talk: dict[str, Any], key: str) -> Iterator[Said]:
    start = datetime.strptime(talk[f"{key}_date_time"], "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
    for created, entry in _timed(start, talk[key]):
        caption = f" [shares image: {entry['blip_caption']}]" if entry.get("blip_caption") else ""
        yield Said(entry["dia_id"], "user", entry["speaker"], entry["text"] + caption, created, entry["text"])


def _locomo_question(entry: dict[str, Any], known: set[str]) -> Question | None:
    named = re.findall(r"D(\d+):(\d+)", " ".join(entry.get("evidence", [])))
    gold = known.intersection(f"D{int(session)}:{int(turn)}" for session, turn in named)
    if not gold:
        return None
    kind = _LOCOMO_KINDS[entry["category"]]
    return Question(entry["question"], kind, frozenset(gold), kind != "adversarial", str(entry.get("answer", "")))


# ---- LoCoMo-Plus ---------------------------------------------------------------------------------------------------


def _plus(pairs: Sequence[dict[str, Any]], hosts: Sequence[Talk]) -> list[Talk]:
    return [_hosted(pair, n, hosts[n % len(hosts)]) for n, pair in enumerate(pairs)] if hosts else []


def _hosted(pair: dict[str, Any], n: int, host: Talk) -> Talk:
    """Insert the cue as a short session between two sessions of the host, which differ from pair to pair."""
    starts = [
        i
        for i, (a, b) in enumerate(zip(host.turns, host.turns[1:], strict=False), 1)
        if a.created.date() != b.created.date()
    ]
    at = starts[(n * 7 + n // len(starts)) % len(starts)]
    cue = list(_cue(pair["cue_dialogue"], host.turns, at))
    question = Question(_line(pair["trigger_query"])[1], pair["relation_type"], frozenset(said.name for said in cue))
    return Talk("LoCoMo-Plus", f"{n} in {host.name}", (*host.turns[:at], *cue, *host.turns[at:]), (question,))


def _cue(dialogue: str, turns: Sequence[Said], at: int) -> Iterator[Said]:
    speakers = list(dict.fromkeys(said.actor for said in turns))
    middle = turns[at - 1].created + (turns[at].created - turns[at - 1].created) / 2
    for n, line in enumerate(re.split(r"\s+(?=[AB]: )", dialogue.strip())):
        who, text = _line(line)
        yield Said(f"cue:{n}", "user", speakers[who == "B"], text, middle + timedelta(seconds=30 * n), text)


def _line(line: str) -> tuple[str, str]:
    who, _, text = line.partition(": ")
    return who, text.strip()


def inside(talk: Talk) -> Talk:
    """Insert the same cue in the middle of the session before it."""
    first = next(i for i, said in enumerate(talk.turns) if said.name == "cue:0")
    cue = [said for said in talk.turns if said.name.startswith("cue:")]
    rest = [said for said in talk.turns if not said.name.startswith("cue:")]
    day = rest[first - 1].created.date()
    session = [i for i, said in enumerate(rest[:first]) if said.created.date() == day]
    at = session[len(session) // 2]
    told = [replace(said, created=rest[at - 1].created + timedelta(seconds=5 * n)) for n, said in enumerate(cue, 1)]
    return replace(talk, turns=(*rest[:at], *told, *rest[at:]))


# ---- BEAM ----------------------------------------------------------------------------------------------------------


def _beam(chat: Path) -> Talk:
    turns = tuple(said for batch in _json(chat) for said in _beam_batch(batch))
    known = {said.name for said in turns}
    asked = _json(next(chat.parent.glob("probing_questions/*.json")))
    questions = [
        Question(entry["question"], kind, gold, answer=_reference(entry), replaced=_replaced(entry))
        for kind, entries in asked.items()
        for entry in entries
        if (gold := frozenset(map(str, _ids(entry.get("source_chat_ids"))))) and gold <= known
    ]
    return Talk("BEAM", chat.parent.name, turns, tuple(questions))


_REFERENCES = ("answer", "ideal_answer", "ideal_response", "ideal_summary", "instruction_being_tested",
               "preference_being_tested")  # fmt: skip


def _reference(entry: dict[str, Any]) -> str:
    """Return the expected answer. For an instruction or a preference, that is its text: the answer may differ."""
    return next((str(entry[name]) for name in _REFERENCES if entry.get(name)), "")


def _replaced(entry: dict[str, Any]) -> frozenset[str]:
    """Return the turns with a value that a later turn updates."""
    sources = entry.get("source_chat_ids")
    if not isinstance(sources, dict) or "updated_info" not in sources:
        return frozenset()
    original, updated = (frozenset(map(str, _ids(sources.get(name)))) for name in ("original_info", "updated_info"))
    return original - updated


def _beam_batch(batch: dict[str, Any]) -> Iterator[Said]:
    entries = [entry for group in batch["turns"] for entry in group]
    anchor = batch.get("time_anchor") or entries[0]["time_anchor"]
    start = datetime.strptime(anchor, "%B-%d-%Y").replace(tzinfo=UTC, hour=9)
    for created, entry in _timed(start, entries):
        text = re.sub(r"\s*->->.*$", "", entry["content"], flags=re.DOTALL).strip()
        yield Said(str(entry["id"]), entry["role"], entry["role"], text, created, text)


def _ids(value: Any) -> Iterator[int]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            yield from _ids(one)
    elif value is not None:
        yield int(value)
