"""Fills a database with many conversations by SQL, in bulk: for tests of plans and for benchmarks.

The rows are those that the library writes: turns, events, index rows, and a vector for every turn. Only the hashes of
the log are not those of a real chain. The words follow Zipf's law, as words of people do: stem `w7` is in about a
seventh as many turns as `w1`. Vectors lie around those of the topics of their conversations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

TENANT = "big"
MODEL = "many-turns"
DIMENSIONS = 384
WORDS = 20_000  # stems in use
SIZE = 12  # stems per turn
SENTENCES = 5_000  # different texts
BASES = 500  # vectors that all others are sums of
START = 1_700_000_000_000_000  # when the first turn was created, in microseconds
# Row by row, these indexes take most of the time.
BUILT_LAST = ("passages_terms", "embeddings_nearest_384")


@dataclass(frozen=True, slots=True, kw_only=True)
class ManyTurns:
    """How much to write. Owner `user 0` has a tenth of the conversations; the others share the rest."""

    conversations: int = 1_000
    turns: int = 1_000  # of each
    owners: int = 91
    vectors: bool = True

    @property
    def total(self) -> int:
        return self.conversations * self.turns


async def fill(connection: Any, size: ManyTurns) -> None:
    """Write the rows as a superuser. The database must be empty."""
    built_last = {name: await connection.fetchval("SELECT pg_get_indexdef($1::regclass)", f"palaver.{name}")
                  for name in BUILT_LAST}  # fmt: skip
    async with connection.transaction():
        # Foreign keys are not checked row by row: everything that is referred to is written here.
        await connection.execute("SET LOCAL session_replication_role = replica; SET LOCAL synchronous_commit = off")
        await connection.execute("SET LOCAL search_path = palaver, extensions, public")
        for name in BUILT_LAST:
            await connection.execute(f"DROP INDEX palaver.{name}")
        await connection.execute(_materials())
        for statement in _rows(size):
            await connection.execute(statement)
    # With less memory than the vector index needs, building it takes many times as long.
    await connection.execute("SET search_path = palaver, extensions, public; SET maintenance_work_mem = '3GB'")
    for definition in built_last.values():
        await connection.execute(definition)
    await connection.execute("RESET search_path; RESET maintenance_work_mem")
    await connection.execute("VACUUM ANALYZE")


async def fill_at(url: str, size: ManyTurns) -> None:
    """Fill the database at the address of its superuser."""
    import asyncpg

    connection = await asyncpg.connect(url)
    try:
        await fill(connection, size)
    finally:
        await connection.close()


def _materials() -> str:
    """Return the SQL for texts with their stems, and for vectors."""
    return f"""
