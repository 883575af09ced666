"""From what a caller hands in to what is stored, and back: round trips and limits. Also ids and hashes."""

from __future__ import annotations

import string
from datetime import UTC, datetime, timedelta, timezone
from pathlib import PurePosixPath
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.core.identity import (
    CROCKFORD,
    canonical_json,
    digest,
    from_json,
    key_hash,
    micros,
    moment,
    new_id,
    stamp,
    stamped_seq,
)
from palaver.core.turn_draft import (
    STORED_FIELDS,
    DraftBuilder,
    TurnDraft,
    content_hash,
    decode_attachments,
    decode_calls,
    decode_content,
    decode_results,
    encode_attachments,
    encode_calls,
    encode_content,
    encode_results,
    is_same_request,
    preview,
)
from palaver.core.validation import (
    MAX_METADATA,
    MAX_NAME,
    MAX_PREVIEW,
    clean_json,
    clean_limit,
    clean_mapping,
    clean_moment,
    clean_name,
    clean_text,
    clean_ttl,
)
from palaver.errors import InvalidInput, TooLarge
from palaver.model import Attachment, File, Image, Reasoning, Text, ToolCall, ToolResult

texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=60)
names = texts.filter(bool)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
# Names that a part knows itself are not extra.
extras = st.dictionaries(
    names.filter(lambda n: n not in {"type", "text", "url", "attachment", "filename", "media_type", "signature"}),
    json_values,
    max_size=2,
)
parts = st.one_of(
    st.builds(Text, texts, extra=extras),
    st.builds(Image, url=texts, attachment=st.none() | texts, media_type=st.none() | texts, extra=extras),
    st.builds(File, url=st.none() | texts, attachment=names, filename=st.none() | texts, extra=extras),
    st.builds(Reasoning, texts, signature=st.none() | texts, extra=extras),
)
contents = texts | st.lists(parts, max_size=5).map(tuple)
calls = st.lists(st.builds(ToolCall, names, names, json_values), max_size=4, unique_by=lambda call: call.id).map(tuple)
results = st.lists(
    st.builds(ToolResult, names, json_values, st.booleans()), max_size=4, unique_by=lambda one: one.id
).map(tuple)
moments = st.datetimes(timezones=st.timezones() | st.just(UTC))

desk = DraftBuilder(len)


# ---- round trips ---------------------------------------------------------------------------------------------------


@given(contents)
def test_content_comes_back(content: Any) -> None:
    assert decode_content(*encode_content(content)) == content


@given(calls, results)
def test_tool_fields_come_back(some_calls: tuple[ToolCall, ...], some_results: tuple[ToolResult, ...]) -> None:
    assert decode_calls(encode_calls(some_calls)) == some_calls
    assert decode_results(encode_results(some_results)) == some_results


@given(st.lists(st.builds(Attachment, names, names, names, st.integers(0, 2**40), names), max_size=5).map(tuple))
def test_attachments_come_back(files: tuple[Attachment, ...]) -> None:
    back = decode_attachments(encode_attachments(files), "turn")
    assert [(one.id, one.filename, one.media_type, one.bytes, one.sha256) for one in back] == [
        (one.id, one.filename, one.media_type, one.bytes, one.sha256) for one in files
    ]
    assert {one.turn for one in back} <= {"turn"}


def test_an_id_in_place_of_an_attachment_is_refused_with_the_method_that_looks_it_up() -> None:
    with pytest.raises(InvalidInput, match=r"attachment\(id\)"):
        encode_attachments(["01M7R8000000000000000000AA"])  # type: ignore[list-item]


@given(json_values)
def test_json_comes_back_and_has_one_text(value: Any) -> None:
    text = clean_json("field", value)
    assert from_json(text) == value
    assert canonical_json(from_json(text)) == text


@given(st.dictionaries(texts, json_values, max_size=5))
def test_the_order_of_keys_does_not_matter(value: dict[str, Any]) -> None:
    assert clean_mapping("field", dict(reversed(value.items()))) == clean_mapping("field", value)


@given(moments)
def test_a_moment_comes_back_in_utc(when: datetime) -> None:
    try:
        cleaned = clean_moment("created", when)
    except InvalidInput:
        assert when.year in (1, 9999)  # its UTC is outside the calendar
        return
    assert moment(cleaned) == when.astimezone(UTC)
    assert clean_moment("created", moment(cleaned).isoformat()) == cleaned
    assert micros(moment(cleaned)) == cleaned


