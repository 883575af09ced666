"""The settings of a conversation: what is refused, what is only pointed out, and what older versions stored."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import pytest

from palaver import Store
from palaver.conversations.internals import components_of
from palaver.core.identity import canonical_json
from palaver.errors import InvalidInput
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
    return (await components_of(store).engine.open_conversation(store.scope, spec)).id


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


async def test_metadata_that_only_shares_a_name_is_left_alone(store: Store) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        await store.conversation(metadata={"facts": ["sky: blue"], "retention": 90, "compaction": "tight", "note": 1})
