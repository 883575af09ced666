-- Schema for filters and for replication. Each part has a heading.

-- ---- filters ---------------------------------------------------------------------------------------------------------
-- The values of metadata, one row each, so that a filter finds turns and conversations by an index: numbers and texts as
-- they are, booleans as one byte. An element of a list is a row of its own. Nested objects and texts of more than 256
-- characters are not here, and are not compared (core/filters.py). Triggers keep the rows equal to the metadata.
CREATE TABLE turn_metadata (
  cid INTEGER NOT NULL,
  key TEXT NOT NULL,
  value ANY NOT NULL,
  tid INTEGER NOT NULL,
  PRIMARY KEY (cid, key, value, tid)
) STRICT, WITHOUT ROWID;
CREATE INDEX turn_metadata_of ON turn_metadata (tid);

CREATE TABLE conversation_metadata (
  tenant TEXT NOT NULL,
  key TEXT NOT NULL,
  value ANY NOT NULL,
  cid INTEGER NOT NULL,
  PRIMARY KEY (tenant, key, value, cid)
) STRICT, WITHOUT ROWID;
CREATE INDEX conversation_metadata_of ON conversation_metadata (cid);

-- The rows that there should be.
CREATE VIEW turn_metadata_values AS
SELECT v.cid, v.tid, v.key, CASE v.type WHEN 'true' THEN x'01' WHEN 'false' THEN x'00' ELSE v.value END AS value FROM (
  SELECT t.cid, t.tid, o.key, iif(o.type = 'array', i.type, o.type) AS type, iif(o.type = 'array', i.value, o.value) AS value
  FROM turns t CROSS JOIN json_each(iif(json_valid(t.metadata), t.metadata, '{}')) o
  LEFT JOIN json_each(iif(o.type = 'array', o.value, '[]')) i WHERE t.metadata IS NOT NULL
) v WHERE length(v.key) <= 256 AND (v.type IN ('true', 'false')
  OR (v.type IN ('integer', 'real') AND abs(v.value) < 1e300) OR (v.type = 'text' AND length(v.value) <= 256));

CREATE VIEW conversation_metadata_values AS
SELECT v.tenant, v.cid, v.key, CASE v.type WHEN 'true' THEN x'01' WHEN 'false' THEN x'00' ELSE v.value END AS value FROM (
  SELECT c.tenant, c.cid, o.key, iif(o.type = 'array', i.type, o.type) AS type, iif(o.type = 'array', i.value, o.value) AS value
  FROM conversations c CROSS JOIN json_each(iif(json_valid(c.metadata), c.metadata, '{}')) o
  LEFT JOIN json_each(iif(o.type = 'array', o.value, '[]')) i WHERE c.metadata IS NOT NULL
) v WHERE length(v.key) <= 256 AND (v.type IN ('true', 'false')
  OR (v.type IN ('integer', 'real') AND abs(v.value) < 1e300) OR (v.type = 'text' AND length(v.value) <= 256));

CREATE TRIGGER turn_metadata_added AFTER INSERT ON turns WHEN NEW.metadata IS NOT NULL BEGIN
  INSERT OR IGNORE INTO turn_metadata (cid, key, value, tid) SELECT cid, key, value, tid FROM turn_metadata_values WHERE tid = NEW.tid;
END;
CREATE TRIGGER turn_metadata_changed AFTER UPDATE OF metadata ON turns WHEN NEW.metadata IS NOT OLD.metadata BEGIN
  DELETE FROM turn_metadata WHERE tid = OLD.tid;
  INSERT OR IGNORE INTO turn_metadata (cid, key, value, tid) SELECT cid, key, value, tid FROM turn_metadata_values WHERE tid = NEW.tid;
END;
CREATE TRIGGER turn_metadata_deleted AFTER DELETE ON turns WHEN OLD.metadata IS NOT NULL BEGIN
  DELETE FROM turn_metadata WHERE tid = OLD.tid;
END;
INSERT OR IGNORE INTO turn_metadata (cid, key, value, tid) SELECT cid, key, value, tid FROM turn_metadata_values;

CREATE TRIGGER conversation_metadata_added AFTER INSERT ON conversations WHEN NEW.metadata IS NOT NULL BEGIN
  INSERT OR IGNORE INTO conversation_metadata (tenant, key, value, cid) SELECT tenant, key, value, cid FROM conversation_metadata_values WHERE cid = NEW.cid;
END;
CREATE TRIGGER conversation_metadata_changed AFTER UPDATE OF metadata ON conversations WHEN NEW.metadata IS NOT OLD.metadata BEGIN
  DELETE FROM conversation_metadata WHERE cid = OLD.cid;
  INSERT OR IGNORE INTO conversation_metadata (tenant, key, value, cid) SELECT tenant, key, value, cid FROM conversation_metadata_values WHERE cid = NEW.cid;
END;
CREATE TRIGGER conversation_metadata_deleted AFTER DELETE ON conversations WHEN OLD.metadata IS NOT NULL BEGIN
  DELETE FROM conversation_metadata WHERE cid = OLD.cid;
END;
INSERT OR IGNORE INTO conversation_metadata (tenant, key, value, cid) SELECT tenant, key, value, cid FROM conversation_metadata_values;
