-- The marks of a conversation by its number: a cached profile that has to learn of a new one reads them and nothing else.

ALTER TABLE marks ADD COLUMN cid INTEGER NOT NULL DEFAULT 0;
DELETE FROM marks WHERE tid NOT IN (SELECT tid FROM turns);
UPDATE marks SET cid = (SELECT t.cid FROM turns t WHERE t.tid = marks.tid);
CREATE INDEX marks_of ON marks (cid);

-- Also for a process that had the file open before, and knows nothing of the column.
CREATE TRIGGER marks_cid AFTER INSERT ON marks BEGIN
  UPDATE marks SET cid = (SELECT t.cid FROM turns t WHERE t.tid = NEW.tid) WHERE tid = NEW.tid;
END;
