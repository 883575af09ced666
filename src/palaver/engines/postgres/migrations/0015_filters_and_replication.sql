-- Schema for filters and for replication. Each part has a heading; tables are distributed where the others are
-- (docs/scale-out.md).

-- ---- filters ---------------------------------------------------------------------------------------------------------
-- The values of metadata, one row each, so that a filter finds turns and conversations by an index. `value` is a text of
-- bytes that sorts as the values do (`metadata_value` in functions/filters.sql). Its operators are leakproof, so that the
-- index is used behind row level security, too. The tables are empty, so their indexes are made at once.
CREATE TABLE palaver.turn_metadata (
  tenant text NOT NULL,
  cid bigint NOT NULL,
  key text NOT NULL,
  value bytea NOT NULL,
  tid bigint NOT NULL,
  PRIMARY KEY (tenant, cid, key, value, tid),
  FOREIGN KEY (tenant, cid) REFERENCES palaver.conversations
);
CREATE INDEX turn_metadata_of ON palaver.turn_metadata (tenant, tid);
CREATE INDEX turn_metadata_by_value ON palaver.turn_metadata (tenant, key, value, tid);

CREATE TABLE palaver.conversation_metadata (
  tenant text NOT NULL,
  cid bigint NOT NULL,
  key text NOT NULL,
  value bytea NOT NULL,
  PRIMARY KEY (tenant, cid, key, value),
  FOREIGN KEY (tenant, cid) REFERENCES palaver.conversations
);
CREATE INDEX conversation_metadata_by_value ON palaver.conversation_metadata (tenant, key, value, cid);

-- The same policies and rights as those of `streams`, whatever they are in this database.
DO $$
DECLARE
  name text;
  p record;
BEGIN
  FOREACH name IN ARRAY ARRAY['turn_metadata', 'conversation_metadata'] LOOP
    EXECUTE format('ALTER TABLE palaver.%I ENABLE ROW LEVEL SECURITY', name);
    EXECUTE format('ALTER TABLE palaver.%I FORCE ROW LEVEL SECURITY', name);
    EXECUTE format('REVOKE ALL ON palaver.%I FROM PUBLIC', name);
    FOR p IN SELECT o.polname, pg_get_expr(o.polqual, o.polrelid) AS may_see, pg_get_expr(o.polwithcheck, o.polrelid) AS may_write
      FROM pg_policy o WHERE o.polrelid = 'palaver.streams'::regclass AND o.polname IN ('palaver_app', 'authenticated') LOOP
      EXECUTE format('CREATE POLICY %I ON palaver.%I TO %I USING (%s) WITH CHECK (%s)',
        p.polname, name, p.polname, p.may_see, p.may_write);
      EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON palaver.%I TO %I', name, p.polname);
    END LOOP;
    IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'anon') THEN
      EXECUTE format('REVOKE ALL ON palaver.%I FROM anon', name);
    END IF;
    IF to_regproc('palaver.is_distributed') IS NOT NULL AND palaver.is_distributed() THEN
      PERFORM create_distributed_table('palaver.' || name, 'tenant', colocate_with => 'palaver.conversations');
    END IF;
  END LOOP;
END $$;
