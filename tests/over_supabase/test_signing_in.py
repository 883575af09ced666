"""Who is asking is who the token says: on each request, and nowhere else."""

from __future__ import annotations

from tests.over_supabase.conftest import Project
from tests.supabase_server import user_id


async def test_a_signed_in_user_talks(project: Project) -> None:
    async with project.as_user("ada") as store:
        talk = await store.conversation("k")
        await talk.append("user", "I'm allergic to peanuts.")
        assert [turn.text for turn in await talk.history()] == ["I'm allergic to peanuts."]
        assert (store.scope.tenant, store.scope.user) == ("acme", user_id("ada"))
        await talk.verify()
