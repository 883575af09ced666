-- Palaver's tables over the nodes of a Citus cluster: all rows of a tenant on one node, so that every verb is a matter of
-- one shard. To be run on the coordinator, by a superuser, after the schema; once.

DO $$
BEGIN
  IF NOT EXISTS (SELECT 1 FROM pg_extension WHERE extname = 'citus') THEN
    RAISE EXCEPTION 'the extension citus is not in this database: CREATE EXTENSION citus, and add the nodes, first';
  ELSIF to_regnamespace('palaver_compat') IS NOT NULL THEN
    RAISE EXCEPTION 'the tables of --compat follow others by triggers, which distributed tables do not have';
  ELSIF palaver.is_distributed() THEN
    RAISE EXCEPTION 'these tables are distributed already';
  END IF;
  -- Row level security is decided on the nodes. Without this they do not hear which tenant is asking, and answer with
  -- nothing.
  EXECUTE format('ALTER DATABASE %I SET citus.propagate_set_commands = ''local''', current_database());
END $$;
SET citus.propagate_set_commands = 'local';

-- Nodes speak to each other as whoever is asking. Without a password nobody else can sign in as these; how nodes trust each
-- other is for pg_hba.conf or pg_dist_authinfo to say.
ALTER ROLE palaver_app LOGIN;
ALTER ROLE palaver_worker LOGIN;
ALTER ROLE palaver_index LOGIN;
ALTER ROLE palaver_eraser LOGIN;

-- Policies of distributed tables have no sub-selects. Here those only save a look-up per row.
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

-- Foreign keys are set aside until both ends are distributed.
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

-- tell_nodes: what `enter` set, said again in the one way that Citus passes on. And a policy may look its conversation up:
-- that is on the same node
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

-- The nodes need the functions that policies call. None is sent to a node as a whole: a verb learns its tenant from
-- `who`, not from an argument of its own, and numbers of rows are given out by the coordinator, in order.
SELECT create_distributed_function(p.oid::regprocedure::text) FROM pg_proc p
WHERE p.pronamespace = 'palaver'::regnamespace AND p.proname IN ('whoami', 'anonymous', 'asking_role', 'claims', 'claim',
  'claimed_tenant', 'setting', 'may_see') ORDER BY p.oid;
