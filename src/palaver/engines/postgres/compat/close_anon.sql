-- Takes everything back from the anonymous role that anon.sql has granted.

CREATE OR REPLACE FUNCTION palaver.anonymous() RETURNS palaver.asker LANGUAGE sql STABLE PARALLEL SAFE
  RETURN NULL::palaver.asker;

DO $$
DECLARE
  place record;
  name text;
BEGIN
  FOR place IN SELECT schemaname, tablename FROM pg_tables WHERE schemaname IN ('palaver', 'palaver_compat') LOOP
    EXECUTE format('DROP POLICY IF EXISTS anon ON %I.%I', place.schemaname, place.tablename);
    EXECUTE format('REVOKE ALL ON %I.%I FROM anon', place.schemaname, place.tablename);
  END LOOP;
  REVOKE ALL ON SCHEMA palaver, palaver_api, palaver_compat FROM anon;
  REVOKE ALL ON ALL SEQUENCES IN SCHEMA palaver FROM anon;
  REVOKE ALL ON ALL FUNCTIONS IN SCHEMA palaver, palaver_api, palaver_compat FROM anon;
  FOREACH name IN ARRAY ARRAY[{views}] LOOP
    IF to_regclass('public.' || name) IS NOT NULL THEN
      EXECUTE format('REVOKE ALL ON public.%I FROM anon', name);
    END IF;
  END LOOP;
END $$;
