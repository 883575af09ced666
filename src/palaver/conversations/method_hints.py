"""Errors for methods of other systems, which name the method of a store or a conversation to use instead."""

from __future__ import annotations

from collections.abc import Mapping

from palaver.core.validation import OTHER_NAMES

OF_CONVERSATION: Mapping[str, str] = {
    "add": "append(role, content)",
    "add_message": "append(role, content)",
    "add_messages": "append_many(turns)",
    "add_user_message": 'append("user", content)',
    "add_ai_message": 'append("assistant", content)',
    "get_messages": "history()",
    "messages": "history()",
    "turns": "history()",
    "get_context": "build_context(token_budget)",
    "context": "build_context(token_budget)",
    "load_memory_variables": "build_context(token_budget)",
    "ask": "generate(message)",
    "chat": "generate(message)",
    "run": "generate(message)",
    "invoke": "generate(message)",
    "edit": "append(role, content, replaces=turn)",
    "delete": "forget(turn), or forget() for the whole conversation",
    "delete_turn": "forget(turn)",
    "delete_message": "forget(turn)",
    "clear": "reset(), or forget() to delete the conversation",
}
OF_STORE: Mapping[str, str] = {
    "add": "conversation(key) and its append(role, content)",
    "append": "conversation(key) and its append(role, content)",
    "create_conversation": "conversation(key)",
    "get_conversation": "find(key), or get(id)",
    "list_conversations": "conversations()",
    "list": "conversations()",
    "delete": "find(key) and its forget()",
    "delete_conversation": "find(key) and its forget()",
    "delete_user": "erase_user(user)",
    "get_all": "person(user).facts()",
    "recall": "conversation(key) and its recall(query), or person(user).recall(query)",
    "build_context": "conversation(key) and its build_context(token_budget)",
    "chat": "generate(key, message)",
    "close": "aclose()",
}


def missing_attribute(owner: object, name: str, hints: Mapping[str, str]) -> AttributeError:
    """Return the error for an attribute that `owner` does not have."""
    hint = f": use {hints[name]}; {OTHER_NAMES}" if name in hints else ""
    return AttributeError(f"{type(owner).__name__!r} object has no attribute {name!r}{hint}", name=name, obj=owner)
