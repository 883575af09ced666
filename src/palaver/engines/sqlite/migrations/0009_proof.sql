-- Proof of what reaches a prompt, and what other changes of this release need. Each part has a heading.

-- ---- erasing a person ------------------------------------------------------------------------------------------------
-- Who was erased, by a salted digest of the name. The name itself and the key of the pseudonym are here only while the
-- erasure is under way, so that it can be continued after a crash.
CREATE TABLE erasures (
  tenant TEXT NOT NULL,
  digest TEXT NOT NULL,
  salt TEXT NOT NULL,
  started INTEGER NOT NULL,
  at INTEGER NOT NULL DEFAULT 0,             -- what is older must not come back; 0: the first erasure is under way
  user TEXT,
  key TEXT,
  conversations TEXT NOT NULL DEFAULT '[]',  -- JSON: digests of the conversations that were deleted
  PRIMARY KEY (tenant, digest)
) STRICT, WITHOUT ROWID;

-- The ids of everything that an erasure under way has deleted, for its receipt.
CREATE TABLE erased_items (
  tenant TEXT NOT NULL,
  digest TEXT NOT NULL,
  kind TEXT NOT NULL,
  item TEXT NOT NULL,
  PRIMARY KEY (tenant, digest, kind, item)
) STRICT, WITHOUT ROWID;

-- Bounded deletions: each statement of a slice finds its rows by an index.

CREATE INDEX attachments_by_turn ON attachments (tid) WHERE tid IS NOT NULL;  -- the foreign key, when a turn is deleted
CREATE INDEX request_quotes_by_request ON request_quotes (rid);
CREATE INDEX facts_by_source ON facts (cid, source_turn) WHERE source_turn IS NOT NULL;
CREATE INDEX facts_by_replacement ON facts (cid, invalidated_by) WHERE invalidated_by IS NOT NULL;
CREATE INDEX events_of_forgotten ON events (cid, turn) WHERE kind = 'forget';

-- ---- repair of derived data ------------------------------------------------------------------------------------------
-- How many rows there should be. Fewer mean that some were lost, and they are made again from the turns.
ALTER TABLE conversations ADD COLUMN fact_count INTEGER NOT NULL DEFAULT 0;
ALTER TABLE conversations ADD COLUMN vector_count INTEGER NOT NULL DEFAULT 0;
ALTER TABLE conversations ADD COLUMN has_memory INTEGER NOT NULL DEFAULT 0;  -- there is a working memory
UPDATE conversations SET fact_count = (SELECT count(*) FROM facts f WHERE f.cid = conversations.cid),
  vector_count = (SELECT count(*) FROM embeddings e WHERE e.cid = conversations.cid),
  has_memory = EXISTS (SELECT 1 FROM working_memory w WHERE w.cid = conversations.cid)
WHERE gone IS NULL;

-- Damaged rows that cannot be made again, such as notes that a person wrote: their bytes as they were found. They are
-- deleted when a turn of the conversation is forgotten, because nobody can tell whether they quote it.
CREATE TABLE set_aside (
  said INTEGER PRIMARY KEY,
  cid INTEGER NOT NULL REFERENCES conversations,
  source TEXT NOT NULL,                      -- the table that the row was in
  at INTEGER NOT NULL,
  data BLOB NOT NULL
) STRICT;
CREATE INDEX set_aside_of ON set_aside (cid);

-- ---- proof of derived rows -------------------------------------------------------------------------------------------
-- For each summary, working memory, fact, file's text, request and request's body: the salt of its hash, and the number of
-- the event that has the hash (core/derived_rows.py). The salt is deleted with the row.
CREATE TABLE proofs (
  cid INTEGER NOT NULL REFERENCES conversations,
  key TEXT NOT NULL,                         -- '': from event `n` on the log knows every such row of the conversation
  n INTEGER NOT NULL,
  salt BLOB NOT NULL,
  PRIMARY KEY (cid, key)
) STRICT, WITHOUT ROWID;

-- A body is deleted by many statements, also of other conversations.
CREATE TRIGGER body_goes AFTER UPDATE OF body ON requests WHEN NEW.body IS NULL AND OLD.body IS NOT NULL BEGIN
  DELETE FROM proofs WHERE cid = NEW.cid AND key = 'body/' || NEW.id;
END;
CREATE TRIGGER request_goes AFTER DELETE ON requests WHEN OLD.body IS NOT NULL BEGIN
  DELETE FROM proofs WHERE cid = OLD.cid AND key = 'body/' || OLD.id;
END;

-- Rows from before are proved from now on, some at a time (memory/worker/jobs/prove.py).
INSERT INTO jobs (cid, kind, run_at, created)
SELECT cid, 'prove', 0, 0 FROM (SELECT cid FROM summaries UNION SELECT cid FROM working_memory UNION SELECT cid FROM facts
  UNION SELECT cid FROM requests UNION SELECT cid FROM attachments WHERE characters IS NOT NULL);