SELECT setseed(0.19);
CREATE TEMPORARY TABLE sentences ON COMMIT DROP AS
SELECT n, string_agg(word, ' ') AS content,
  string_agg('''' || word || ''':' || place, ' ')::tsvector AS terms
FROM (SELECT n, place, 'w' || floor(power({WORDS}, random()))::integer AS word
  FROM generate_series(0, {SENTENCES - 1}) AS n, generate_series(1, {SIZE}) AS place) AS drawn GROUP BY n;
CREATE INDEX ON sentences (n);
CREATE TEMPORARY TABLE bases ON COMMIT DROP AS
SELECT n, l2_normalize(array_agg((random() + random() + random() - 1.5)::real)::vector)::halfvec AS vector
FROM generate_series(0, {BASES - 1}) AS n, generate_series(1, {DIMENSIONS}) GROUP BY n;
CREATE INDEX ON bases (n);
ANALYZE sentences; ANALYZE bases;
"""


def _rows(size: ManyTurns) -> list[str]:
    # Conversations grow side by side: turn `k` is the next one of the next conversation.
    each = f"""SELECT k, k + 1 AS tid, 1 + k % {size.conversations} AS cid, k / {size.conversations} AS seq,
      {START} + k * 1000000 AS at, s.content, s.terms
    FROM generate_series(0::bigint, {size.total - 1}) AS k JOIN sentences s ON s.n = k * 7919 % {SENTENCES}"""
    statements = [
        f"""INSERT INTO conversations (cid, next_seq, next_n, tip_position, turn_count, token_count, created, updated,
  minute, passage_count, passage_terms, tenant, id, owner, tip_hash, tip_slot, title, preview, compact_turns,
  compact_tokens, participants, members)
SELECT cid, {size.turns}, {size.turns} + 1, {size.turns} - 1, {size.turns}, {size.turns} * 20, {START}, at,
  at / 60000000, {size.turns}, {size.turns} * {SIZE}, '{TENANT}', {_id("0")},
  CASE WHEN cid % 10 = 0 THEN 'user 0' ELSE 'user ' || 1 + cid % {size.owners - 1} END, sha256(int8send(cid)),
  {_id(f"{size.turns} - 1")}, 'Conversation ' || cid, 'w1 w2', 1000000000, 1000000000, '["ada","assistant"]',
  '{{ada,assistant}}'
FROM (SELECT cid, {START} + {size.total} * 1000000::bigint + cid * 60000000 AS at
  FROM generate_series(1::bigint, {size.conversations}) AS cid) AS c""",
        f"""INSERT INTO turns (tid, cid, seq, position, created, token_count, active, tenant, id, status, role, actor,
  parent, content, preview, salt, content_hash)
SELECT tid, cid, seq, seq, at, 20, 1, '{TENANT}', {_id("seq")}, 'complete',
  CASE seq % 2 WHEN 0 THEN 'user' ELSE 'assistant' END, CASE seq % 2 WHEN 0 THEN 'ada' ELSE 'assistant' END,
  CASE WHEN seq > 0 THEN {_id("seq - 1")} END, content, CASE seq % 2 WHEN 0 THEN left(content, 80) END,
  substr(sha256(int8send(k)), 1, 16), sha256(int8send(-k))
FROM ({each}) AS e""",
        f"""INSERT INTO events (tenant, cid, n, kind, turn, actor, at, content_hash, hash)
SELECT '{TENANT}', cid, seq + 1, 'append', {_id("seq")}, CASE seq % 2 WHEN 0 THEN 'ada' ELSE 'assistant' END, at,
  sha256(int8send(-k)), sha256(int8send(k))
FROM ({each}) AS e""",
        f"""INSERT INTO passages (tenant, pid, cid, tid, part, size, terms)
SELECT '{TENANT}', tid, cid, tid, 0, {SIZE}, terms FROM ({each}) AS e""",
        *(
            f"SELECT setval('palaver.{name}_numbers', {last})"
            for name, last in (("conversation", size.conversations), ("turn", size.total), ("passage", size.total))
        ),
        f"SELECT setval('palaver.numbers', {size.total})",
    ]
    return [*statements, *_vectors(size)] if size.vectors else statements


def _id(seq: str) -> str:
    """Return the SQL for the id of a turn: that of its conversation, with its number at the end."""
    return f"stamp(lpad(cid::text, 19, '0') || '0000000', {seq})"


def _vectors(size: ManyTurns) -> list[str]:
    return [
        f"""INSERT INTO embeddings (tenant, eid, cid, tid, part, model, vector)
SELECT '{TENANT}', k + 1, 1 + k % {size.conversations}, k + 1, 0, '{MODEL}',
  l2_normalize(topic.vector + topic.vector + subject.vector + detail.vector + other.vector)
FROM generate_series(0::bigint, {size.total - 1}) AS k
JOIN bases topic ON topic.n = k % {size.conversations} % 50
JOIN bases subject ON subject.n = (hashint8(k) & 2147483647) % {BASES}
JOIN bases detail ON detail.n = (hashint8(k + 1000000000) & 2147483647) % {BASES}
JOIN bases other ON other.n = (hashint8(k + 2000000000) & 2147483647) % {BASES}""",
        f"""INSERT INTO embedded (tenant, cid, model, pid)
SELECT '{TENANT}', cid, '{MODEL}', {size.total} FROM generate_series(1::bigint, {size.conversations}) AS cid""",
    ]


if __name__ == "__main__":
    import asyncio
    import sys

    asyncio.run(fill_at(sys.argv[1], ManyTurns()))
