"""SQLite, embedded: one file, one writing thread, several reading ones."""

from palaver.engines.sqlite.engine import SQLiteEngine, open_sqlite

__all__ = ["SQLiteEngine", "open_sqlite"]
