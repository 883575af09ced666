-- The spine: conversations, turns, streams, files, the text index and the log.
-- Times are microseconds since 1970, UTC. `cid`, `tid`, `pid` are numbers of this file and never leave the engine.

CREATE TABLE conversations (
  cid INTEGER PRIMARY KEY,
  tenant TEXT NOT NULL,
  id TEXT NOT NULL,
  owner TEXT NOT NULL,                       -- '' when the application itself is the owner
  key TEXT,
  workspace TEXT,
  agent TEXT,
  model TEXT,
  title TEXT,
  title_pid INTEGER,                         -- the title's passage in the text index
  preview TEXT,
  participants TEXT NOT NULL DEFAULT '[]',
  metadata TEXT,
  settings TEXT,
  ttl INTEGER,
  expires_at INTEGER,
  turn_count INTEGER NOT NULL DEFAULT 0,     -- of the active view
  token_count INTEGER NOT NULL DEFAULT 0,
  next_seq INTEGER NOT NULL DEFAULT 0,
  next_n INTEGER NOT NULL DEFAULT 1,
  tip_position INTEGER NOT NULL DEFAULT -1,  -- the last turn of the active view: its place,
  tip_slot TEXT,                             -- and its slot
  tip_hash BLOB NOT NULL,
  salt BLOB,
  content_hash BLOB,                         -- of the fields that only an `update` event may change
  created INTEGER NOT NULL,
  updated INTEGER NOT NULL,                  -- strictly increasing: the clock of this conversation
  minute INTEGER NOT NULL,                   -- of `updated`; coarse, so that an append need not move an index entry
  gone INTEGER                               -- when it was deleted for good; only the log remains
) STRICT;

CREATE UNIQUE INDEX conversations_by_id ON conversations (tenant, id);
CREATE UNIQUE INDEX conversations_by_key ON conversations (tenant, owner, key) WHERE key IS NOT NULL AND gone IS NULL;
CREATE INDEX conversations_newest ON conversations (tenant, minute) WHERE gone IS NULL;
CREATE INDEX conversations_expiring ON conversations (expires_at) WHERE expires_at IS NOT NULL AND gone IS NULL;

-- Participants, one row each: the column `participants` of the conversation in a form that can be indexed.
CREATE TABLE participants (
  actor TEXT NOT NULL,
  cid INTEGER NOT NULL REFERENCES conversations,
  PRIMARY KEY (actor, cid)
) STRICT, WITHOUT ROWID;
CREATE INDEX participants_of ON participants (cid);

CREATE TABLE turns (
  tid INTEGER PRIMARY KEY,
  cid INTEGER NOT NULL REFERENCES conversations,
  id TEXT NOT NULL,
  seq INTEGER NOT NULL,
  position INTEGER NOT NULL,
  parent TEXT,                               -- slot of the turn before
  slot TEXT,                                 -- NULL: its own id
  active INTEGER NOT NULL,
  superseded_by TEXT,
  status TEXT NOT NULL,
  role TEXT NOT NULL,
  actor TEXT NOT NULL,
  is_parts INTEGER NOT NULL DEFAULT 0,
  content TEXT,
  tool_calls TEXT,
  tool_results TEXT,
  attachments TEXT,
  sources TEXT,
  prompt_tokens INTEGER,
  completion_tokens INTEGER,
  token_count INTEGER NOT NULL DEFAULT 0,
  model TEXT,
  adapter TEXT,
  finish_reason TEXT,
  metadata TEXT,
  idempotency_key TEXT,
  salt BLOB,
  content_hash BLOB,
  created INTEGER NOT NULL
) STRICT;

-- A turn's id ends in its seq (see identity.stamp), so this index answers for the id as well.
CREATE UNIQUE INDEX turns_by_seq ON turns (cid, seq);
-- The hot read path, and it holds one turn per place.
CREATE UNIQUE INDEX turns_active ON turns (cid, position) WHERE active = 1;
CREATE INDEX turns_inactive ON turns (cid, position) WHERE active = 0;
CREATE UNIQUE INDEX turns_by_key ON turns (cid, idempotency_key) WHERE idempotency_key IS NOT NULL;

-- One row per pending turn: until when its writer is believed to be alive.
CREATE TABLE streams (
  tid INTEGER PRIMARY KEY REFERENCES turns,
  cid INTEGER NOT NULL REFERENCES conversations,
  lease_until INTEGER NOT NULL,
  next_chunk INTEGER NOT NULL DEFAULT 0,
  length INTEGER NOT NULL DEFAULT 0          -- characters so far
) STRICT;
CREATE INDEX streams_by_lease ON streams (lease_until);

CREATE TABLE attachments (
  aid INTEGER PRIMARY KEY,
  cid INTEGER NOT NULL REFERENCES conversations,
  tid INTEGER REFERENCES turns,              -- NULL until a turn takes it
  id TEXT NOT NULL,
  owner TEXT NOT NULL,
  filename TEXT NOT NULL,
  media_type TEXT NOT NULL,
  bytes INTEGER NOT NULL,
  sha256 TEXT NOT NULL,
  path TEXT NOT NULL,
  created INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX attachments_by_id ON attachments (cid, id);
CREATE INDEX attachments_of ON attachments (cid, tid);

-- Files whose rows are deleted already. Written in the deleting transaction, so that a crash cannot keep one.
CREATE TABLE doomed_blobs (path TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;

CREATE TABLE events (
  cid INTEGER NOT NULL REFERENCES conversations,
  n INTEGER NOT NULL,
  kind TEXT NOT NULL,
  turn TEXT,
  actor TEXT NOT NULL,
  at INTEGER NOT NULL,
  payload TEXT,
  content_hash BLOB,
  hash BLOB NOT NULL,
  PRIMARY KEY (cid, n)
) STRICT, WITHOUT ROWID;

-- Which part of which turn a row of the text index stands for. Turns are indexed in batches, shortly after they are
-- stored and before the next search: `indexed_tid` in `meta` says up to where. One update of the index per append would
-- cost more than the append.
CREATE TABLE passages (
  pid INTEGER PRIMARY KEY,
  cid INTEGER NOT NULL,
  tid INTEGER,                               -- NULL: the conversation's title
  part INTEGER NOT NULL,                     -- which passage of the turn
  size INTEGER NOT NULL,                     -- how many terms it has
  terms TEXT                                 -- FTS5 must be told the very words that it is to remove. NULL: the text is
                                             -- plain ASCII, and `analyzer` in `meta` derives the same words again
) STRICT;
CREATE INDEX passages_of ON passages (tid) WHERE tid IS NOT NULL;

-- `scope` holds one word each for conversation, owner and tenant, so that a search is cut down inside the index.
CREATE VIRTUAL TABLE text_index USING fts5 (scope, terms, content = '', tokenize = "ascii tokenchars '_'");
INSERT INTO text_index (text_index, rank) VALUES ('secure-delete', 1);

-- Small facts about this file, such as an unfinished scrub.
CREATE TABLE meta (name TEXT PRIMARY KEY, value ANY NOT NULL) STRICT, WITHOUT ROWID;
INSERT INTO meta (name, value) VALUES ('indexed_tid', 0);
