-- Diagnostics: what was really sent to models, and what their tokenizers make of our counts.

-- Whether the title was written by a job: then it goes when a turn is forgotten, because it may repeat its words.
ALTER TABLE conversations ADD COLUMN title_made INTEGER NOT NULL DEFAULT 0;

CREATE TABLE requests (
  rid INTEGER PRIMARY KEY,
  cid INTEGER NOT NULL REFERENCES conversations,
  id TEXT NOT NULL,
  turn TEXT,                                 -- where the answer went
  purpose TEXT NOT NULL,
  at INTEGER NOT NULL,
  model TEXT NOT NULL,
  adapter TEXT NOT NULL,
  next_seq INTEGER NOT NULL,                 -- of the conversation then: no later turn can be in the body
  body TEXT,                                 -- NULL: deleted, with what it held
  explanation TEXT,                          -- ids and numbers, no words
  response TEXT                              -- ids, usage, timings, retries, the type of an error; no words. NULL: no end
) STRICT;
CREATE UNIQUE INDEX requests_by_id ON requests (cid, id);
CREATE INDEX requests_of ON requests (cid, rid);
CREATE INDEX requests_with_body ON requests (cid, rid) WHERE body IS NOT NULL;

-- Turns of other conversations that a body quotes: who forgets the turn must find it.
CREATE TABLE request_quotes (
  turn TEXT NOT NULL,
  rid INTEGER NOT NULL,
  PRIMARY KEY (turn, rid)
) STRICT, WITHOUT ROWID;

-- Per model: the provider's count of a prompt, as a multiple of ours; the most that was seen lately.
CREATE TABLE counter_bounds (
  tenant TEXT NOT NULL,
  model TEXT NOT NULL,
  ratio REAL NOT NULL,
  samples INTEGER NOT NULL,
  updated INTEGER NOT NULL,
  PRIMARY KEY (tenant, model)
) STRICT, WITHOUT ROWID;
