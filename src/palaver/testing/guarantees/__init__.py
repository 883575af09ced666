"""The guarantees, one module per topic. Importing a module enters its guarantees into the list."""

from importlib import import_module

TOPICS = (
    "conversations", "turns", "history", "branches", "streams", "log", "proof", "forgetting", "scopes", "attachments",
    "searching", "carrying", "bad_input", "answering", "serving",
)  # fmt: skip


def load() -> None:
    for topic in TOPICS:
        import_module(f"{__name__}.{topic}")
