"""The table of HTTP operations: routes and the OpenAPI document are made from it.

Every public method of `Store`, `Conversation` and `Subject` is in the table, or in `NOT_OVER_HTTP` with the reason. A
test checks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from palaver.server.compat import schemas as foreign
from palaver.server.compat.ai_sdk import routes as ai_sdk
from palaver.server.compat.anthropic import routes as anthropic
from palaver.server.compat.errors import STATUSES
from palaver.server.compat.openai_chat import routes as openai_chat
from palaver.server.compat.openai_chat import stored as stored_chat
from palaver.server.compat.openai_conversations import routes as openai_conversations
from palaver.server.compat.openai_embeddings import routes as openai_embeddings
from palaver.server.compat.openai_responses import compact as compact_responses
from palaver.server.compat.openai_responses import routes as openai_responses
from palaver.server.rest import (
    admin,
    attachments,
    budgets,
    conversations,
    events,
    generate,
    imports,
    memory,
    models,
    people,
    schemas,
    streams,
    turns,
)

CONVERSATION = "/conversations/{conversation}"
TURN = CONVERSATION + "/turns/{turn}"
STREAM = CONVERSATION + "/streams/{turn}"
FILE = CONVERSATION + "/attachments/{attachment}"
UPLOAD = CONVERSATION + "/uploads/{upload}"
PERSON = "/people/{person}"
ITEM = PERSON + "/facts/{item}"
NOTES = CONVERSATION + "/memory/{list}"

# Error statuses of every operation, and of every operation on a conversation.
ALWAYS = (400, 401, 403, 408, 413, 421, 422, 429, 500, 503, 504)
NAMED = (404, 410)
STORING = ("POST", "PUT")  # methods that a budget may refuse with 402


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation: the methods behind it, and how it is called over HTTP. It is named after its handler."""

    verbs: tuple[str, ...]
    method: str
    path: str
    handler: Callable[..., Any]
    answer: type[BaseModel] | None
    tag: str
    status: int = 200
    also: tuple[int, ...] = ()  # further statuses
    media: str = "application/json"
    takes: tuple[str, ...] = ()  # media types of a body that is not JSON
    prefix: str = "/api"
    dialect: str = "problem"  # format of its errors
    streams: bool = False  # can reply with server-sent events
    body: type[BaseModel] | None = None  # if the handler reads the body itself
    needs_body: bool = True

    @property
    def url(self) -> str:
        return self.prefix + self.path

    @property
    def name(self) -> str:
        return self.handler.__name__

    @property
    def refusals(self) -> tuple[int, ...]:
        named = NAMED if "{conversation}" in self.path else ()
        paid = (402,) if self.method in STORING else ()
        usual = {*ALWAYS, *named, *paid, *(one for one in self.also if one >= 400)}
        return tuple(sorted(usual if self.dialect == "problem" else {STATUSES.get(one, one) for one in usual}))


def _rest(verbs: str, call: str, handler: Callable[..., Any], answer: Any, tag: str, **more: Any) -> Operation:
    method, _, path = call.partition(" ")
    return Operation(tuple(verbs.split()), method, path, handler, answer, tag, **more)


def _openai(verbs: str, call: str, handler: Callable[..., Any], answer: Any, **more: Any) -> Operation:
    return _rest(verbs, call, handler, answer, "OpenAI", prefix="/v1", dialect="openai", **more)


C, T, S, M, A, L, F, H, P = (
    "Conversations", "Turns", "Streaming append", "Memory", "Answers", "Live", "Attachments", "Maintenance", "People",
)  # fmt: skip
G = "Conversation.generate Conversation.generate_stream"

