"""The published guarantees through supabase-py and a PostgREST-compatible server, which is not PostgREST: as people who
are signed in, and as the application with its secret key."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from tests.over_supabase.conftest import Project

from palaver.engines.postgres.supabase import SupabaseEngine
from palaver.model import Scope
from palaver.store import Store, _store_of
from palaver.testing import GUARANTEES, Guarantee

# Signed in, one lives by the database's clock, which no guarantee can set; users have no such names; and keys and seals
# are nothing to them.
ONLY_THE_APPLICATION = {
    "a_key_ends_when_its_time_is_over_or_it_is_revoked",
    "a_key_is_found_by_its_hash_in_its_own_tenant",
    "every_log_that_grew_is_sealed_once",
    "the_log_of_keys_is_chained",
    "a_conversation_expires",
    "a_dead_writers_stream_is_sealed",
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
PEOPLE = [one for one in GUARANTEES if one.name not in ONLY_THE_APPLICATION]
APPLICATION = [pytest.param(one, marks=[pytest.mark.slow] if one in PEOPLE else []) for one in GUARANTEES]


class AsApplication:
    """Everybody's words are believed, as on Postgres: the whole kit must hold."""

    def __init__(self, project: Project, files: Path) -> None:
        self.project, self.files = project, files

    def open(self, **options: Any) -> AbstractAsyncContextManager[Store]:
        return self.project.open(**{"key": self.project.lite.secret_key, "files": self.files, **options})


class AsPeople(AsApplication):
    """Each scope that a guarantee asks for is somebody with a token that says so."""

    def open(self, **options: Any) -> AbstractAsyncContextManager[Store]:
        tenant, user = options.pop("tenant", "default"), options.pop("user", None)
        scope = options.pop("scope", None) or Scope.of(tenant, user)
        return self.project.open(**{"files": self.files, **options, "token": token_of(self.project, scope)})


def token_of(project: Project, scope: Scope) -> str:
    known = {"palaver_rights": ",".join(scope.rights), "palaver_sight": scope.sight}
    if scope.workspace is not None:
        known["palaver_workspace"] = scope.workspace
    who = {} if scope.user is None else {"sub": scope.user}
    return project.lite.signed({**who, "app_metadata": {"tenant": scope.tenant, **known}})


@pytest.mark.parametrize("guarantee", APPLICATION, ids=str)
async def test_the_application_keeps(guarantee: Guarantee, project: Project, tmp_path: Path) -> None:
    await guarantee.function(AsApplication(project, tmp_path))


@pytest.mark.parametrize("guarantee", PEOPLE, ids=str)
async def test_people_keep(
    guarantee: Guarantee, project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scoped(store: Store, scope: Scope) -> Store:
        here = store.engine
        assert isinstance(here, SupabaseEngine)
        return _store_of(
            store.parts, SupabaseEngine(here.project, token_of(project, scope), here.clock, here.hub, scope)
        )

    monkeypatch.setattr(Store, "scoped", scoped)
    await guarantee.function(AsPeople(project, tmp_path))
