"""The settings of a conversation: what is refused, what is only pointed out, and what older versions stored."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import pytest

from palaver import Store
from palaver.conversations.internals import components_of, engine_of
from palaver.core.identity import canonical_json
from palaver.errors import InvalidInput, SettingsConflict
from palaver.interchange.jsonl import export_lines, import_dump, read_dumps
from palaver.model import Scope
from palaver.ports.queries import ConversationSpec

pytestmark = [pytest.mark.both_engines, pytest.mark.usefixtures("engine")]

MISSPELT = {
    "redcat": "redact",
    "Redact": "redact",
    "compction": "compaction",
    "retentions": "retention",
    "fact": "facts",
}


async def stored_by_an_older_version(store: Store, settings: Mapping[str, Any]) -> str:
    """A conversation whose settings were not checked."""
    spec = ConversationSpec(
        id=components_of(store).ids(), owner="", key="old", settings=canonical_json(settings), salt=b"0" * 16
    )
    return (await engine_of(store).open_conversation(store.scope, spec)).id


@pytest.mark.parametrize(("name", "meant"), MISSPELT.items())
async def test_a_misspelt_setting_is_refused_with_a_suggestion(store: Store, name: str, meant: str) -> None:
    talk = await store.conversation("k")
    for attempt in (store.conversation("new", settings={name: True}), talk.update(settings={name: True})):
        with pytest.raises(InvalidInput, match=f"did you mean '{meant}'") as refusal:
            await attempt
        assert refusal.value.field == f"settings.{name}"
    assert [event.kind for event in await talk.audit()] == ["create"]
    assert (await store.stats()).conversations == 1


async def test_data_of_the_application_is_sent_to_metadata(store: Store) -> None:
    with pytest.raises(InvalidInput, match="goes into metadata"):
        await store.conversation(settings={"colour_of_the_page": "blue"})


async def test_settings_that_an_older_version_stored_stay_readable_and_changeable(store: Store) -> None:
    id = await stored_by_an_older_version(store, {"mine": 1, "redact": True})
    talk = await store.get(id)
    assert (await talk.append("user", "My card is 4111 1111 1111 1111.")).text == "My card is [card]."
    changed = await talk.update(settings={**talk.info.settings, "facts": True})
    assert changed.settings == {"mine": 1, "redact": True, "facts": True}
    with pytest.raises(InvalidInput):
        await talk.update(settings={"mine": 2})
    await talk.verify()


async def test_settings_that_an_older_version_stored_are_restored(store: Store) -> None:
    id = await stored_by_an_older_version(store, {"mine": 1})
    lines = [line async for line in export_lines(await store.get(id))]
    elsewhere = store.scoped(Scope.of("elsewhere", None))
    [dump] = read_dumps(lines)
    copy = await import_dump(elsewhere, dump)
    assert copy is not None
    assert copy.info.settings == {"mine": 1}
    await copy.verify()


@pytest.mark.parametrize(
    "metadata", [{"redact": True}, {"compaction": {"triggerTurns": 9}}, {"retention": "ephemeral"}, {"facts": False}]
)
async def test_a_setting_in_metadata_is_stored_and_pointed_out(store: Store, metadata: dict[str, Any]) -> None:
    (name,) = metadata
    with pytest.warns(UserWarning, match=rf"metadata\.{name} has no effect"):
        talk = await store.conversation("k", metadata=metadata)
    assert talk.info.metadata == metadata
    with pytest.warns(UserWarning, match=rf"metadata\.{name} has no effect") as caught:
        await talk.update(metadata=metadata)
    assert caught[0].filename == __file__


async def test_names_of_other_systems_lead_to_the_page_with_those_names(store: Store) -> None:
    with pytest.warns(UserWarning, match=r"give it as settings\.compaction; see docs/come-from"):
        talk = await store.conversation("k", metadata={"compaction": {"triggerTurns": 9}})
    with pytest.raises(InvalidInput, match=r"did you mean 'trigger_turns'\?; see docs/come-from"):
        await talk.update(settings={"compaction": {"triggerTurns": 9}})
    with pytest.raises(InvalidInput, match=r"did you mean 'recent_turns'\?; see docs/come-from"):
        await talk.build_context(1_000, recentTurns=3)  # type: ignore[call-arg]
    with pytest.raises(InvalidInput, match=r"did you mean 'trigger_turns'\?\)"):
        await talk.update(settings={"compaction": {"trigger_turn": 9}})


async def test_metadata_that_only_shares_a_name_is_left_alone(store: Store) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        await store.conversation(metadata={"facts": ["sky: blue"], "retention": 90, "compaction": "tight", "note": 1})


# ---- settings of a conversation that exists ------------------------------------------------------------------------

SAME: list[tuple[Any, Any]] = [
    ({"redact": True}, {"redact": True}),
    ({"redact": True, "facts": True}, {"redact": True}),
    ({}, {"redact": False, "retention": "full", "facts": False}),
    ({}, {"compaction": {"trigger_turns": 50, "strategy": "hierarchical"}}),
    ({"compaction": {"trigger_turns": 9}}, {"compaction": {"trigger_turns": 9}}),
    ({"context": {"policy": "last-20", "recent_turns": 3}}, {"context": {"policy": "last-20"}}),
    ({"redact": True}, {}),
    ({"redact": True}, None),
]
OTHER: list[tuple[Any, Any, str]] = [
    ({}, {"redact": True}, "settings.redact"),
    ({"redact": True}, {"redact": False}, "settings.redact"),
    ({}, {"retention": "ephemeral"}, "settings.retention"),
    ({}, {"compaction": {"trigger_turns": 9}}, "settings.compaction.trigger_turns"),
    ({"compaction": {"strategy": "never"}}, {"compaction": {"strategy": "rolling"}}, "settings.compaction.strategy"),
    ({"context": {"policy": "last-20"}}, {"context": {"policy": "balanced"}}, "settings.context.policy"),
    ({}, {"context": {"token_budget": 900}}, "settings.context.token_budget"),
]


@pytest.mark.parametrize(("stored", "given"), SAME)
async def test_settings_that_a_conversation_has_already_are_accepted(store: Store, stored: Any, given: Any) -> None:
    talk = await store.conversation("k", settings=stored)
    again = await store.conversation("k", settings=given)
    assert (again.id, again.info.settings) == (talk.id, stored)


@pytest.mark.parametrize(("stored", "given", "field"), OTHER)
async def test_other_settings_of_a_conversation_that_exists_are_refused(
    store: Store, stored: Any, given: Any, field: str
) -> None:
    talk = await store.conversation("k", settings=stored)
    with pytest.raises(SettingsConflict, match=r"update\(settings=…\)") as refusal:
        await store.conversation("k", settings=given)
    assert (refusal.value.field, refusal.value.conversation) == (field, talk.id)
    assert (await talk.refresh()).settings == stored
    assert (await talk.update(settings=given)).settings == given
    assert (await store.conversation("k", settings=given)).id == talk.id


INNER = {
    "compaction.triggerTurns": ({"compaction": {"triggerTurns": 9}}, "trigger_turns"),
    "compaction.summarizerModel": ({"compaction": {"summarizerModel": "x"}}, "summarizer_model"),
    "context.polcy": ({"context": {"polcy": "last-20"}}, "policy"),
}


@pytest.mark.parametrize("name", INNER)
async def test_a_misspelt_name_inside_is_refused_with_a_suggestion(store: Store, name: str) -> None:
    settings, meant = INNER[name]
    with pytest.raises(InvalidInput, match=f"did you mean '{meant}'") as refusal:
        await store.conversation("k", settings=settings)  # type: ignore[arg-type]
    assert refusal.value.field == f"settings.{name}"
