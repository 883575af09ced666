-- The questions of a conversation that are being answered, or that wait for the answers ahead of them. Only conversations
-- whose questions are queued or refused have rows. No content; a row whose lease has ended is deleted with the next question.

CREATE TABLE answer_places (
  cid INTEGER NOT NULL REFERENCES conversations,
  id TEXT NOT NULL,
  seq INTEGER NOT NULL,                      -- of the question; while it is not stored, the lowest that it can get
  stored INTEGER NOT NULL,                   -- whether the question is stored
  started INTEGER NOT NULL,                  -- whether it is being answered
  lease_until INTEGER NOT NULL,
  PRIMARY KEY (cid, id)
) STRICT, WITHOUT ROWID;
