-- The server: keys of its callers, what was done with them, and seals over the log.

CREATE TABLE api_keys (
  tenant TEXT NOT NULL,
  hash BLOB NOT NULL,                        -- SHA-256 of the key, which itself is nowhere
  name TEXT NOT NULL,
  scope TEXT NOT NULL,                       -- user, rights, sight, workspace
  created INTEGER NOT NULL,
  expires_at INTEGER,
  revoked_at INTEGER,
  PRIMARY KEY (tenant, hash)
) STRICT, WITHOUT ROWID;

-- The log of keys (created, used, refused, revoked): one per tenant, chained like that of a conversation.
CREATE TABLE key_events (
  tenant TEXT NOT NULL,
  n INTEGER NOT NULL,
  kind TEXT NOT NULL,
  key TEXT NOT NULL,                         -- the start of its hash
  actor TEXT NOT NULL,
  at INTEGER NOT NULL,
  payload TEXT,
  hash BLOB NOT NULL,
  PRIMARY KEY (tenant, n)
) STRICT, WITHOUT ROWID;

-- Ends of logs, signed with a key that is not in this file.
CREATE TABLE seals (
  tenant TEXT NOT NULL,
  conversation TEXT NOT NULL,
  n INTEGER NOT NULL,
  tip BLOB NOT NULL,
  seal BLOB NOT NULL,
  at INTEGER NOT NULL,
  PRIMARY KEY (tenant, conversation, n)
) STRICT, WITHOUT ROWID;