REST_OPERATIONS: tuple[Operation, ...] = (
    # conversations
    _rest("Store.conversation", "POST /conversations", conversations.create_conversation, schemas.Conversation, C,
          status=201, also=(200, 409)),
    _rest("Store.conversations", "GET /conversations", conversations.list_conversations, schemas.ConversationPage, C),
    _rest("Store.find", "GET /conversations/find", conversations.find_conversation, schemas.Conversation, C,
          also=(404, 410)),
    _rest("Store.search", "GET /search", conversations.search_conversations, schemas.FoundList, C),
    _rest("Store.get Conversation.refresh", f"GET {CONVERSATION}", conversations.get_conversation,
          schemas.Conversation, C, also=(304,)),
    _rest("Conversation.update Conversation.rename", f"PATCH {CONVERSATION}", conversations.update_conversation,
          schemas.Conversation, C, also=(409, 412)),
    _rest("Conversation.forget", f"DELETE {CONVERSATION}", conversations.delete_conversation, None, C, status=204,
          also=(202,)),
    _rest("Conversation.reset", f"POST {CONVERSATION}/reset", conversations.reset_conversation, schemas.Conversation,
          C, also=(202,)),
    # turns
    _rest("Conversation.append", f"POST {CONVERSATION}/turns", turns.append_turn, schemas.Turn, T, status=201,
          also=(409, 412)),
    _rest("Conversation.append_many", f"POST {CONVERSATION}/turns/batch", turns.append_turns, schemas.Turns, T,
          status=201, also=(409, 412)),
    _rest("Conversation.history", f"GET {CONVERSATION}/turns", turns.list_turns, schemas.TurnPage, T, also=(304,)),
    _rest("Conversation.search", f"GET {CONVERSATION}/search", turns.search_turns, schemas.Matches, T),
    _rest("Conversation.branches", f"GET {CONVERSATION}/branches", turns.list_branches, schemas.Branches, T),
    _rest("Conversation.turn", f"GET {TURN}", turns.get_turn, schemas.Turn, T),
    _rest("Conversation.forget", f"DELETE {TURN}", turns.forget_turn, None, T, status=204, also=(202,)),
    _rest("Conversation.append", f"POST {TURN}/edit", turns.edit_turn, schemas.Turn, T, status=201, also=(409,)),
    _rest("Conversation.switch", f"POST {TURN}/switch", turns.switch_branch, schemas.Conversation, T, also=(409,)),
    # streams
    _rest("Conversation.stream Conversation.append_open", f"POST {CONVERSATION}/streams", streams.open_stream,
          schemas.Turn, S, status=201, also=(409, 412)),
    _rest("Conversation.append_chunk", f"POST {STREAM}/chunks", streams.write_chunk, schemas.NextChunk, S,
          also=(409,)),
    _rest("Conversation.append_renew", f"POST {STREAM}/renew", streams.renew_stream, None, S, status=204,
          also=(409,)),
    _rest("Conversation.append_commit", f"POST {STREAM}/commit", streams.commit_stream, schemas.Turn, S, also=(409,)),
    _rest("Conversation.append_abort", f"POST {STREAM}/abort", streams.abort_stream, schemas.Turn, S, also=(409,)),
    # memory
    _rest("Conversation.recall", f"POST {CONVERSATION}/recall", memory.recall, schemas.Hits, M),
    _rest("Conversation.build_context", f"POST {CONVERSATION}/context", memory.build_context, schemas.Context, M),
    _rest("Conversation.summaries", f"GET {CONVERSATION}/summaries", memory.list_summaries, schemas.Summaries, M),
    _rest("Conversation.summarize", f"POST {CONVERSATION}/summarize", memory.summarize, schemas.Summaries, M,
          also=(502,)),
    _rest("Conversation.compact", f"POST {CONVERSATION}/compact", memory.compact, schemas.Compacted, M, also=(502,)),
    _rest("Conversation.facts", f"GET {CONVERSATION}/facts", memory.list_facts, schemas.Facts, M),
    _rest("Conversation.extract_facts", f"POST {CONVERSATION}/facts/extract", memory.extract_facts, schemas.Facts, M,
          also=(502,)),
    _rest("Conversation.correct_fact", f"PUT {CONVERSATION}/facts/{{fact}}", memory.correct_fact, schemas.Fact, M),
    _rest("Conversation.forget_fact", f"DELETE {CONVERSATION}/facts/{{fact}}", memory.forget_fact, None, M,
          status=204, also=(202,)),
    _rest("Conversation.working_memory", f"GET {CONVERSATION}/memory", memory.get_memory, schemas.WorkingMemory, M),
    _rest("Conversation.remember", f"POST {NOTES}", memory.add_note, schemas.WorkingMemory, M, status=201),
    _rest("Conversation.correct", f"PUT {NOTES}/{{index}}", memory.correct_note, schemas.WorkingMemory, M),
    _rest("Conversation.drop_note", f"DELETE {NOTES}/{{index}}", memory.drop_note, schemas.WorkingMemory, M),
    # the memory of a person
    _rest("Store.person Subject.profile", f"GET {PERSON}", people.get_person_profile, schemas.Person, P),
    _rest("Subject.forget", f"DELETE {PERSON}", people.forget_person, None, P, status=204, also=(202,)),
    _rest("Subject.facts Subject.proposals", f"GET {PERSON}/facts", people.list_person_facts, schemas.PersonItems, P),
    _rest("Subject.remember", f"POST {PERSON}/facts", people.remember_about_person, schemas.PersonItem, P, status=201),
    _rest("Subject.correct", f"PUT {ITEM}", people.correct_person_fact, schemas.PersonItem, P, also=(404,)),
    _rest("Subject.drop", f"DELETE {ITEM}", people.drop_person_fact, None, P, status=204, also=(202, 404)),
    _rest("Subject.approve", f"POST {ITEM}/approve", people.approve_person_fact, schemas.PersonItem, P, also=(404,)),
    _rest("Subject.fact_history", f"GET {ITEM}/history", people.get_person_fact_history, schemas.PersonItems, P,
          also=(404,)),
    _rest("Subject.recall", f"POST {PERSON}/recall", people.recall_for_person, schemas.Hits, P),
    _rest("Subject.export", f"GET {PERSON}/export", people.export_person, schemas.PersonExport, P),
    _rest("Subject.learn", f"POST {PERSON}/learn", people.learn_about_person, schemas.Learning, P, status=202),
    _rest("Subject.consent", f"PUT {PERSON}/consent", people.set_person_consent, None, P, status=204),
    _rest("Subject.verify", f"POST {PERSON}/verify", people.verify_person, schemas.Verified, P),
    _rest("Subject.audit", f"GET {PERSON}/audit", people.audit_person, schemas.Events, P),
    # answers
    _rest("Conversation.generate Conversation.generate_stream Store.generate Store.generate_stream",
          f"POST {CONVERSATION}/generate", generate.generate, schemas.Answer, A, also=(409, 501, 502), streams=True),
    _rest("Conversation.generate Conversation.generate_stream", f"POST {TURN}/regenerate", generate.regenerate,
          schemas.Answer, A, also=(409, 501, 502), streams=True),
    _rest("Conversation.ask_to_stop Conversation.stop", f"POST {CONVERSATION}/stop", generate.stop, schemas.Stopping,
          A, status=202),
    # live
    _rest("Conversation.subscribe", f"GET {CONVERSATION}/events", events.follow_conversation, None, L,
          media="text/event-stream"),
    _rest("Conversation.subscribe", "GET /events", events.follow_conversations, None, L, also=(404, 410),
          media="text/event-stream"),
    _rest("", "POST /tickets", events.create_ticket, schemas.Ticket, L, status=201),
    # files
    _rest("Conversation.attach", f"POST {CONVERSATION}/attachments", attachments.upload_attachment,
          schemas.Attachment, F, status=201, also=(415,), takes=("application/octet-stream", "multipart/form-data")),
    _rest("Conversation.attachments", f"GET {CONVERSATION}/attachments", attachments.list_attachments,
          schemas.Attachments, F),
    _rest("Conversation.open_upload", f"POST {CONVERSATION}/uploads", attachments.open_upload, schemas.Upload, F,
          status=201),
    _rest("Conversation.put_upload", f"PUT {UPLOAD}", attachments.put_upload, None, F, status=204,
          takes=("application/octet-stream",)),
    _rest("Conversation.complete_upload", f"POST {UPLOAD}/complete", attachments.complete_upload,
          schemas.Attachment, F, status=201, also=(415,)),
    _rest("Conversation.attachment", f"GET {FILE}", attachments.get_attachment, schemas.Attachment, F),
    _rest("Conversation.attachment_text", f"GET {FILE}/text", attachments.get_attachment_text, schemas.FileText, F),
    _rest("", f"POST {FILE}/link", attachments.create_link, schemas.Link, F, status=201),
    _rest("Conversation.read_attachment Conversation.read_attachment_range", f"GET {FILE}/content",
          attachments.download_attachment, None, F, also=(206, 304, 416), media="application/octet-stream"),
    # the log and maintenance
    _rest("Conversation.requests Store.requests", f"GET {CONVERSATION}/requests", admin.list_requests,
          schemas.Requests, H),
    _rest("Store.audit Conversation.audit", f"GET {CONVERSATION}/audit", admin.audit, schemas.Events, H),
    _rest("Conversation.verify", f"POST {CONVERSATION}/verify", admin.verify, schemas.Verified, H),
    _rest("Store.usage", "GET /usage", admin.usage, schemas.Usage, H),
    _rest("Store.budgets", "GET /budgets", budgets.list_budgets, schemas.Budgets, H),
    _rest("Store.set_budget", "PUT /budgets", budgets.set_budget, schemas.Budgets, H),
    _rest("Store.stats", "GET /stats", admin.stats, schemas.Stats, H),
    _rest("Store.sweep Store.expire", "POST /sweep", admin.sweep, schemas.Swept, H, also=(202,)),
    _rest("Store.erase_user", "POST /erasures", admin.erase_user, schemas.ErasureReceipt, H),
    _rest("Store.check_erasure", "POST /erasures/verify", admin.verify_erasure, schemas.ErasureChecked, H),
    _rest("", "GET /keys/log", admin.key_log, schemas.Events, H),
    _rest("", "GET /settings", admin.get_settings, schemas.Settings, H),
    _rest("", "POST /imports", imports.import_conversations, schemas.ImportReport, H, streams=True,
          takes=("application/octet-stream",)),
    # the models of the server
    _rest("", "GET /models", models.list_server_models, schemas.ServerModels, H),
    _rest("", "PUT /models", models.put_server_model, schemas.ServerModels, H),
    _rest("", "DELETE /models", models.delete_server_model, schemas.ServerModels, H),
    _rest("", "POST /models/test", models.try_server_model, schemas.ServerModelTest, H),
    _rest("", "PUT /models/default", models.choose_server_model, schemas.ServerModels, H),
)  # fmt: skip

