"""The client of a Palaver server: the library's methods over HTTP.

    async with palaver.open("https://memory.example", key="pk_…") as store:
        talk = await store.conversation("support/42")

`palaver.sync.open` takes the same address for programs without asyncio. Errors are those of the library.
"""

from palaver.conversations.remote.conversation import RemoteConversation
from palaver.conversations.remote.store import RemoteStore

__all__ = ["RemoteConversation", "RemoteStore"]
