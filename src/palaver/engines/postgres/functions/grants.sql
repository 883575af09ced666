-- Rights to call the functions: the application and signed-in users may, and PUBLIC may not. Supabase's service key is the
-- application: `enter` switches to palaver_app, as it does for every other login.

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA palaver, palaver_api FROM PUBLIC;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA palaver, palaver_api TO palaver_app;
GRANT EXECUTE ON FUNCTION palaver.whoami(), palaver.asking_role(), palaver.setting(text), palaver.claims(),
  palaver.claim(text), palaver.claimed_tenant(), palaver.anonymous() TO palaver_index, palaver_eraser;
GRANT EXECUTE ON FUNCTION palaver.seen(bigint[]) TO palaver_index;
GRANT EXECUTE ON FUNCTION palaver.stamped_seq(text), palaver.drop_body_proofs(text, bigint[]) TO palaver_eraser;
GRANT EXECUTE ON FUNCTION palaver.some_passages(text, bigint[], integer), palaver.queries_for(text[]),
  palaver.shares_of(tsquery[], tsvector[]), palaver.words_to_read(tsquery[], double precision[], bigint, bigint),
  palaver.mask_of(tsquery[]) TO palaver_index;

DO $$
DECLARE
  role text;
  -- Before Postgres 16 every member may SET ROLE, and 'SET' is not a privilege that can be asked for.
  may_become text := CASE WHEN current_setting('server_version_num')::integer >= 160000 THEN 'SET' ELSE 'MEMBER' END;
BEGIN
  IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'authenticated') THEN
    GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA palaver, palaver_api TO authenticated;
  END IF;
  IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'service_role') THEN
    GRANT USAGE ON SCHEMA palaver, palaver_api TO service_role;
    GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA palaver, palaver_api TO service_role;
  END IF;
  IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'authenticator') THEN
    FOREACH role IN ARRAY ARRAY['palaver_app', 'palaver_worker'] LOOP
      IF NOT pg_has_role('authenticator', role, may_become) THEN  -- another database of this server may have granted it
        EXECUTE format('GRANT %I TO authenticator', role);
      END IF;
    END LOOP;
  END IF;
  IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'anon') THEN
    REVOKE ALL ON ALL FUNCTIONS IN SCHEMA palaver, palaver_api FROM anon;
  END IF;
END $$;
