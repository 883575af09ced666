"""SQLite, embedded: one file, one writer thread, readers beside it."""

from palaver.engines.sqlite.engine import SQLiteEngine, open_sqlite

__all__ = ["SQLiteEngine", "open_sqlite"]
