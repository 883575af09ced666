-- The words of files: what recall finds, and what read_attachment quotes.

ALTER TABLE attachments ADD COLUMN characters INTEGER;  -- NULL: nobody has tried to read it yet
ALTER TABLE attachments ADD COLUMN problem TEXT;        -- why there are no words; in our terms, never in the file's

-- The words themselves, in the pieces that the text index holds. Parts from 100,000 on are of a turn's first file, from
-- 200,000 on of its second; smaller numbers are the turn's own words.
CREATE TABLE file_passages (
  fid INTEGER PRIMARY KEY,
  aid INTEGER NOT NULL REFERENCES attachments,
  tid INTEGER NOT NULL,
  part INTEGER NOT NULL,
  text TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX file_passages_of ON file_passages (tid, part);
CREATE INDEX file_passages_by_file ON file_passages (aid, part);

-- Deleting a file deletes its extracted text.
CREATE TRIGGER file_passages_go AFTER DELETE ON attachments BEGIN
  DELETE FROM file_passages WHERE aid = OLD.aid;
END;

-- Files from before are read, too.
INSERT INTO jobs (cid, kind, run_at, created) SELECT DISTINCT cid, 'files', 0, 0 FROM attachments WHERE tid IS NOT NULL;
