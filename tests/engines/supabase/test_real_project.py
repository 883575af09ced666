"""A real Supabase project, if one is configured: it needs the schema, and the tokens of two users.

PALAVER_TEST_SUPABASE_URL (https://…), PALAVER_TEST_SUPABASE_KEY (publishable), PALAVER_TEST_SUPABASE_TOKEN and
PALAVER_TEST_SUPABASE_OTHER_TOKEN. The test deletes what it stores.
"""

from __future__ import annotations

import os
from uuid import uuid4

import pytest

import palaver
from palaver.conversations.internals import components_of

NAMES = [f"PALAVER_TEST_SUPABASE_{name}" for name in ("URL", "KEY", "TOKEN", "OTHER_TOKEN")]
MISSING = [name for name in NAMES if not os.environ.get(name)]


@pytest.mark.skipif(bool(MISSING), reason=f"no real Supabase project to test: {', '.join(MISSING)} not set")
async def test_a_real_project_keeps_a_conversation_for_its_owner() -> None:
    url, key, token, other_token = (os.environ[name] for name in NAMES)
    async with palaver.open(f"supabase+{url}", key=key, token=token) as store:
        other = await store.signed_in(other_token)
        talk = await store.conversation(f"palaver-test/{uuid4()}")
        try:
            await talk.append_many([{"role": "user", "content": f"Plan {n} is green."} for n in range(60)])
            async with talk.stream("assistant", actor="bot") as out:
                await out.write("Noted.")
            file = await talk.attach(b"bytes", filename="note.txt")
            await talk.append("user", "See this.", attachments=[file])
            await store.settle()
            assert [turn.text for turn in await talk.history(limit=2)] == ["Noted.", "See this."]
            assert await talk.recall("plan 7")
            assert await talk.read_attachment(file) == b"bytes"
            await talk.verify()
            with pytest.raises(palaver.ConversationNotFound):
                await other.get(talk.id)
            with pytest.raises(palaver.PalaverError):
                await components_of(other).blobs.get(file.path)
        finally:
            await talk.forget()
        with pytest.raises(palaver.ConversationGone):
            await talk.history()
