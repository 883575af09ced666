-- Facts are found by their meaning too: which embedder made the vector beside each.

ALTER TABLE facts ADD COLUMN model TEXT;
CREATE INDEX facts_by_model ON facts (model) WHERE invalidated_at IS NULL;
