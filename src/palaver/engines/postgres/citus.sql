-- Distributes Palaver's tables over the nodes of a Citus cluster: all rows of a tenant are on one node, and every function
-- of `palaver_api` runs there. Run on the coordinator by a superuser, after the schema and again after every migration:
-- steps that are done already change nothing.

DO $$
BEGIN
  IF NOT EXISTS (SELECT 1 FROM pg_extension WHERE extname = 'citus') THEN
    RAISE EXCEPTION 'this database has no extension citus: run CREATE EXTENSION citus and add the nodes first';
  ELSIF to_regnamespace('palaver_compat') IS NOT NULL THEN
    RAISE EXCEPTION '--compat cannot be combined with Citus: it needs triggers, which distributed tables do not have';
  ELSIF NOT EXISTS (SELECT 1 FROM pg_dist_node WHERE isactive AND shouldhaveshards) THEN
    RAISE EXCEPTION 'no node of this cluster holds shards: run SELECT citus_add_node(''host'', 5432) for each node';
  END IF;
END $$;
SET LOCAL client_min_messages = warning;
SET LOCAL citus.enable_ddl_propagation = on;
SET LOCAL citus.multi_shard_modify_mode = 'sequential';

-- ---- roles ----------------------------------------------------------------------------------------------------------
-- Questions about all tenants go to every node in the role `palaver_worker`; everything else in the login of the caller.
-- The role has no password, so that no client can log in as it; pg_hba.conf or pg_dist_authinfo says how nodes trust each
-- other.
ALTER ROLE palaver_worker LOGIN;

-- ---- functions that differ on a cluster -----------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION palaver.is_distributed() RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN true;

-- node_number: a row number that no other row of the tenant has, and that is larger than every one before it, even if the
-- shard was on another node then: the microseconds since 1970, followed by eleven bits of a sequence of this node
CREATE OR REPLACE FUNCTION palaver.node_number() RETURNS bigint LANGUAGE sql VOLATILE
  RETURN ((extract(epoch FROM clock_timestamp()) * 1000000)::bigint << 11) | (nextval('palaver.conversation_numbers') & 2047);

CREATE OR REPLACE FUNCTION palaver.new_tid() RETURNS bigint LANGUAGE sql VOLATILE RETURN palaver.node_number();
CREATE OR REPLACE FUNCTION palaver.new_number() RETURNS bigint LANGUAGE sql VOLATILE RETURN palaver.node_number();

-- asked_tenant: the tenant of the caller. Without one this is an error: a query that did not come through a function of
-- `palaver_api` would otherwise find nothing, and look like an empty database
CREATE OR REPLACE FUNCTION palaver.asked_tenant() RETURNS text LANGUAGE plpgsql STABLE PARALLEL SAFE
SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE tenant text := current_setting('palaver.tenant', true);
BEGIN
  IF coalesce(tenant, '') = '' THEN
    RAISE EXCEPTION 'palaver.tenant is not set on this node: call a function of palaver_api'
      USING ERRCODE = 'object_not_in_prerequisite_state';
  END IF;
  RETURN tenant;
END $$;

-- ---- tables ---------------------------------------------------------------------------------------------------------

