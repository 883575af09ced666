"""The services of one conversation, each with exactly what it needs."""

from __future__ import annotations

from palaver.conversations.answers import Answers
from palaver.conversations.append import TurnAppender
from palaver.conversations.attachments import AttachmentReader, AttachmentWriter
from palaver.conversations.components import Components
from palaver.conversations.contexts import Contexts
from palaver.conversations.deletion import Forgetter
from palaver.conversations.directory import Directory
from palaver.conversations.emptiness import EmptyResults
from palaver.conversations.file_copies import FileCopies
from palaver.conversations.handle import Handle
from palaver.conversations.history import ThreadReader
from palaver.conversations.log import ConversationLog
from palaver.conversations.memory import ConversationMemory
from palaver.conversations.recall import ConversationRecall
from palaver.conversations.redaction import TurnRedaction
from palaver.conversations.storage_room import StorageRoom
from palaver.conversations.streams import TurnStreams
from palaver.files.reader import Files
from palaver.generation.services import GenerationServices


class ConversationServices:
    """Connects the services of one conversation."""

    def __init__(self, parts: Components, handle: Handle) -> None:
        telemetry, threads = parts.generation.telemetry, parts.generation.provider_threads
        empties = EmptyResults(parts.engine, parts.meter)
        self.redaction = TurnRedaction(handle, parts.redactor)
        self.attachments = AttachmentReader(handle, Files(parts.engine, parts.blobs), self.redaction, empties)
        room = StorageRoom(handle, parts.budgets)
        self.uploads = AttachmentWriter(handle, parts.blobs, parts.clock, parts.ids, self.redaction, room)
        copies = FileCopies(self.attachments, self.uploads)
        self.appender = TurnAppender(handle, parts.drafts, parts.ids, self.redaction, copies, parts.meter, room)
        self.streams = TurnStreams(
            handle, self.appender, parts.drafts, self.redaction, parts.held_back, parts.meter, room, parts.stream_lease
        )
        self.thread = ThreadReader(handle, threads, empties)
        self.forgetter = Forgetter(handle, parts.blobs, threads, telemetry)
        self.contexts = Contexts(
            handle, parts.contexts, self.attachments, parts.generation, empties, parts.meter, telemetry
        )
        self.recall = ConversationRecall(handle, parts.contexts.recall, telemetry, empties)
        self.memory = ConversationMemory(handle, parts.worker, telemetry, self.redaction, empties)
        self.log = ConversationLog(handle, self.attachments)
        self.answers = Answers(handle, self._generation_services(parts, handle))

    def _generation_services(self, parts: Components, handle: Handle) -> GenerationServices:
        return GenerationServices(
            shared=parts.generation,
            engine=parts.engine,
            scope=handle.scope,
            clock=parts.clock,
            ids=parts.ids,
            meter=parts.meter,
            contexts=self.contexts,
            search=Directory(
                parts.engine,
                handle.scope,
                parts.ids,
                parts.redactor,
                parts.budgets,
                EmptyResults(parts.engine, parts.meter),
            ).search,
            budgets=parts.budgets,
            lease=parts.stream_lease,
            redact_content=self.redaction.redact_text,
            redact_record=parts.redact_record,
        )
