"""Attachments and their extracted text. Each function is one transaction."""

from __future__ import annotations

from collections.abc import Sequence

from palaver.core.derived_rows import file_key
from palaver.core.identity import canonical_json
from palaver.engines.file_passages import FILE_PARTS, FilePassage, first_part
from palaver.engines.rows import scope_params
from palaver.engines.sqlite import jobs
from palaver.engines.sqlite.open_conversation import open_conversation, require_cid
from palaver.engines.sqlite.proof import Proofs
from palaver.engines.sqlite.queries import Q
from palaver.engines.sqlite.text_index import index_file
from palaver.engines.sqlite.transaction import Tx
from palaver.errors import AttachmentNotFound
from palaver.model import Attachment, FileQuote, FileText, Scope

LOOSE_BATCH = 100  # files deleted in one transaction


def attach(tx: Tx, scope: Scope, conversation: str, attachment: Attachment) -> Attachment:
    conv = open_conversation(tx, scope, conversation)
    known = tx.one(Q.attachment, cid=conv.cid, id=attachment.id)
    if known is not None and Attachment(*known).sha256 == attachment.sha256:
        return Attachment(*known)  # an earlier try of this call stored it
    values = {name: getattr(attachment, name) for name in attachment.__dataclass_fields__ if name != "turn"}
    tx.run(Q.add_attachment, cid=conv.cid, tid=None, created=conv.tick(), **values)
    conv.log("attach", conv.updated, payload={"attachment": attachment.id})
    conv.save()
    return attachment


def attachment(tx: Tx, scope: Scope, conversation: str, id: str) -> Attachment:
    row = tx.one(Q.attachment, cid=require_cid(tx, scope, conversation), id=id)
    if row is None:
        raise AttachmentNotFound(id)
    return Attachment(*row)


def attachments(tx: Tx, scope: Scope, conversation: str, before: str | None, limit: int) -> list[Attachment]:
    cid = require_cid(tx, scope, conversation)
    return [Attachment(*row) for row in tx.all(Q.attachments, cid=cid, before=before, limit=limit)]


def drop_loose_files(tx: Tx, scope: Scope, before: int) -> int:
    """Delete files from before a time that were never attached to a turn. Returns how many there were."""
    rows = tx.all(Q.loose_files, before=before, limit=LOOSE_BATCH, now=tx.now, **scope_params(scope))
    for conversation, aid, id, path in rows:
        conv = open_conversation(tx, scope, conversation)
        tx.run(Q.doom_blob, path=path)
        tx.run(Q.drop_attachment, aid=aid)
        conv.log("detach", conv.tick(), payload={"attachment": id})
        conv.save()
    return len(rows)


def orphans(tx: Tx, scope: Scope, paths: Sequence[str]) -> list[str]:
    """Return the paths that lie in a conversation's folder but belong to no row."""
    return [row[0] for row in tx.all(Q.orphans, paths=canonical_json(list(paths)), **scope_params(scope))]


# ---- extracted text ------------------------------------------------------------------------------------------------


def unread_files(tx: Tx, scope: Scope, conversation: str, limit: int) -> list[Attachment]:
    cid = require_cid(tx, scope, conversation)
    return [Attachment(*row) for row in tx.all(Q.unread_files, cid=cid, limit=limit)]


def put_file_text(tx: Tx, scope: Scope, conversation: str, text: FileText, pieces: Sequence[FilePassage]) -> bool:
    """Store and index the text of a file. False when the file is deleted or was read already."""
    conv = open_conversation(tx, scope, conversation)
    row = tx.one(Q.file_to_read, cid=conv.cid, id=text.attachment)
    if row is None:
        return False
    aid, tid, nth = row
    tx.run(Q.save_read, aid=aid, characters=len(text.text), problem=text.problem)
    first = first_part(nth)
    for part, piece in enumerate(pieces, first):
        tx.run(Q.add_file_passage, aid=aid, tid=tid, part=part, text=piece.text)
    index_file(conv, tid, first, [piece.stems for piece in pieces])
    if pieces:
        jobs.enqueue_embed_job(tx)
    conv.changed(file_key(text.attachment))
    conv.save()
    return True


def file_text(tx: Tx, scope: Scope, conversation: str, id: str) -> FileText | None:
    cid = require_cid(tx, scope, conversation)
    row = tx.one(Q.file_read, cid=cid, id=id)
    if row is None:
        raise AttachmentNotFound(id)
    aid, characters, problem = row
    if characters is None or not Proofs(tx, cid).fits(file_key(id)):  # then it is extracted from the file, as if unread
        return None
    return FileText(id, "".join(piece for (piece,) in tx.all(Q.file_passages, aid=aid)), problem)


def file_quotes(tx: Tx, scope: Scope, tids: Sequence[int], stems: Sequence[str]) -> dict[int, FileQuote]:
    """Return, for each turn, the passage of its files that contains the most stems."""
    best: dict[int, tuple[int, int]] = {}
    wanted = frozenset(stems)
    for tid, part, terms in tx.all(Q.file_terms, tids=canonical_json(list(tids)), first=FILE_PARTS):
        held = len(wanted.intersection(terms.split(" ")))
        if held > best.get(tid, (0, 0))[0]:
            best[tid] = held, part
    found = {}
    for tid, (_, part) in best.items():
        row = tx.one(Q.file_quote, tid=tid, part=part, now=tx.now, **scope_params(scope))
        if row is not None and Proofs(tx, row[-1]).fits(file_key(row[0])):
            found[tid] = FileQuote(*row[:-1])
    return found
