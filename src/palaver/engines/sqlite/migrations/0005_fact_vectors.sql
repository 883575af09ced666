-- Facts are also found by their meaning: each has a vector and the name of the embedder that made it.

ALTER TABLE facts ADD COLUMN model TEXT;
CREATE INDEX facts_by_model ON facts (model) WHERE invalidated_at IS NULL;
