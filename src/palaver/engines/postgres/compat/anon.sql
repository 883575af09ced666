-- Lets the anonymous role work as the application does, inside one tenant only. Everyone who has the public key can then
-- read, write and delete everything in that tenant: use it for programs without sign-in, in a tenant with no other data.
-- With an empty tenant, takes all of it back. Run hal.sql or librarian.sql first; this file can be run again.

CREATE OR REPLACE FUNCTION palaver.anonymous() RETURNS palaver.asker LANGUAGE sql STABLE PARALLEL SAFE
  RETURN CASE WHEN {tenant} <> ''
    THEN ROW({tenant}, NULL, 'tenant', NULL, 'read,write,system,admin', NULL)::palaver.asker END;

DO $$
DECLARE
  is_open CONSTANT boolean := {tenant} <> '';
  place record;
  name text;
BEGIN
  FOR place IN SELECT schemaname, tablename FROM pg_tables WHERE schemaname IN ('palaver', 'palaver_compat') LOOP
    EXECUTE format('DROP POLICY IF EXISTS anon ON %I.%I', place.schemaname, place.tablename);
    EXECUTE format('REVOKE ALL ON %I.%I FROM anon', place.schemaname, place.tablename);
    CONTINUE WHEN NOT is_open OR place.tablename = 'api_keys';
    EXECUTE format('CREATE POLICY anon ON %I.%I TO anon USING (tenant = (SELECT (palaver.whoami()).tenant))'
      ' WITH CHECK (tenant = (SELECT (palaver.whoami()).tenant))', place.schemaname, place.tablename);
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %I.%I TO anon', place.schemaname, place.tablename);
  END LOOP;
  REVOKE ALL ON SCHEMA palaver, palaver_api, palaver_compat FROM anon;
  REVOKE ALL ON ALL SEQUENCES IN SCHEMA palaver FROM anon;
  REVOKE ALL ON ALL FUNCTIONS IN SCHEMA palaver, palaver_api, palaver_compat FROM anon;
  IF is_open THEN
    GRANT USAGE ON SCHEMA palaver, palaver_api, palaver_compat, extensions TO anon;
    GRANT USAGE ON ALL SEQUENCES IN SCHEMA palaver TO anon;
    GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA palaver, palaver_api, palaver_compat TO anon;
  END IF;
  FOREACH name IN ARRAY ARRAY[{views}] LOOP
    CONTINUE WHEN to_regclass('public.' || name) IS NULL;
    EXECUTE format('REVOKE ALL ON public.%I FROM anon', name);
    CONTINUE WHEN NOT is_open;
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON public.%I TO anon', name);
  END LOOP;
END $$;
