-- Counts for operators.

-- database_bytes: the size of the database. Postgres reports it only to roles that may connect, and an administrator may
-- allow only a few logins to connect: then the size of Palaver's own tables
CREATE OR REPLACE FUNCTION palaver.database_bytes() RETURNS bigint
LANGUAGE sql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
  SELECT CASE WHEN has_database_privilege(current_database(), 'CONNECT') THEN pg_database_size(current_database())
    ELSE (SELECT sum(pg_total_relation_size(c.oid))::bigint FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
          WHERE n.nspname = 'palaver' AND c.relkind = 'r') END
$$;

-- stats: counts over what the caller may see, and the jobs of the tenant
CREATE OR REPLACE FUNCTION palaver_api.stats(who jsonb) RETURNS TABLE (conversations bigint, turns bigint, tokens bigint,
  events bigint, attachments bigint, attachment_bytes bigint, open_streams bigint, files_to_delete bigint, outbox jsonb,
  server text, bytes bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE me asker := enter(who, 'read');
BEGIN
  RETURN QUERY WITH seen AS (
    SELECT c.* FROM palaver.conversations c WHERE c.tenant = me.tenant AND c.gone IS NULL
      AND (c.expires_at IS NULL OR c.expires_at > me.now) AND coalesce(c.key, '') NOT LIKE 'palaver:memory/%'
  ), files AS (
    SELECT count(*) AS files, coalesce(sum(a.bytes), 0)::bigint AS size FROM palaver.attachments a
    WHERE a.tenant = me.tenant AND a.cid IN (SELECT s.cid FROM seen s)
  ), kinds AS (
    SELECT j.kind, j.dead, count(*) AS jobs, max(j.attempts) AS attempts, max(j.error) AS error
    FROM palaver.jobs j WHERE j.tenant = me.tenant GROUP BY j.kind, j.dead
  )
  SELECT count(*), coalesce(sum(s.turn_count), 0)::bigint, coalesce(sum(s.token_count), 0)::bigint,
    coalesce(sum(s.next_n - 1), 0)::bigint, (SELECT f.files FROM files f), (SELECT f.size FROM files f),
    (SELECT count(*) FROM streams o WHERE o.tenant = me.tenant AND o.cid IN (SELECT s2.cid FROM seen s2)),
    (SELECT count(*) FROM doomed_blobs b WHERE b.tenant = me.tenant),
    (SELECT coalesce(jsonb_agg(to_jsonb(k)), '[]') FROM kinds k),
    current_setting('server_version'), database_bytes()
  FROM seen s;
END $$;

-- usage: tokens by day, owner and model, of answers and of memory work
CREATE OR REPLACE FUNCTION palaver_api.usage(who jsonb, most integer, since bigint DEFAULT NULL,
  until bigint DEFAULT NULL)
RETURNS TABLE (day text, "user" text, model text, calls bigint, prompt bigint, completion bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
#variable_conflict use_column
DECLARE me asker := enter(who, 'read');
BEGIN
  RETURN QUERY SELECT to_char(to_timestamp(u.at / 1000000) AT TIME ZONE 'UTC', 'YYYY-MM-DD'), u.owner, u.model,
    count(*), sum(u.prompt)::bigint, sum(u.completion)::bigint
  FROM (
    SELECT t.created AS at, c.owner, coalesce(t.model, '') AS model, coalesce(t.prompt_tokens, 0) AS prompt,
      coalesce(t.completion_tokens, 0) AS completion
    FROM turns t JOIN conversations c ON c.tenant = t.tenant AND c.cid = t.cid
    WHERE t.tenant = me.tenant AND (t.prompt_tokens IS NOT NULL OR t.completion_tokens IS NOT NULL)
      AND c.gone IS NULL AND (c.expires_at IS NULL OR c.expires_at > me.now)
    UNION ALL
    SELECT r.at, c.owner, r.model, coalesce((r.response::json #>> '{usage,prompt}')::bigint, 0),
      coalesce((r.response::json #>> '{usage,completion}')::bigint, 0)
    FROM requests r JOIN conversations c ON c.tenant = r.tenant AND c.cid = r.cid
    WHERE r.tenant = me.tenant AND r.purpose <> 'generate' AND r.response IS NOT NULL
      AND c.gone IS NULL AND (c.expires_at IS NULL OR c.expires_at > me.now)
  ) AS u
  WHERE (usage.since IS NULL OR u.at >= usage.since) AND (usage.until IS NULL OR u.at < usage.until)
  GROUP BY 1, 2, 3 ORDER BY 1 DESC, u.owner COLLATE "C", u.model COLLATE "C" LIMIT most;
END $$;

-- tenants: the tenants that have conversations; skips from one to the next, however many rows each has
CREATE OR REPLACE FUNCTION palaver_api.tenants(who jsonb) RETURNS TABLE (tenant text)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE me asker := enter_worker(who);
BEGIN
  tenant := '';
  LOOP
    tenant := (SELECT min(c.tenant) FROM conversations c WHERE c.tenant > tenants.tenant);
    EXIT WHEN tenant IS NULL;
    RETURN NEXT;
  END LOOP;
END $$;

-- health: the number of the schema, the oldest code that may use it, how many jobs wait or are dead, and since when the
-- oldest has been due; of one tenant or of all. Jobs that a migration enqueues have no time
CREATE OR REPLACE FUNCTION palaver_api.health(who jsonb, everywhere boolean, kinds text[])
RETURNS TABLE (schema integer, oldest_code integer, waiting bigint, put_aside bigint, oldest bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE me asker := CASE WHEN everywhere THEN enter_worker(who) ELSE enter(who, 'read') END;
BEGIN
  RETURN QUERY SELECT schema_number(), schema_version(), count(*) FILTER (WHERE j.dead = 0),
    count(*) FILTER (WHERE j.dead <> 0), min(nullif(j.run_at, 0)) FILTER (WHERE is_due(j.dead, j.run_at, j.lease_until, me.now) AND j.kind = ANY (kinds))
  FROM jobs j WHERE everywhere OR j.tenant = me.tenant;
END $$;
