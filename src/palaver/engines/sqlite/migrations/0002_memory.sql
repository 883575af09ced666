-- Memory: summaries, working memory, facts, vectors, and the outbox that keeps them up to date.

ALTER TABLE conversations ADD COLUMN revision INTEGER NOT NULL DEFAULT 0;          -- changes of the view that are not appends
ALTER TABLE conversations ADD COLUMN marked INTEGER NOT NULL DEFAULT 0;            -- batches of marks since then
ALTER TABLE conversations ADD COLUMN summarized_position INTEGER NOT NULL DEFAULT 0;  -- the first position in no summary
ALTER TABLE conversations ADD COLUMN summarized_turns INTEGER NOT NULL DEFAULT 0;  -- turns of the view before it
ALTER TABLE conversations ADD COLUMN summarized_tokens INTEGER NOT NULL DEFAULT 0;
ALTER TABLE conversations ADD COLUMN passage_count INTEGER NOT NULL DEFAULT 0;     -- in the text index
ALTER TABLE conversations ADD COLUMN passage_terms INTEGER NOT NULL DEFAULT 0;

CREATE TABLE summaries (
  sid INTEGER PRIMARY KEY,
  cid INTEGER NOT NULL REFERENCES conversations,
  id TEXT NOT NULL,
  level INTEGER NOT NULL,
  from_seq INTEGER NOT NULL,                 -- positions of the active view
  through_seq INTEGER NOT NULL,              -- exclusive
  turns INTEGER NOT NULL,                    -- how many turns of the view it stands for
  tokens INTEGER NOT NULL,                   -- what those turns weigh
  text TEXT NOT NULL,
  token_count INTEGER NOT NULL,
  model TEXT NOT NULL,
  stale INTEGER NOT NULL DEFAULT 0,          -- what it stood for has changed: its text is gone, and is written anew
  created INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX summaries_by_span ON summaries (cid, level, from_seq);

CREATE TABLE working_memory (
  cid INTEGER PRIMARY KEY REFERENCES conversations,
  memory TEXT NOT NULL,                      -- canonical JSON
  through_seq INTEGER NOT NULL,              -- inclusive position
  updated INTEGER NOT NULL
) STRICT;

CREATE TABLE facts (
  fid INTEGER PRIMARY KEY,
  cid INTEGER NOT NULL REFERENCES conversations,
  id TEXT NOT NULL,
  subject TEXT NOT NULL,
  predicate TEXT NOT NULL,
  object TEXT NOT NULL,
  source_turn TEXT,
  confidence REAL NOT NULL,
  valid_from INTEGER NOT NULL,
  invalidated_at INTEGER,
  invalidated_by TEXT,
  by TEXT NOT NULL,
  created INTEGER NOT NULL,
  vector BLOB                                -- half floats, as in `embeddings`
) STRICT;
CREATE UNIQUE INDEX facts_by_id ON facts (cid, id);

-- Standing instructions (2) and preferences (1), found when a turn enters the text index. Most turns have no row.
CREATE TABLE marks (tid INTEGER PRIMARY KEY, standing INTEGER NOT NULL) STRICT;

-- One vector per passage that is worth one, as half floats. `eid` only grows, so that a reader can fetch what is new.
-- `embedded_pid/MODEL` in `meta` says up to which passage a model has come.
CREATE TABLE embeddings (
  eid INTEGER PRIMARY KEY AUTOINCREMENT,
  cid INTEGER NOT NULL,
  tid INTEGER NOT NULL,
  part INTEGER NOT NULL,
  model TEXT NOT NULL,
  vector BLOB NOT NULL
) STRICT;
CREATE INDEX embeddings_of ON embeddings (cid, eid);
CREATE INDEX embeddings_by_turn ON embeddings (tid);

-- The outbox. At most one job of a kind per conversation: it says that there is work, the rows say which. Jobs are put in
-- by the batch that brings the text index up to date, so that an append pays nothing for them.
CREATE TABLE jobs (
  jid INTEGER PRIMARY KEY,
  cid INTEGER NOT NULL,                      -- 0: embedding, which goes through the passages of all conversations
  kind TEXT NOT NULL,
  run_at INTEGER NOT NULL,
  lease_until INTEGER NOT NULL DEFAULT 0,
  attempts INTEGER NOT NULL DEFAULT 0,
  argument INTEGER,                          -- compact: how many tokens may stay unsummarised
  error TEXT,                                -- the type of the last failure, never its text
  dead INTEGER NOT NULL DEFAULT 0,
  created INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX jobs_by_conversation ON jobs (cid, kind);
CREATE INDEX jobs_due ON jobs (run_at) WHERE dead = 0;

-- The index was not counted and marked before: it is rebuilt when the file is opened.
DELETE FROM meta WHERE name = 'analyzer';
