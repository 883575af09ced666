"""Proof that stored rows are what was written: replaying the log, and signed seals over it."""
