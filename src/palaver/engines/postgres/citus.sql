-- Distributes Palaver's tables over the nodes of a Citus cluster: all rows of a tenant are on one node, so that every
-- function works on one shard. Run once on the coordinator, by a superuser, after the schema.

DO $$
BEGIN
  IF NOT EXISTS (SELECT 1 FROM pg_extension WHERE extname = 'citus') THEN
    RAISE EXCEPTION 'this database has no extension citus: run CREATE EXTENSION citus and add the nodes first';
  ELSIF to_regnamespace('palaver_compat') IS NOT NULL THEN
    RAISE EXCEPTION '--compat cannot be combined with Citus: it needs triggers, which distributed tables do not have';
  ELSIF palaver.is_distributed() THEN
    RAISE EXCEPTION 'the tables are distributed already';
  END IF;
  -- The nodes enforce row level security. Without this setting they are not sent the tenant of the caller, and return
  -- no rows.
  EXECUTE format('ALTER DATABASE %I SET citus.propagate_set_commands = ''local''', current_database());
END $$;
SET citus.propagate_set_commands = 'local';

-- Nodes connect to each other in the role of the caller. These roles have no password, so that no client can log in as one;
-- how nodes trust each other is configured in pg_hba.conf or pg_dist_authinfo.
ALTER ROLE palaver_app LOGIN;
ALTER ROLE palaver_worker LOGIN;
ALTER ROLE palaver_index LOGIN;
ALTER ROLE palaver_eraser LOGIN;

-- Policies of distributed tables cannot have sub-selects, which here only save a function call per row.
CREATE FUNCTION pg_temp.plain(predicate text) RETURNS text LANGUAGE sql
  RETURN '(' || regexp_replace(replace(predicate, '( SELECT ', '('), ' AS (\w+|"[^"]+")\)', ')', 'g') || ')';

DO $$
DECLARE p record;
BEGIN
  FOR p IN SELECT o.polname, c.relname, pg_get_expr(o.polqual, o.polrelid) AS may_see,
      pg_get_expr(o.polwithcheck, o.polrelid) AS may_write
    FROM pg_policy o JOIN pg_class c ON c.oid = o.polrelid WHERE c.relnamespace = 'palaver'::regnamespace LOOP
    EXECUTE format('ALTER POLICY %I ON palaver.%I', p.polname, p.relname)
      || coalesce(' USING ' || pg_temp.plain(p.may_see), '') || coalesce(' WITH CHECK ' || pg_temp.plain(p.may_write), '');
  END LOOP;
END $$;

-- Foreign keys are dropped, and created again once both tables are distributed.
CREATE TEMPORARY TABLE palaver_keys ON COMMIT DROP AS
SELECT conrelid::regclass::text AS place, conname AS name, pg_get_constraintdef(oid) AS definition
FROM pg_constraint WHERE contype = 'f' AND connamespace = 'palaver'::regnamespace AND conparentid = 0;

DO $$
DECLARE k record;
BEGIN
  FOR k IN SELECT * FROM palaver_keys LOOP
    EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I', k.place, k.name);
  END LOOP;
END $$;

SELECT create_distributed_table('palaver.conversations', 'tenant', colocate_with => 'none');
SELECT create_distributed_table('palaver.turns', 'tenant', colocate_with => 'palaver.conversations');
SELECT create_distributed_table('palaver.streams', 'tenant', colocate_with => 'palaver.conversations');
SELECT create_distributed_table('palaver.answer_places', 'tenant', colocate_with => 'palaver.conversations');
SELECT create_distributed_table('palaver.attachments', 'tenant', colocate_with => 'palaver.conversations');
SELECT create_distributed_table('palaver.file_passages', 'tenant', colocate_with => 'palaver.conversations');
SELECT create_distributed_table('palaver.doomed_blobs', 'tenant', colocate_with => 'palaver.conversations');
SELECT create_distributed_table('palaver.events', 'tenant', colocate_with => 'palaver.conversations');
SELECT create_distributed_table('palaver.passages', 'tenant', colocate_with => 'palaver.conversations');
SELECT create_distributed_table('palaver.summaries', 'tenant', colocate_with => 'palaver.conversations');
SELECT create_distributed_table('palaver.working_memory', 'tenant', colocate_with => 'palaver.conversations');
SELECT create_distributed_table('palaver.facts', 'tenant', colocate_with => 'palaver.conversations');
SELECT create_distributed_table('palaver.marks', 'tenant', colocate_with => 'palaver.conversations');
SELECT create_distributed_table('palaver.embeddings', 'tenant', colocate_with => 'palaver.conversations');
SELECT create_distributed_table('palaver.embedded', 'tenant', colocate_with => 'palaver.conversations');
SELECT create_distributed_table('palaver.jobs', 'tenant', colocate_with => 'palaver.conversations');
SELECT create_distributed_table('palaver.requests', 'tenant', colocate_with => 'palaver.conversations');
SELECT create_distributed_table('palaver.request_quotes', 'tenant', colocate_with => 'palaver.conversations');
SELECT create_distributed_table('palaver.counter_bounds', 'tenant', colocate_with => 'palaver.conversations');
SELECT create_distributed_table('palaver.api_keys', 'tenant', colocate_with => 'palaver.conversations');
SELECT create_distributed_table('palaver.key_events', 'tenant', colocate_with => 'palaver.conversations');
SELECT create_distributed_table('palaver.seals', 'tenant', colocate_with => 'palaver.conversations');

DO $$
DECLARE k record;
BEGIN
  FOR k IN SELECT * FROM palaver_keys LOOP
    EXECUTE format('ALTER TABLE %s ADD CONSTRAINT %I %s', k.place, k.name, k.definition);
  END LOOP;
END $$;

-- tell_nodes: repeat the settings of `enter` with SET LOCAL, which Citus passes on to the nodes. A policy may also look up
-- its conversation, which is on the same node
CREATE OR REPLACE FUNCTION palaver.tell_nodes() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE name text;
BEGIN
  FOREACH name IN ARRAY ARRAY['tenant', 'user', 'sight', 'workspace', 'rights'] LOOP
    EXECUTE format('SET LOCAL palaver.%I = %L', name, coalesce(current_setting('palaver.' || name, true), ''));
  END LOOP;
  SET LOCAL citus.allow_nested_distributed_execution = on;
END $$;
GRANT EXECUTE ON FUNCTION palaver.tell_nodes() TO palaver_app;
CREATE OR REPLACE FUNCTION palaver.is_distributed() RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN true;

-- The nodes need the functions that policies call. No call is delegated to a node as a whole: the tenant is inside `who`,
-- not an argument of its own, and row numbers are assigned by the coordinator, in order.
SELECT create_distributed_function(p.oid::regprocedure::text) FROM pg_proc p
WHERE p.pronamespace = 'palaver'::regnamespace AND p.proname IN ('whoami', 'anonymous', 'asking_role', 'claims', 'claim',
  'claimed_tenant', 'setting', 'may_see') ORDER BY p.oid;
