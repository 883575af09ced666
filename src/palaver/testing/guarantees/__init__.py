"""The guarantees, one module per topic. Importing a module enters its guarantees into the list."""

from importlib import import_module

TOPICS = (
    "conversations", "turns", "history", "branches", "streams", "log", "proof", "deletion", "erasing", "scopes",
    "attachments", "search", "subjects", "export_import", "bad_input", "generate", "server_support",
    "state", "filters",
)  # fmt: skip


def load() -> None:
    for topic in TOPICS:
        import_module(f"{__name__}.{topic}")
