"""Frames from a log: each once, in order, from any point. Random logs and random cuts."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from palaver.core.identity import new_id, stamp
from palaver.model import Event, Turn
from palaver.server.live.frames import FeedPosition, Frame, FrameEncoder, ReaderCursor

NOW = datetime(2026, 11, 15, tzinfo=UTC)
TEXT = "abcdefghijklmnopqrstuvwxyz"


def a_log(sizes: list[list[int]]) -> tuple[list[Event], dict[str, Turn]]:
    """Streams that are written by turns, piece by piece, then committed; as the log and the rows have it."""
    ids = [stamp(new_id(), seq) for seq in range(len(sizes))]
    log: list[tuple[str, str, dict[str, int]]] = [("open", id, {}) for id in ids]
    lengths = dict.fromkeys(ids, 0)
    for round_ in range(max(map(len, sizes), default=0)):
        for id, pieces in zip(ids, sizes, strict=True):
            if round_ < len(pieces):
                start, end = lengths[id], lengths[id] + pieces[round_]
                log.append(("chunk", id, {"from": start, "to": end}))
                lengths[id] = end
    log += [("commit", id, {}) for id in ids]
    rows = {
        id: Turn(
            id=id, conversation="c", seq=seq, position=seq, role="assistant", actor="bot",
            content=(TEXT * 20)[: lengths[id]], created=NOW,
        )
        for seq, id in enumerate(ids)
    }  # fmt: skip
    events = [
        Event(n=n, conversation="c", kind=kind, actor="bot", at=NOW, turn=id, payload=payload)
        for n, (kind, id, payload) in enumerate(log, 1)
    ]
    return events, rows


def texts(frames: list[Frame]) -> dict[str, str]:
    found: dict[str, str] = {}
    for frame in frames:
        if frame.kind == "delta":
            assert len(found.get(frame.turn or "", "")) == frame.start
            found[frame.turn or ""] = found.get(frame.turn or "", "") + frame.text
    return found


SIZES = st.lists(st.lists(st.integers(1, 9), max_size=6), min_size=1, max_size=3)


@given(SIZES, st.data())
def test_cut_anywhere_and_resumed_every_character_is_told_once(sizes: list[list[int]], data: st.DataObject) -> None:
    events, rows = a_log(sizes)
    reader = ReaderCursor(FeedPosition())
    told = [
        new for frame in FrameEncoder(FeedPosition()).encode_events(events, rows) if (new := reader.new_part(frame))
    ]
    cut = data.draw(st.integers(0, len(told)))
    first = told[:cut]
    replay = ReaderCursor(FeedPosition())
    for frame in first:
        replay.new_part(frame)
    point = FeedPosition.parse(str(replay.point))
    assert point is not None
    rest = FrameEncoder(point).encode_events(events[point.n :], rows)
    whole = first + rest
    assert texts(whole) == {id: row.text for id, row in rows.items() if row.text}
    assert [f.kind for f in whole if f.kind != "delta"] == [f.kind for f in told if f.kind != "delta"]


@given(SIZES, st.data())
def test_text_from_memory_is_not_told_again_by_the_log(sizes: list[list[int]], data: st.DataObject) -> None:
    """A writer is ahead of the log by any number of characters, at any moment."""
    events, rows = a_log(sizes)
    encoder, told = FrameEncoder(FeedPosition()), []
    for event in events:
        told += encoder.encode_events([event], rows)
        if event.kind != "commit" and data.draw(st.booleans()):
            row = rows[event.turn or ""]
            length = data.draw(st.integers(0, len(row.text)))
            told += encoder.encode_unflushed(
                row.id, lambda offset, row=row, length=length: row.text[offset:length], length
            )
    assert texts(told) == {id: row.text for id, row in rows.items() if row.text}


@given(SIZES, st.integers(0, 40), st.integers(0, 40))
def test_frames_that_a_reader_has_seen_are_passed_over(sizes: list[list[int]], late: int, early: int) -> None:
    """A reader who caught up from the log and then shares frames that begin earlier gets nothing twice."""
    events, rows = a_log(sizes)
    encoder = FrameEncoder(FeedPosition())
    shared = [frame for event in events for frame in encoder.encode_events([event], rows)]
    reader = ReaderCursor(FeedPosition())
    mine = [new for frame in shared[:late] if (new := reader.new_part(frame))]
    mine += [new for frame in shared[min(early, late) :] if (new := reader.new_part(frame))]
    assert texts(mine) == {id: row.text for id, row in rows.items() if row.text}


@given(SIZES.filter(lambda sizes: any(sum(one) for one in sizes)), st.data())
def test_a_reader_that_missed_the_last_words_of_a_turn_is_notified_and_finds_them_in_the_log(
    sizes: list[list[int]], data: st.DataObject
) -> None:
    """Text that was sent from memory is not sent again; a reader who was looking elsewhere must notice."""
    events, rows = a_log(sizes)
    channel, reader = FrameEncoder(FeedPosition()), ReaderCursor(FeedPosition())
    mine: list[Frame] = []
    for event in events:
        for frame in channel.encode_events([event], rows):
            try:
                mine += [new] if (new := reader.new_part(frame)) else []
            except LookupError:
                page = FrameEncoder(reader.point.copy()).encode_events(events[reader.point.n : event.n], rows)
                mine += [new for one in page if (new := reader.new_part(one))]
        if event.kind != "commit" and data.draw(st.booleans()):
            row = rows[event.turn or ""]
            channel.encode_unflushed(row.id, lambda offset, row=row: row.text[offset:], len(row.text))  # missed
    assert texts(mine) == {id: row.text for id, row in rows.items() if row.text}
    assert [one.kind for one in mine if one.kind == "commit"] == ["commit"] * len(sizes)


@given(st.integers(0, 10**12), st.dictionaries(st.integers(0, 10**6), st.integers(0, 10**7), max_size=5))
def test_a_point_is_read_as_it_was_written(n: int, marks: dict[int, int]) -> None:
    assert FeedPosition.parse(str(FeedPosition(n, marks))) == FeedPosition(n, marks)


@given(st.text(max_size=40))
def test_any_other_text_is_no_point(text: str) -> None:
    point = FeedPosition.parse(text)
    assert point is None or FeedPosition.parse(str(point)) == point
