"""An app on Supabase: each user reads and writes with their own token, under row level security.

    pip install "palaver[supabase]"
    python examples/supabase_app.py

Without settings, it runs offline on an SQLite file. The code is the same on every engine. To use a Supabase project,
create the schema first (`palaver migrate --sql --supabase`, docs/how-to/supabase.md). Then set

    SUPABASE_URL     https://yourproject.supabase.co
    SUPABASE_KEY     the publishable key; never the secret one
    SUPABASE_TOKEN   the access token of the user's session: the database takes tenant and user from it
"""

import asyncio
import os
from pathlib import Path
from tempfile import TemporaryDirectory

import palaver


def open_store(folder: Path) -> palaver.Opening:
    if project := os.environ.get("SUPABASE_URL"):
        key, token = os.environ["SUPABASE_KEY"], os.environ["SUPABASE_TOKEN"]
        return palaver.open(f"supabase+{project}", key=key, token=token)
    print("SUPABASE_URL is not set: this runs on an SQLite file.")
    return palaver.open(f"sqlite:///{folder}/app.db", user="ada")


async def main(folder: Path) -> None:
    async with open_store(folder) as store:
        talk = await store.conversation("support/42", title="Order 42")
        await talk.append("user", "My order 42 arrived with a broken lamp.")
        await talk.append("assistant", "I am sorry. A new lamp is on its way.")
        context = await talk.build_context(1_000, message="What was wrong with my order?")
        print(context.text)
        print(f"{context.tokens} tokens; {[one.title for one in (await store.conversations()).items]}")
        print("verified:", (await talk.verify()).turns, "turns")
        await talk.forget()


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        asyncio.run(main(Path(folder)))
