"""The published guarantees, on a Citus cluster, for tenants on several nodes in turn."""

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from palaver.conversations.store import Store
from palaver.testing import GUARANTEES, DatabaseAt, Guarantee

TENANTS = ("acme", "beta", "gamma", "delta", "epsilon")
# These name the tenant `default` themselves.
OF_DEFAULT = {"the_fields_of_a_conversation_are_kept", "sight_can_be_wider", "rights_are_checked"}


@dataclass(frozen=True, slots=True)
class DatabaseOfTenant:
    """A database whose stores belong to one tenant, unless they name another."""

    database: DatabaseAt
    tenant: str

    def open(self, **options: Any) -> AbstractAsyncContextManager[Store]:
        return self.database.open(**{"tenant": self.tenant, **options})


@pytest.mark.parametrize(("place", "guarantee"), list(enumerate(GUARANTEES)), ids=str)
async def test_citus_keeps(place: int, guarantee: Guarantee, citus_url: str, tmp_path: Path) -> None:
    tenant = "default" if guarantee.name in OF_DEFAULT else TENANTS[place % len(TENANTS)]
    await guarantee.function(DatabaseOfTenant(DatabaseAt(citus_url, files=tmp_path), tenant))
