"""The command line: `palaver --help`. One file per command; importing a file registers its command."""

from __future__ import annotations

import sys

from palaver.cli import (
    append,
    archive,
    attachments,
    audit,
    backup,
    branches,
    budgets,
    chat,
    demo,
    doctor,
    erasures,
    eval,
    explain,
    export_import,
    facts,
    forget,
    hook,
    keys,
    ls,
    mcp,
    memory,
    migrate,
    person,
    recall,
    reindex,
    rename,
    replicate,
    requests,
    reset,
    restore,
    search,
    serve,
    settings,
    show,
    stats,
    summaries,
    sweep,
    tail,
    verify,
    worker,
)
from palaver.cli.app import USAGE_ERROR, app
from palaver.cli.output import complain

__all__ = [
    "app",
    "main",
    "append",
    "archive",
    "attachments",
    "audit",
    "backup",
    "branches",
    "budgets",
    "chat",
    "demo",
    "doctor",
    "erasures",
    "eval",
    "explain",
    "export_import",
    "facts",
    "forget",
    "hook",
    "keys",
    "ls",
    "mcp",
    "memory",
    "migrate",
    "person",
    "recall",
    "reindex",
    "rename",
    "replicate",
    "requests",
    "reset",
    "restore",
    "search",
    "serve",
    "settings",
    "show",
    "stats",
    "summaries",
    "sweep",
    "tail",
    "verify",
    "worker",
]

# Order of the help page: commands for beginners first.
ORDER = (
    "demo", "chat", "serve", "mcp", "hook", "ls", "show", "search", "branches", "attachments", "attachment", "append",
    "attach", "rename", "settings", "explain", "requests", "recall", "eval", "summaries", "compact", "memory", "facts",
    "person", "tail", "audit", "export", "import", "backup", "restore", "replicate", "forget", "reset", "erase-user",
    "verify", "stats", "doctor", "migrate", "sweep", "archive", "worker", "reindex",
)  # fmt: skip
app.registered_commands.sort(key=lambda one: ORDER.index(one.name or ""))


def main() -> None:
    """Run the command line. Exit codes: 0 success, 1 failure, 2 wrong usage."""
    if "--json" not in sys.argv:
        app()
        return
    # A program that asked for JSON gets it for a misspelt option too.
    try:
        code = app(standalone_mode=False)
    except USAGE_ERROR as problem:
        complain(problem, as_json=True)
        code = 2
    sys.exit(code or 0)
