-- Checks of values that clients send, service for other versions of the code, and large deletions in slices. Each part
-- has a heading; tables are distributed where the others are (docs/scale-out.md).

-- ---- functions -------------------------------------------------------------------------------------------------------
-- A database with schema 10 gets the current functions. Functions that a released version calls are never dropped here:
-- they stay as they are called (functions/older_code.sql), and a call that is under way finds them.
-- These five had a parameter with a default in schemas 6 to 10, which no release had.
DO $$
BEGIN
  IF EXISTS (SELECT 1 FROM pg_proc WHERE oid = to_regprocedure('palaver_api.health(jsonb, boolean, text[])')) THEN
    DROP FUNCTION palaver_api.tenants_waiting(jsonb, integer, text[]);
    DROP FUNCTION palaver_api.next_job(jsonb, text[]);
    DROP FUNCTION palaver_api.next_job_anywhere(jsonb, text[]);
    DROP FUNCTION palaver_api.health(jsonb, boolean, text[]);
    DROP FUNCTION palaver_api.claim_job(jsonb, bigint, text[]);
  END IF;
END $$;

-- ---- rights ----------------------------------------------------------------------------------------------------------
-- Callers with a token are strangers until their rights are checked: a token without the right `write` changes no row,
-- whichever function or view it uses (the policies are added online, table by table); and the functions that run as
-- `palaver_index` see which conversations are the caller's. Only databases with Supabase's roles have such callers. The
-- policies have no sub-selects: see citus.sql.
CREATE FUNCTION palaver.may_write() RETURNS boolean LANGUAGE sql STABLE PARALLEL SAFE
  RETURN strpos(',' || coalesce(palaver.claims() -> 'app_metadata' ->> 'palaver_rights', 'read,write') || ',', ',write,') > 0;

DO $$
BEGIN
  IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'authenticated') THEN
    RETURN;
  END IF;
  GRANT SELECT (tenant, cid, owner, members, workspace) ON palaver.conversations TO palaver_index;
  CREATE POLICY palaver_index ON palaver.conversations FOR SELECT TO palaver_index USING (
    tenant = (palaver.whoami()).tenant AND ((palaver.whoami()).sight = 'tenant' OR owner = (palaver.whoami())."user"
      OR (palaver.whoami())."user" = ANY (members)
      OR ((palaver.whoami()).sight = 'workspace' AND workspace = (palaver.whoami()).workspace)));
END $$;

-- ---- recall over many conversations ----------------------------------------------------------------------------------
-- The database ranks the turns of a large scope itself. The role that looks words up compares vectors as well, and reads
-- of a turn what recall ranks by: its place, time, size and speaker, and no text.
CREATE POLICY palaver_index ON palaver.turns FOR SELECT TO palaver_index USING (true);
CREATE POLICY palaver_index ON palaver.embeddings FOR SELECT TO palaver_index USING (true);
CREATE POLICY palaver_index ON palaver.marks FOR SELECT TO palaver_index USING (true);
GRANT SELECT (tenant, cid, tid, position, created, active, status, role, actor, token_count) ON palaver.turns
  TO palaver_index;
GRANT SELECT (tenant, cid, tid, model, vector) ON palaver.embeddings TO palaver_index;
GRANT SELECT ON palaver.marks TO palaver_index;
