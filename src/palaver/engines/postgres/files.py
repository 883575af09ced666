"""Attachments and the text extracted from them, on Postgres. Each method is one transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict

from palaver.engines.postgres.rows import file_words
from palaver.engines.postgres.rpc import EnginePart
from palaver.engines.postgres.transports import as_json, unhex
from palaver.model import Attachment, FileQuote, FileText, Scope

LOOSE_BATCH = 100  # files per call
IN_DATABASE = "database/"  # prefix of the paths of files that SQL stored in the database (see compat/hal.sql)


class PostgresFiles(EnginePart):
    async def attach(self, scope: Scope, conversation: str, attachment: Attachment) -> Attachment:
        found = await self.write("attach", scope, conversation=conversation, attachment=as_json(asdict(attachment)))
        if not found[0]["attach"]:
            return await self.attachment(scope, conversation, attachment.id)
        self.hub.committed(conversation)
        return attachment

    async def attachment(self, scope: Scope, conversation: str, id: str) -> Attachment:
        """Read from the primary: a turn may take a file that was attached a moment ago."""
        row = (await self.write("attachment", scope, conversation=conversation, id=id))[0]
        return Attachment(id=id, **row)

    async def attachments(self, scope: Scope, conversation: str, before: str | None, limit: int) -> list[Attachment]:
        found = await self.read("attachments", scope, conversation=conversation, before=before, most=limit)
        return [Attachment(**row) for row in found]

    async def drop_loose_files(self, scope: Scope, before: int) -> int:
        return int((await self.write("drop_loose_files", scope, before=before, most=LOOSE_BATCH))[0]["dropped"])

    async def orphans(self, scope: Scope, paths: Sequence[str]) -> list[str]:
        return [row["path"] for row in await self.write("orphans", scope, paths=list(paths))]

    async def unread_files(self, scope: Scope, conversation: str, limit: int) -> list[Attachment]:
        found = await self.write("unread_files", scope, conversation=conversation, most=limit)
        return [Attachment(**row) for row in found]

    async def put_file_text(self, scope: Scope, conversation: str, text: FileText) -> bool:
        pieces = await asyncio.to_thread(lambda: as_json(file_words(text.text)))
        args = {"file": text.attachment, "length": len(text.text), "trouble": text.problem, "pieces": pieces}
        return bool((await self.write("put_file_text", scope, conversation=conversation, **args))[0]["stored"])

    async def file_text(self, scope: Scope, conversation: str, id: str) -> FileText | None:
        row = (await self.read("file_text", scope, conversation=conversation, file=id))[0]
        return None if row["length"] is None else FileText(id, row["words"] or "", row["trouble"])

    async def file_quotes(self, scope: Scope, tids: Sequence[int], stems: Sequence[str]) -> dict[int, FileQuote]:
        found = await self.read("file_quotes", scope, tids=list(tids), stems=list(stems))
        return {row["tid"]: FileQuote(row["attachment"], row["filename"], row["quote"]) for row in found}

    async def file_in_database(self, scope: Scope, path: str) -> bytes | None:
        if not path.startswith(IN_DATABASE):
            return None
        found = await self.read("kept_file", scope, path=path)
        return unhex(found[0]["data"]) if found else None
