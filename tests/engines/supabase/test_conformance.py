"""The published guarantees through supabase-py and a PostgREST-compatible server, which is not PostgREST: as
signed-in users, and as the application with its secret key. By default those run whose outcome the transport can
change; `make supabase` runs all of them."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from palaver.conversations.internals import components_of
from palaver.conversations.store import Store
from palaver.engines.postgres.supabase import SupabaseEngine
from palaver.model import Scope
from palaver.testing import GUARANTEES, Guarantee
from tests.engines.supabase.conftest import Project

# Signed-in users depend on the database's clock, which no guarantee can set; their ids are UUIDs; and they have no
# access to keys, seals and erasures.
ONLY_THE_APPLICATION = {
    "a_copy_replaces_only_what_was_read",
    "two_stores_that_continued_become_the_same",
    "a_clock_that_was_years_ahead_does_not_date_later_turns",
    "a_log_without_the_name_is_proved",
    "an_erased_person_has_no_memory",
    "an_erased_person_is_nowhere",
    "an_import_brings_no_erased_person_back",
    "erasing_again_finds_nothing",
    "only_an_admin_erases",
    "a_key_ends_when_its_time_is_over_or_it_is_revoked",
    "a_key_is_found_by_its_hash_in_its_own_tenant",
    "a_key_sees_what_it_owns",
    "every_log_that_grew_is_sealed_once",
    "the_log_of_keys_is_chained",
    "a_conversation_expires",
    "a_dead_writers_stream_is_sealed",
    "a_place_is_free_when_its_lease_has_ended",
    "a_sign_of_life_extends_the_lease",
    "a_time_to_live_can_be_changed",
    "a_writer_that_was_taken_for_dead_is_told",
    "an_expired_key_starts_anew",
    "hostile_names_stay_in_the_folder",
    "orphans_are_swept",
    "streams_that_have_expired_are_in_nobodys_way",
    "the_fields_of_a_conversation_are_kept",
    "work_that_waits_is_counted_and_so_is_how_long_it_has",
}
# The functions in the database are those of the Postgres engine, on which the whole kit runs; the transport differs.
# Together these guarantees call every function with each set of arguments that the kit uses, and raise each error.
EVERY_CALL = {
    "a_closed_store_says_so",
    "a_conversation_knows_its_last_event",
    "a_file_belongs_to_one_turn",
    "a_forgotten_conversation_is_gone",
    "a_forgotten_turn_takes_no_more_writes",
    "a_key_of_somebody_else_is_as_unknown_as_none",
    "a_key_stands_for_one_content",
    "a_missing_chunk_is_noticed",
    "a_person_is_remembered_across_conversations",
    "a_quotation_goes_whoever_forgets",
    "a_quotation_goes_with_its_turn",
    "a_retry_cannot_restore_a_forgotten_turn",
    "a_search_for_nothing_finds_nothing",
    "a_stop_is_an_event",
    "a_stream_that_was_under_way_can_go_on_where_it_was_brought",
    "a_subscriber_hears_that_the_store_is_closed",
    "a_subscriber_sees_the_past_and_then_the_present",
    "a_tenant_sees_nothing_of_another",
    "a_title_of_a_job_gives_way",
    "an_aborted_turn_is_no_branch",
    "an_answer_alone_takes_no_place_behind_others",
    "an_answer_that_fails_leaves_the_message",
    "answers_have_the_order_of_their_questions",
    "an_import_does_not_overwrite",
    "an_open_stream_travels",
    "an_update_can_insist_on_what_was_read",
    "another_conversations_turn_is_no_cursor",
    "bytes_come_back",
    "files_that_are_named_are_kept_and_go_with_their_turn",
    "late_writes_find_the_stream_sealed",
    "one_of_two_rivals_wins",
    "only_what_is_shown_can_be_replaced",
    "opening_can_be_retried",
    "requests_are_for_the_owner",
    "streams_are_limited",
    "tokens_are_added_up_by_day_owner_and_model",
    "two_files_of_a_turn_are_told_apart",
    "what_is_learned_of_a_counter_is_kept_per_tenant",
    "what_was_dropped_stays_dropped",
    "what_was_sent_is_on_record_and_goes_with_the_words",
}
# The transport may change a value: these compare what comes back.
EVERY_VALUE = {
    "a_given_time_is_kept",
    "half_characters_are_refused",
    "parts_come_back_in_order",
    "text_is_kept_to_the_letter",
    "tool_results_are_any_json",
    "what_is_no_json_is_refused",
}
PEOPLE = [one for one in GUARANTEES if one.name not in ONLY_THE_APPLICATION]
BY_DEFAULT = {one for one in PEOPLE if one.name in EVERY_CALL | EVERY_VALUE}
APPLICATION = [pytest.param(one, marks=[pytest.mark.slow] if one in PEOPLE else []) for one in GUARANTEES]
AS_PEOPLE = [pytest.param(one, marks=[] if one in BY_DEFAULT else [pytest.mark.slow]) for one in PEOPLE]


class AsApplication:
    """With the secret key any scope is accepted, as on Postgres: the whole kit must pass."""

    def __init__(self, project: Project, files: Path) -> None:
        self.project, self.files = project, files

    def open(self, **options: Any) -> AbstractAsyncContextManager[Store]:
        return self.project.open(**{"key": self.project.lite.secret_key, "files": self.files, **options})


class AsPeople(AsApplication):
    """Each scope that a guarantee uses is that of a user with a token for it."""

    def open(self, **options: Any) -> AbstractAsyncContextManager[Store]:
        tenant, user = options.pop("tenant", "default"), options.pop("user", None)
        scope = options.pop("scope", None) or Scope.of(tenant, user)
        return self.project.open(**{"files": self.files, **options, "token": token_of(self.project, scope)})


def token_of(project: Project, scope: Scope) -> str:
    known = {"palaver_rights": ",".join(scope.rights), "palaver_sight": scope.visibility}
    if scope.workspace is not None:
        known["palaver_workspace"] = scope.workspace
    who = {} if scope.user is None else {"sub": scope.user}
    return project.lite.signed({**who, "app_metadata": {"tenant": scope.tenant, **known}})


@pytest.mark.parametrize("guarantee", APPLICATION, ids=str)
async def test_the_application_keeps(guarantee: Guarantee, project: Project, tmp_path: Path) -> None:
    await guarantee.function(AsApplication(project, tmp_path))


def test_every_name_above_is_a_guarantee() -> None:
    """A renamed guarantee is not left out unnoticed."""
    assert {one.name for one in GUARANTEES} >= ONLY_THE_APPLICATION | EVERY_CALL | EVERY_VALUE


@pytest.mark.parametrize("guarantee", AS_PEOPLE, ids=str)
async def test_people_keep(
    guarantee: Guarantee, project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scoped(store: Store, scope: Scope) -> Store:
        parts = components_of(store)
        here = parts.engine
        assert isinstance(here, SupabaseEngine)
        theirs = SupabaseEngine(here.project, token_of(project, scope), here.clock, here.hub, scope)
        return Store(parts.signed_in(theirs), scope)

    monkeypatch.setattr(Store, "scoped", scoped)
    await guarantee.function(AsPeople(project, tmp_path))
