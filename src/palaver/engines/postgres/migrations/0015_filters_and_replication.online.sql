-- Each step runs on its own, after the migration. The code works before they have run.

-- step: restrict_turn_metadata
SELECT palaver.restrict_writes('turn_metadata');

-- step: restrict_conversation_metadata
SELECT palaver.restrict_writes('conversation_metadata');

-- The metadata of rows from before. Until this has run, a filter on metadata finds only newer ones.

-- step: read_metadata_of_turns
INSERT INTO palaver.turn_metadata (tenant, cid, key, value, tid)
SELECT t.tenant, t.cid, v.key, v.value, t.tid FROM palaver.turns t CROSS JOIN LATERAL palaver.metadata_values(t.metadata) AS v
WHERE t.metadata IS NOT NULL ON CONFLICT DO NOTHING;

-- step: read_metadata_of_conversations
INSERT INTO palaver.conversation_metadata (tenant, cid, key, value)
SELECT c.tenant, c.cid, v.key, v.value FROM palaver.conversations c CROSS JOIN LATERAL palaver.metadata_values(c.metadata) AS v
WHERE c.metadata IS NOT NULL AND c.gone IS NULL ON CONFLICT DO NOTHING;