# Protocols of other clients.
COMPAT_OPERATIONS: tuple[Operation, ...] = (
    _openai(G, "POST /chat/completions", openai_chat.create_chat_completion, foreign.ChatCompletion,
            body=foreign.NewChatCompletion, streams=True, also=(404, 502)),
    _openai("Conversation.history", "GET /chat/completions", stored_chat.list_chat_completions,
            foreign.ChatCompletionList),
    _openai("Conversation.history", "GET /chat/completions/{completion}", stored_chat.get_chat_completion,
            foreign.ChatCompletion, also=(404,)),
    _openai("Conversation.update", "POST /chat/completions/{completion}", stored_chat.update_chat_completion,
            foreign.ChatCompletion, body=foreign.OpenAIMetadata, also=(404,)),
    _openai("Conversation.forget", "DELETE /chat/completions/{completion}", stored_chat.delete_chat_completion,
            foreign.Deleted, also=(202, 404)),
    _openai("Conversation.history", "GET /chat/completions/{completion}/messages",
            stored_chat.list_chat_completion_messages, foreign.ChatCompletionMessageList, also=(404,)),
    _openai(G, "POST /responses", openai_responses.create_response, foreign.ResponseObject, body=foreign.NewResponse,
            streams=True, also=(404, 502)),
    _openai("Conversation.summarize", "POST /responses/compact", compact_responses.compact_response,
            foreign.CompactedResponse, body=foreign.NewCompaction, also=(404, 502)),
    _openai("", "POST /responses/input_tokens", openai_responses.count_input_tokens, foreign.InputTokens,
            body=foreign.CountedResponse),
    _openai("Conversation.history", "GET /responses/{response}", openai_responses.get_response,
            foreign.ResponseObject, streams=True, also=(404,)),
    _openai("Conversation.forget", "DELETE /responses/{response}", openai_responses.delete_response, foreign.Deleted,
            also=(202, 404)),
    _openai("Conversation.ask_to_stop", "POST /responses/{response}/cancel", openai_responses.cancel_response,
            foreign.ResponseObject, also=(404,)),
    _openai("Conversation.history", "GET /responses/{response}/input_items", openai_responses.list_input_items,
            foreign.ItemList, also=(404,)),
    _openai("Store.conversation", "POST /conversations", openai_conversations.create_openai_conversation,
            foreign.OpenAIConversation, body=foreign.NewOpenAIConversation, needs_body=False),
    _openai("Store.get", f"GET {CONVERSATION}", openai_conversations.get_openai_conversation,
            foreign.OpenAIConversation),
    _openai("Conversation.update", f"POST {CONVERSATION}", openai_conversations.update_openai_conversation,
            foreign.OpenAIConversation, body=foreign.OpenAIMetadata),
    _openai("Conversation.forget", f"DELETE {CONVERSATION}", openai_conversations.delete_openai_conversation,
            foreign.Deleted, also=(202,)),
    _openai("Conversation.append_many", f"POST {CONVERSATION}/items", openai_conversations.create_items,
            foreign.ItemList, body=foreign.NewItems),
    _openai("Conversation.history", f"GET {CONVERSATION}/items", openai_conversations.list_items, foreign.ItemList),
    _openai("Conversation.turn", f"GET {CONVERSATION}/items/{{item}}", openai_conversations.get_item, foreign.Item),
    _openai("Conversation.forget Conversation.append", f"DELETE {CONVERSATION}/items/{{item}}",
            openai_conversations.delete_item, foreign.OpenAIConversation, also=(202,)),
    _rest(G, "POST /messages", anthropic.create_message, foreign.MessageObject, "Anthropic", prefix="/v1",
          dialect="anthropic", body=foreign.NewMessage, streams=True, also=(404, 502)),
    _rest("Conversation.build_context", "POST /messages/count_tokens", anthropic.count_message_tokens,
          foreign.TokenCount, "Anthropic", prefix="/v1", dialect="anthropic", body=foreign.NewMessage, also=(404,)),
    _rest(G, "POST /chat", ai_sdk.create_chat_message, None, "AI SDK", body=foreign.NewUIMessage,
          media="text/event-stream", also=(404, 409, 410, 501, 502)),
    _rest("Conversation.subscribe", "GET /chat/{chat}/stream", ai_sdk.resume_chat_message, None, "AI SDK",
          media="text/event-stream", also=(204, 410)),
    _openai("", "POST /embeddings", openai_embeddings.create_embeddings, foreign.EmbeddingList,
            body=foreign.NewEmbeddings, also=(404, 502)),
    _openai("", "GET /models", openai_chat.list_models, foreign.ModelList),
    _openai("", "GET /models/{model}", openai_chat.get_model, foreign.Model, also=(404,)),
)  # fmt: skip

NOT_OVER_HTTP: Mapping[str, str] = {
    "Store.aclose": "the server closes its store when it stops",
    "Store.scoped": "the scope comes from the key or JWT of each request",
    "Store.signed_in": "each request has its own key or JWT",
    "Store.settle": "waits for the work of all tenants: for scripts and tests",
    "Store.restore": "for operators, who import a history with its hashes: palaver import",
    "Store.subject": "the memory of other subjects is for the application, which has the library",
    "Subject.share": "who may see the memory of a subject is decided by the application",
    "Conversation.records": "the rows of an export, page by page: palaver export",
    "Conversation.data_url": "the download has the same bytes without base64",
}
