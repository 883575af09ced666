-- Memory of subjects (persons, projects, teams), and the two times of a fact.

-- ---- facts over time -------------------------------------------------------------------------------------------------
ALTER TABLE facts ADD COLUMN valid_to INTEGER;   -- when it stopped to hold
ALTER TABLE facts ADD COLUMN learnt INTEGER;     -- when it was said; facts from before have none

-- ---- what is remembered of a subject ---------------------------------------------------------------------------------
-- The memory of a subject belongs to a conversation of its own, without turns, which lists do not show (its key begins
-- with 'palaver:memory/'). Its log is the log of the memory, and users who may see it may see the memory.
CREATE TABLE items (
  iid INTEGER PRIMARY KEY,
  cid INTEGER NOT NULL REFERENCES conversations,
  id TEXT NOT NULL,
  kind TEXT NOT NULL,
  subject TEXT NOT NULL,
  predicate TEXT NOT NULL,
  object TEXT NOT NULL,
  confidence REAL NOT NULL,
  valid_from INTEGER,
  valid_to INTEGER,                          -- as it was said; the end by another item is that item's `valid_from`
  learnt INTEGER NOT NULL,
  ended_at INTEGER,
  ended_by TEXT,                             -- the item that took its place: if that is gone, this one holds again
  origin TEXT NOT NULL,
  status TEXT NOT NULL,
  said_by TEXT,
  by TEXT NOT NULL,
  created INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX items_by_id ON items (cid, id);
CREATE INDEX items_newest ON items (cid, iid);
CREATE INDEX items_of_kind ON items (cid, kind, iid);

-- The turns that say it. With the last of them the item is deleted; one that a person wrote has none.
CREATE TABLE item_sources (
  cid INTEGER NOT NULL REFERENCES conversations,
  item TEXT NOT NULL,
  conversation TEXT NOT NULL,
  turn TEXT NOT NULL,
  said INTEGER NOT NULL,
  PRIMARY KEY (cid, item, turn)
) STRICT, WITHOUT ROWID;
CREATE INDEX item_sources_by_turn ON item_sources (turn);
CREATE INDEX item_sources_by_conversation ON item_sources (conversation);
