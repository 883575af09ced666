-- The marks of a conversation by its number: a cached profile that has to learn of a new one reads them and nothing else.

ALTER TABLE marks ADD COLUMN cid INTEGER NOT NULL DEFAULT 0;
UPDATE marks SET cid = (SELECT t.cid FROM turns t WHERE t.tid = marks.tid);
CREATE INDEX marks_of ON marks (cid);