-- Policies of distributed tables cannot have sub-selects, which here only save a function call per row.
SET LOCAL citus.enable_ddl_propagation = off;
CREATE FUNCTION pg_temp.plain(predicate text) RETURNS text LANGUAGE sql
  RETURN '(' || replace(regexp_replace(replace(predicate, '( SELECT ', '('), ' AS (\w+|"[^"]+")\)', ')', 'g'),
    'NULLIF(current_setting(''palaver.tenant''::text, true), ''''::text)', 'palaver.asked_tenant()') || ')';
SET LOCAL citus.enable_ddl_propagation = on;

DO $$
DECLARE p record;
BEGIN
  FOR p IN SELECT o.polname, c.relname, pg_get_expr(o.polqual, o.polrelid) AS may_see,
      pg_get_expr(o.polwithcheck, o.polrelid) AS may_write
    FROM pg_policy o JOIN pg_class c ON c.oid = o.polrelid WHERE c.relnamespace = 'palaver'::regnamespace
      AND NOT EXISTS (SELECT 1 FROM pg_dist_partition d WHERE d.logicalrelid = c.oid) LOOP
    EXECUTE format('ALTER POLICY %I ON palaver.%I', p.polname, p.relname)
      || coalesce(' USING ' || pg_temp.plain(p.may_see), '') || coalesce(' WITH CHECK ' || pg_temp.plain(p.may_write), '');
  END LOOP;
END $$;

-- Tables that are not distributed yet, those that others refer to first.
CREATE TEMPORARY TABLE palaver_new ON COMMIT DROP AS
SELECT c.oid AS place, c.relname AS name FROM pg_class c WHERE c.relnamespace = 'palaver'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
  AND NOT EXISTS (SELECT 1 FROM pg_dist_partition d WHERE d.logicalrelid = c.oid)
ORDER BY c.relname <> 'conversations', c.oid;

-- Foreign keys are dropped, and created again once both tables are distributed.
CREATE TEMPORARY TABLE palaver_keys ON COMMIT DROP AS
SELECT conrelid::regclass::text AS place, conname AS name, pg_get_constraintdef(oid) AS definition
FROM pg_constraint WHERE contype = 'f' AND conparentid = 0 AND conrelid IN (SELECT place FROM palaver_new);

DO $$
DECLARE one record;
BEGIN
  FOR one IN SELECT * FROM palaver_keys LOOP
    EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I', one.place, one.name);
  END LOOP;
  FOR one IN SELECT n.name, a.attname FROM palaver_new n JOIN pg_attribute a ON a.attrelid = n.place
      JOIN pg_attrdef d ON d.adrelid = n.place AND d.adnum = a.attnum
      WHERE pg_get_expr(d.adbin, d.adrelid) LIKE 'nextval(%' AND a.attname <> 'cid' LOOP
    EXECUTE format('ALTER TABLE palaver.%I ALTER COLUMN %I SET DEFAULT palaver.node_number()', one.name, one.attname);
  END LOOP;
  FOR one IN SELECT * FROM palaver_new LOOP
    RAISE INFO 'distributing palaver.%', one.name;
    PERFORM create_distributed_table(one.place, 'tenant', colocate_with =>
      CASE one.name WHEN 'conversations' THEN 'none' ELSE 'palaver.conversations' END);
  END LOOP;
  FOR one IN SELECT * FROM palaver_keys LOOP
    EXECUTE format('ALTER TABLE %s ADD CONSTRAINT %I %s', one.place, one.name, one.definition);
  END LOOP;
END $$;

-- ---- functions ------------------------------------------------------------------------------------------------------
-- The nodes get every function of `palaver`. A function of `palaver_api` is moved to `palaver_node`, with the tenant as its
-- first argument, by which Citus finds the node to run it on. A router takes its place: same name and arguments, it passes
-- the call on. Functions that ask about all tenants stay on the coordinator; with `everywhere`, the caller chooses. So do
-- those that only call others (older_code.sql).

CREATE SCHEMA IF NOT EXISTS palaver_node;
REVOKE ALL ON SCHEMA palaver_node FROM PUBLIC;
GRANT USAGE ON SCHEMA palaver_node TO palaver_app;

DO $$
DECLARE f regprocedure;
BEGIN
  RAISE INFO 'sending the functions to the nodes';
  FOR f IN SELECT p.oid FROM pg_proc p WHERE p.pronamespace = 'palaver'::regnamespace
      AND NOT EXISTS (SELECT 1 FROM pg_dist_object o WHERE o.classid = 'pg_proc'::regclass AND o.objid = p.oid)
      ORDER BY p.oid LOOP
    PERFORM create_distributed_function(f);
  END LOOP;
END $$;

DO $$
DECLARE
  f record;
  moved text;
  call text;
BEGIN
  FOR f IN SELECT p.proname, p.proretset, pg_get_functiondef(p.oid) AS definition, pg_get_function_result(p.oid) AS result,
      pg_get_function_arguments(p.oid) AS arguments, 'everywhere' = ANY (p.proargnames) AS may_stay,
      (SELECT string_agg(format_type(a.type, NULL), ', ' ORDER BY a.n)
        FROM unnest(p.proargtypes::oid[]) WITH ORDINALITY AS a (type, n)) AS types,
      (SELECT string_agg('$' || n, ', ' ORDER BY n) FROM generate_series(1, p.pronargs) AS n) AS values
    FROM pg_proc p WHERE p.pronamespace = 'palaver_api'::regnamespace AND p.prosrc LIKE '%enter(%'
      AND (p.prosrc NOT LIKE '%enter_worker(%' OR 'everywhere' = ANY (p.proargnames)) ORDER BY p.oid LOOP
    RAISE INFO 'routing palaver_api.%', f.proname;
    IF f.may_stay THEN
      EXECUTE replace(f.definition, format('palaver_api.%I(', f.proname), format('palaver_node.%I(', f.proname));
    END IF;
    EXECUTE replace(f.definition, format('palaver_api.%I(', f.proname), format('palaver_node.%I(home text, ', f.proname));
    moved := format('palaver_node.%I(text, %s)', f.proname, f.types);
    PERFORM create_distributed_function(moved::regprocedure, 'home', 'palaver.conversations', true);
    call := format('* FROM palaver_node.%I(home, %s)', f.proname, f.values);
    EXECUTE format($router$CREATE OR REPLACE FUNCTION palaver_api.%I(%s) RETURNS %s
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $body$
DECLARE
  home text := $1 ->> 'tenant';  -- a variable, because Citus chooses the node by a value, not by an expression
  result %s;
BEGIN
  IF coalesce(home, '') = '' THEN
    PERFORM fail('PV021', 'read');
  END IF;%s
  %s;
END $body$ $router$, f.proname, f.arguments, f.result,
      CASE WHEN f.proretset OR f.result = 'void' THEN 'text' ELSE f.result END,
      CASE WHEN f.may_stay THEN format('
  IF everywhere THEN
    RETURN QUERY SELECT * FROM palaver_node.%I(%s);
    RETURN;
  END IF;', f.proname, f.values) ELSE '' END,
      CASE WHEN f.proretset THEN 'RETURN QUERY SELECT ' || call WHEN f.result = 'void' THEN 'PERFORM ' || call
        ELSE replace('SELECT ' || call, '* FROM', '* INTO result FROM') || '; RETURN result' END);
  END LOOP;
  -- Functions that a migration has dropped.
  FOR f IN SELECT n.oid::regprocedure AS name FROM pg_proc n WHERE n.pronamespace = 'palaver_node'::regnamespace
      AND NOT EXISTS (SELECT 1 FROM pg_proc p WHERE p.pronamespace = 'palaver_api'::regnamespace AND p.proname = n.proname
        AND n.proargtypes::text IN (p.proargtypes::text, 'text'::regtype::oid || ' ' || p.proargtypes::text)) LOOP
    EXECUTE format('DROP FUNCTION %s', f.name);
  END LOOP;
END $$;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA palaver_node FROM PUBLIC;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA palaver_node TO palaver_app;
