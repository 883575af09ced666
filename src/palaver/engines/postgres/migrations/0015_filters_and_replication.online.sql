-- Each step runs on its own, after the migration. The code works before they have run.

-- step: restrict_turn_metadata
SELECT palaver.restrict_writes('turn_metadata');

-- step: restrict_conversation_metadata
SELECT palaver.restrict_writes('conversation_metadata');

-- The metadata of rows from before. Until this has run, a filter on metadata finds only newer ones. Row level security
-- holds for the owner of the tables, too: the worker's role lists the tenants, and the application's reads each. Rows that
-- were deleted or changed while theirs were read are corrected at the end.

-- step: read_metadata
DO $$
DECLARE
  here text;
  tenants text[];
  who jsonb;
BEGIN
  PERFORM set_config('role', 'palaver_worker', true);
  tenants := ARRAY(SELECT DISTINCT c.tenant FROM palaver.conversations c);
  PERFORM set_config('role', 'none', true);
  FOREACH here IN ARRAY tenants LOOP
    who := jsonb_build_object('tenant', here, 'sight', 'tenant', 'rights', 'read,write');
    PERFORM palaver.enter(who);
    INSERT INTO palaver.turn_metadata (tenant, cid, key, value, tid)
    SELECT t.tenant, t.cid, v.key, v.value, t.tid FROM palaver.turns t CROSS JOIN LATERAL palaver.metadata_values(t.metadata) AS v
    WHERE t.tenant = here AND t.metadata IS NOT NULL ON CONFLICT DO NOTHING;
    INSERT INTO palaver.conversation_metadata (tenant, cid, key, value)
    SELECT c.tenant, c.cid, v.key, v.value FROM palaver.conversations c CROSS JOIN LATERAL palaver.metadata_values(c.metadata) AS v
    WHERE c.tenant = here AND c.metadata IS NOT NULL AND c.gone IS NULL ON CONFLICT DO NOTHING;
    COMMIT;
    PERFORM palaver.enter(who);
    DELETE FROM palaver.turn_metadata m WHERE m.tenant = here AND NOT EXISTS (
      SELECT 1 FROM palaver.turns t WHERE t.tenant = here AND t.tid = m.tid AND t.metadata IS NOT NULL);
    DELETE FROM palaver.conversation_metadata m WHERE m.tenant = here AND NOT EXISTS (
      SELECT 1 FROM palaver.conversations c CROSS JOIN LATERAL palaver.metadata_values(c.metadata) AS v
      WHERE c.tenant = here AND c.cid = m.cid AND c.gone IS NULL AND v.key = m.key AND v.value = m.value);
    COMMIT;
  END LOOP;
END $$;