def test_a_time_without_a_zone_is_refused_with_a_hint() -> None:
    for naive in (datetime(2026, 5, 1, 12), "2026-05-01T12:00:00"):  # noqa: DTZ001
        with pytest.raises(InvalidInput, match=r"created: has no time zone: write .*Z, or datetime.now\(UTC\)"):
            clean_moment("created", naive)


def test_a_date_alone_is_the_beginning_of_the_day_in_utc() -> None:
    assert clean_moment("since", "2026-05-01") == clean_moment("since", datetime(2026, 5, 1, tzinfo=UTC))


def test_a_moment_outside_the_calendar_is_refused() -> None:
    for when in (
        datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14))),
        datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-12))),
    ):
        with pytest.raises(InvalidInput, match="created"):
            clean_moment("created", when)


# ---- refusals ------------------------------------------------------------------------------------------------------


@given(texts, texts, st.sampled_from("\0\ud800\udfff"))
def test_text_that_no_database_keeps_is_refused_also_inside_json(before: str, after: str, bad: str) -> None:
    text = before + bad + after
    with pytest.raises(InvalidInput, match="field"):
        clean_text("field", text)
    for value in ([text], {"a": {"b": text}}, {text: 1}):
        with pytest.raises(InvalidInput, match="field"):
            clean_json("field", value)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"at": object()}, "metadata: contains a value of type object, which JSON does not have"),
        ({"at": PurePosixPath("secret")}, "metadata: contains a value of type PurePosixPath"),
        ({"at": {1: "secret"}}, "metadata: contains a key that is not text"),
        ({"at": "\ud800secret"}, "metadata: contains half of a surrogate pair"),
    ],
)
def test_what_json_does_not_have_is_named_and_not_quoted(value: object, problem: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        clean_json("metadata", value)
    assert problem in str(refusal.value)
    assert "secret" not in str(refusal.value)


def test_a_value_that_contains_itself_is_refused_with_the_limit() -> None:
    value: list[object] = []
    value.append(value)
    with pytest.raises(InvalidInput, match="has more than 100 nested lists or objects"):
        clean_json("metadata", value)


@given(texts, st.integers(0, 5))
def test_what_only_looks_like_nul_is_kept(text: str, backslashes: int) -> None:
    value = [text + "\\" * backslashes + "u0000"]
    assert from_json(clean_json("field", value)) == value


@given(json_values, st.sampled_from([float("nan"), float("inf"), float("-inf")]))
def test_numbers_that_json_does_not_have_are_refused(value: Any, bad: float) -> None:
    for wrong in (bad, [value, bad], {"a": value, "b": {"c": (bad,)}}):
        with pytest.raises(InvalidInput, match="field"):
            clean_json("field", wrong)


@given(st.integers(-2, 2), st.sampled_from(["x", "ü", "🙂"]))
def test_a_name_is_measured_in_bytes(over: int, letter: str) -> None:
    size = len(letter.encode())
    name = letter * (MAX_NAME // size + over)
    if len(name.encode()) <= MAX_NAME:
        assert clean_name("field", name) == name
    else:
        with pytest.raises(TooLarge) as caught:
            clean_name("field", name)
        assert (caught.value.field, caught.value.size, caught.value.limit) == ("field", len(name) * size, MAX_NAME)


@pytest.mark.parametrize("over", [-1, 0, 1])
def test_metadata_is_measured_as_stored(over: int) -> None:
    value = {"m": "x" * (MAX_METADATA - len('{"m":""}') + over)}
    if over <= 0:
        assert len(clean_mapping("metadata", value) or "") == MAX_METADATA + over
    else:
        with pytest.raises(TooLarge, match="metadata: 65,537 bytes is over the limit of 65,536 bytes"):
            clean_mapping("metadata", value)


@given(st.one_of(st.integers(max_value=-1), st.integers(min_value=11), st.booleans(), st.floats(), st.text()))
def test_a_limit_is_a_whole_number_in_its_range(value: Any) -> None:
    with pytest.raises(InvalidInput, match="limit"):
        clean_limit("limit", value, 10)


@given(st.floats(min_value=1e-6, max_value=1e9))
def test_a_time_to_live_is_kept_to_the_microsecond(seconds: float) -> None:
    kept = clean_ttl(seconds)
    assert kept is not None
    assert kept >= 1
    assert abs(kept - seconds * 1_000_000) <= 0.5


@given(st.builds(Text, texts, extra=st.just({"type": "reasoning"})))
def test_an_extra_field_cannot_change_what_a_part_is(part: Text) -> None:
    [back] = decode_content(*encode_content([part]))
    assert isinstance(back, Text)
    assert back.text == part.text


# ---- whole turns ---------------------------------------------------------------------------------------------------


@given(contents, st.dictionaries(texts, json_values, max_size=3))
def test_a_retry_says_the_same_and_has_another_salt(content: Any, metadata: dict[str, Any]) -> None:
    first = desk.draft("a", "user", content, actor="ada", metadata=metadata)
    again = desk.draft("b", "user", content, actor="ada", metadata=dict(reversed(metadata.items())))
    assert is_same_request(first, again)
    assert first.salt != again.salt


@given(contents, contents)
def test_another_content_is_another_request(one: Any, other: Any) -> None:
    first, second = (desk.draft("a", "user", content, actor="ada") for content in (one, other))
    assert is_same_request(first, second) == (one == other)


@given(texts)
def test_a_preview_is_one_short_line(text: str) -> None:
    line = preview(text)
    assert (line is None) == (not text.strip() or not any(part.strip() for part in text.splitlines()))
    if line is not None:
        assert 0 < len(line) <= MAX_PREVIEW
        assert line.splitlines() == [line]
        assert line == line.strip()


# ---- ids and hashes ------------------------------------------------------------------------------------------------


@given(st.integers(0, 32**7 - 1))
def test_an_id_says_where_its_turn_is(seq: int) -> None:
    id = new_id()
    stamped = stamp(id, seq)
    assert stamped_seq(stamped) == seq
    assert stamped[:19] == id[:19]
    assert len(stamped) == 26
    assert set(stamped) <= set(CROCKFORD)


@given(st.integers(0, 32**7 - 1), st.integers(0, 32**7 - 1))
def test_stamps_sort_like_their_numbers(one: int, other: int) -> None:
    id = new_id()
    assert (stamp(id, one) < stamp(id, other)) == (one < other)


@given(texts)
def test_a_text_that_is_no_id_claims_no_place(text: str) -> None:
    claimed = stamped_seq(text)
    assert claimed is None or (len(text) == 26 and stamp(text, claimed) == text)


def test_new_ids_differ_before_the_stamp() -> None:
    assert len({stamp(new_id(), 0) for _ in range(5_000)}) == 5_000


fields = st.lists(st.none() | texts | st.binary(max_size=20), max_size=5)


@given(fields, fields)
def test_different_fields_have_different_hashes(one: list[Any], other: list[Any]) -> None:
    assert (digest(one) == digest(other)) == (_as_bytes(one) == _as_bytes(other))


def _as_bytes(values: list[Any]) -> list[bytes | None]:
    return [value.encode() if isinstance(value, str) else value for value in values]


@given(st.lists(st.none() | texts, min_size=1, max_size=5), st.data())
def test_moving_a_letter_between_fields_changes_the_hash(values: list[str | None], data: st.DataObject) -> None:
    text = "".join(value or "" for value in values)
    cut = data.draw(st.integers(0, len(text)))
    moved = [text[:cut], text[cut:]]
    assert (digest(moved) == digest(values)) == (moved == values)


# The id and the time of a draft may be replaced when it is stored, so they are arguments of their own.
HASHED_FIELDS = [one for one in msgspec.structs.fields(TurnDraft) if one.name in set(STORED_FIELDS) - {"id", "created"}]


@given(st.data(), st.sampled_from(HASHED_FIELDS))
def test_every_field_is_in_the_content_hash(data: st.DataObject, field: msgspec.structs.FieldInfo) -> None:
    draft = desk.draft("id", "user", "hello", actor="ada")
    value = data.draw(st.from_type(field.type))
    changed = msgspec.structs.replace(draft, **{field.name: value})
    same = getattr(draft, field.name) == value
    assert (content_hash("id", draft, 1) == content_hash("id", changed, 1)) == same
    assert content_hash("id", draft, 1) != content_hash("id", draft, 2)
    assert content_hash("id", draft, 1) != content_hash("other", draft, 1)


@given(names, names)
def test_the_hash_of_a_key_is_the_conversations_own(conversation: str, key: str) -> None:
    assert key_hash(conversation, key) != key_hash(conversation + "x", key)
    assert set(key_hash(conversation, key).removeprefix("sha256:")) <= set(string.hexdigits)


@given(st.integers(min_value=-(2**54), max_value=2**54))
def test_every_microsecond_is_a_moment_of_its_own(at: int) -> None:
    assert micros(moment(at)) == at
    assert moment(at).utcoffset() == timedelta(0)
