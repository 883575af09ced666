-- Functions that code of earlier versions calls, with as little in them as possible. They stay until no code that is
-- still served calls them (`OLDEST_CODE` in migrate.py). docs/how-to/upgrading.md says which versions that are;
-- CONTRIBUTING.md, how to add one.

-- ---- 0.1.0 ----------------------------------------------------------------------------------------------------------
-- Its workers do not say which kinds of jobs they know, so these functions do.

CREATE OR REPLACE FUNCTION palaver.kinds_of_0_1_0() RETURNS text[] LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN ARRAY['embed', 'compact', 'title', 'files'];

CREATE OR REPLACE FUNCTION palaver_api.tenants_waiting(who jsonb, most integer) RETURNS TABLE (tenant text)
LANGUAGE sql SET search_path = pg_catalog, palaver, pg_temp AS $$
  SELECT * FROM palaver_api.tenants_waiting(who, most, kinds_of_0_1_0())
$$;

CREATE OR REPLACE FUNCTION palaver_api.next_job(who jsonb) RETURNS TABLE (due bigint)
LANGUAGE sql SET search_path = pg_catalog, palaver, pg_temp AS $$
  SELECT * FROM palaver_api.next_job(who, kinds_of_0_1_0())
$$;

CREATE OR REPLACE FUNCTION palaver_api.next_job_anywhere(who jsonb) RETURNS TABLE (due bigint)
LANGUAGE sql SET search_path = pg_catalog, palaver, pg_temp AS $$
  SELECT * FROM palaver_api.next_job_anywhere(who, kinds_of_0_1_0())
$$;

CREATE OR REPLACE FUNCTION palaver_api.claim_job(who jsonb, lease bigint)
RETURNS TABLE (id bigint, kind text, conversation text, argument bigint, attempts integer, asked bigint)
LANGUAGE sql SET search_path = pg_catalog, palaver, pg_temp AS $$
  SELECT * FROM palaver_api.claim_job(who, lease, kinds_of_0_1_0())
$$;

-- health: 0.1.0 is ready when `schema` equals the number that it knows
CREATE OR REPLACE FUNCTION palaver_api.health(who jsonb, everywhere boolean)
RETURNS TABLE (schema integer, waiting bigint, put_aside bigint, oldest bigint)
LANGUAGE sql SET search_path = pg_catalog, palaver, pg_temp AS $$
  SELECT h.oldest_code, h.waiting, h.put_aside, h.oldest FROM palaver_api.health(who, everywhere, kinds_of_0_1_0()) AS h
$$;

-- signed_in: the same for a Supabase user
CREATE OR REPLACE FUNCTION palaver_api.signed_in(who jsonb)
RETURNS TABLE (tenant text, "user" text, sight text, workspace text, rights text, version integer)
LANGUAGE sql SET search_path = pg_catalog, palaver, pg_temp AS $$
  SELECT s.tenant, s."user", s.sight, s.workspace, s.rights, s.oldest_code FROM palaver_api.signed_in_scope(who) AS s
$$;

-- The views of an earlier installation of palaver_compat call this one.
CREATE OR REPLACE FUNCTION palaver.check_redacted(content text, is_parts smallint, tool_calls text, tool_results text,
  sources text) RETURNS void LANGUAGE sql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
  SELECT check_redacted(content, is_parts, tool_calls, tool_results, sources, NULL, NULL, NULL)
$$;

-- reading: `context_reading` without the column that it does not know
CREATE OR REPLACE FUNCTION palaver_api.reading(who jsonb, conversation text, budget bigint, in_characters boolean,
  most_facts integer, viewer text DEFAULT NULL, summarised bigint DEFAULT NULL)
RETURNS TABLE (info text, tail text, current text, summaries text, working_memory text, facts text, revision bigint,
  summarized_position bigint, summarized_turns bigint)
LANGUAGE sql SET search_path = pg_catalog, palaver, pg_temp AS $$
  SELECT r.info, r.tail, r.current, r.summaries, r.working_memory, r.facts, r.revision, r.summarized_position,
    r.summarized_turns
  FROM palaver_api.context_reading(who, conversation, budget, in_characters, most_facts, viewer, summarised) AS r
$$;
