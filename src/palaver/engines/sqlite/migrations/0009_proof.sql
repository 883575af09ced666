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
