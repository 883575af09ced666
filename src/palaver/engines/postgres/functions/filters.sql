-- Filters: the values of metadata in a form that an index can compare, and the turns and conversations that have them.
-- The rules are those of core/filters.py.

-- metadata_value: a value as bytes that sort as the values do: a byte for its kind (1 boolean, 2 number, 3 text), then the
-- value. A number is a double whose bits are arranged so that they sort, followed by its digits where a double is too short
-- for it. NULL for a value that is not compared
CREATE OR REPLACE FUNCTION palaver.metadata_value(value jsonb) RETURNS bytea
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  said text := value #>> '{}';
  bits bigint;
BEGIN
  CASE jsonb_typeof(value)
  WHEN 'string' THEN
    RETURN CASE WHEN char_length(said) <= 256 THEN '\x03'::bytea || convert_to(said, 'UTF8') END;
  WHEN 'boolean' THEN
    RETURN CASE WHEN said = 'true' THEN '\x0101' ELSE '\x0100' END::bytea;
  WHEN 'number' THEN
    IF abs(said::numeric) >= 1e300 THEN
      RETURN NULL;
    END IF;
    bits := ('x' || encode(float8send(said::float8 + 0), 'hex'))::bit(64)::bigint;
    bits := CASE WHEN bits < 0 THEN ~bits ELSE bits # (-9223372036854775808) END;
    RETURN '\x02'::bytea || int8send(bits) || CASE WHEN abs(said::numeric) >= 9007199254740992
      AND abs(said::numeric) < 18446744073709551616 THEN convert_to(trunc(said::numeric)::text, 'UTF8') ELSE '' END;
  ELSE
    RETURN NULL;
  END CASE;
END $$;

-- metadata_values: the values of metadata, each element of a list as one
CREATE OR REPLACE FUNCTION palaver.metadata_values(metadata text) RETURNS TABLE (key text, value bytea)
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, palaver, pg_temp AS $$
  SELECT DISTINCT f.key, f.value FROM (
    SELECT o.key, metadata_value(i.value) AS value FROM jsonb_each(metadata::jsonb) AS o
    CROSS JOIN LATERAL jsonb_array_elements(
      CASE jsonb_typeof(o.value) WHEN 'array' THEN o.value ELSE jsonb_build_array(o.value) END) AS i (value)
    WHERE char_length(o.key) <= 256
  ) AS f WHERE f.value IS NOT NULL
$$;

-- index_metadata: store the values of a turn's metadata, in place of earlier ones
CREATE OR REPLACE FUNCTION palaver.index_metadata(here text, thread bigint, turn bigint, metadata text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE v record;
BEGIN
  DELETE FROM turn_metadata m WHERE m.tenant = here AND m.tid = turn;
  FOR v IN SELECT * FROM metadata_values(metadata) LOOP
    INSERT INTO turn_metadata (tenant, cid, key, value, tid) VALUES (here, thread, v.key, v.value, turn);
  END LOOP;
END $$;

-- index_details: the same for a conversation's own metadata
CREATE OR REPLACE FUNCTION palaver.index_details(here text, thread bigint, metadata text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE v record;
BEGIN
  DELETE FROM conversation_metadata m WHERE m.tenant = here AND m.cid = thread;
  FOR v IN SELECT * FROM metadata_values(metadata) LOOP
    INSERT INTO conversation_metadata (tenant, cid, key, value) VALUES (here, thread, v.key, v.value);
  END LOOP;
END $$;

-- intervals: the intervals of a filter ([condition, key, kind, low, high, low is open, high is open] each), as bytes from
-- `low` on and before `high`. A number may be given as text: programs on the way may round a large one
CREATE OR REPLACE FUNCTION palaver.intervals(filter jsonb) RETURNS TABLE (n integer, key text, low bytea, high bytea)
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, palaver, pg_temp AS $$
  SELECT (f.one ->> 0)::integer, f.one ->> 1,
    coalesce(metadata_value(CASE f.one ->> 2 WHEN 'number' THEN to_jsonb((f.one ->> 3)::numeric) ELSE f.one -> 3 END)
      || CASE WHEN (f.one ->> 5)::boolean THEN '\x00' ELSE '' END::bytea,
      CASE f.one ->> 2 WHEN 'number' THEN '\x02' ELSE '\x03' END::bytea),
    coalesce(metadata_value(CASE f.one ->> 2 WHEN 'number' THEN to_jsonb((f.one ->> 4)::numeric) ELSE f.one -> 4 END)
      || CASE WHEN (f.one ->> 6)::boolean THEN '' ELSE '\x00' END::bytea,
      CASE f.one ->> 2 WHEN 'number' THEN '\x03' ELSE '\x04' END::bytea)
  FROM jsonb_array_elements(filter) AS f (one)
$$;

-- turns_with: the turns of some conversations (NULL: all of the tenant) whose metadata has a value in an interval of every
-- condition
CREATE OR REPLACE FUNCTION palaver.turns_with(here text, cids bigint[], filter jsonb) RETURNS SETOF bigint
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, palaver, pg_temp
  SET plan_cache_mode = force_custom_plan AS $$
DECLARE conditions bigint := (SELECT count(DISTINCT i.n) FROM intervals(filter) AS i);
BEGIN
  IF cids IS NULL THEN
    RETURN QUERY SELECT m.tid FROM intervals(filter) AS i CROSS JOIN LATERAL (
      SELECT o.tid FROM turn_metadata o WHERE o.tenant = here AND o.key = i.key AND o.value >= i.low AND o.value < i.high
      OFFSET 0) AS m  -- makes the planner look each interval up
    GROUP BY m.tid HAVING count(DISTINCT i.n) = conditions;
  ELSE
    RETURN QUERY SELECT m.tid FROM unnest(cids) AS c (cid) CROSS JOIN intervals(filter) AS i CROSS JOIN LATERAL (
      SELECT o.tid FROM turn_metadata o WHERE o.tenant = here AND o.cid = c.cid AND o.key = i.key AND o.value >= i.low
        AND o.value < i.high OFFSET 0) AS m
    GROUP BY m.tid HAVING count(DISTINCT i.n) = conditions;
  END IF;
END $$;

-- conversations_with: the conversations whose own metadata has a value in an interval of every condition
CREATE OR REPLACE FUNCTION palaver.conversations_with(here text, filter jsonb) RETURNS SETOF bigint
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, palaver, pg_temp
  SET plan_cache_mode = force_custom_plan AS $$
DECLARE conditions bigint := (SELECT count(DISTINCT i.n) FROM intervals(filter) AS i);
BEGIN
  RETURN QUERY SELECT m.cid FROM intervals(filter) AS i CROSS JOIN LATERAL (
    SELECT o.cid FROM conversation_metadata o WHERE o.tenant = here AND o.key = i.key AND o.value >= i.low AND o.value < i.high
    OFFSET 0) AS m
  GROUP BY m.cid HAVING count(DISTINCT i.n) = conditions;
END $$;

-- fits_filter: whether a turn meets the other conditions of a filter
CREATE OR REPLACE FUNCTION palaver.fits_filter(role text, actor text, created bigint, roles text[], actors text[],
  since bigint, until bigint) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN (roles IS NULL OR role = ANY (roles)) AND (actors IS NULL OR actor = ANY (actors))
    AND (since IS NULL OR created >= since) AND (until IS NULL OR created < until);

-- ---- reading --------------------------------------------------------------------------------------------------------

-- history_where: `history` with a filter on metadata
CREATE OR REPLACE FUNCTION palaver_api.history_where(who jsonb, conversation text, filter jsonb, most integer,
  before text DEFAULT NULL, after text DEFAULT NULL, since bigint DEFAULT NULL, until bigint DEFAULT NULL,
  whole boolean DEFAULT false, actors text[] DEFAULT NULL, roles text[] DEFAULT NULL) RETURNS SETOF palaver.turns
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp
  SET plan_cache_mode = force_custom_plan AS $$
DECLARE
  me asker := enter(who, 'read');
  c palaver.conversations := find(me, conversation);
  last bigint := coalesce(CASE WHEN before IS NOT NULL THEN cursor_of(c, before, whole) END, 9223372036854775807);
  first bigint := coalesce(CASE WHEN after IS NOT NULL THEN cursor_of(c, after, whole) END, -1);
  forwards boolean := after IS NOT NULL AND before IS NULL;
  found bigint[];
BEGIN
  SELECT array_agg(n.tid ORDER BY n.place) INTO found FROM (
    SELECT o.tid, o.place FROM turns_with(me.tenant, ARRAY[c.cid], filter) AS w (tid) CROSS JOIN LATERAL (
      SELECT t.tid, CASE WHEN whole THEN t.seq ELSE t.position END AS place FROM turns t
      WHERE t.tenant = me.tenant AND t.tid = w.tid AND t.cid = c.cid AND t.status <> 'forgotten' AND (whole OR t.active = 1)
        AND fits_filter(t.role, t.actor, t.created, roles, actors, since, until)
      LIMIT 1) AS o  -- LIMIT 1 makes the planner look turns up one by one
    WHERE o.place > first AND o.place < last
    ORDER BY CASE WHEN forwards THEN o.place ELSE -o.place END LIMIT most) AS n;
  RETURN QUERY SELECT t.* FROM unnest(found) WITH ORDINALITY AS f (tid, n)
  CROSS JOIN LATERAL (SELECT o.* FROM turns o WHERE o.tenant = me.tenant AND o.tid = f.tid OFFSET 0) AS t ORDER BY f.n;
END $$;

-- conversations_where: `conversations` with a filter; `members` are owners or participants
CREATE OR REPLACE FUNCTION palaver_api.conversations_where(who jsonb, most integer, filter jsonb DEFAULT NULL,
  members text[] DEFAULT NULL, since bigint DEFAULT NULL, until bigint DEFAULT NULL, owner text DEFAULT NULL,
  workspace text DEFAULT NULL, agent text DEFAULT NULL, before_updated bigint DEFAULT NULL, before_id text DEFAULT NULL)
RETURNS SETOF palaver.conversations
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp
  SET plan_cache_mode = force_custom_plan AS $$
DECLARE
  me asker := enter(who, 'read');
  last_minute bigint := coalesce(before_updated / 60000000, 9223372036854775807);
  found bigint[] := CASE WHEN filter IS NOT NULL THEN ARRAY(SELECT * FROM conversations_with(me.tenant, filter)) END;
BEGIN
  RETURN QUERY SELECT c.* FROM conversations c
  WHERE c.tenant = me.tenant AND c.gone IS NULL AND (c.expires_at IS NULL OR c.expires_at > me.now)
    AND (found IS NULL OR c.cid = ANY (found))
    AND c.minute <= last_minute AND coalesce(c.key, '') NOT LIKE 'palaver:memory/%'
    AND (since IS NULL OR (c.updated >= since AND c.minute >= since / 60000000))
    AND (until IS NULL OR (c.updated < until AND c.minute <= until / 60000000))
    AND (conversations_where.members IS NULL OR c.owner = ANY (conversations_where.members)
      OR c.members && conversations_where.members)
    AND (conversations_where.owner IS NULL OR c.owner = conversations_where.owner)
    AND (conversations_where.workspace IS NULL OR c.workspace = conversations_where.workspace)
    AND (conversations_where.agent IS NULL OR c.agent = conversations_where.agent)
    AND (before_updated IS NULL OR c.updated < before_updated OR (c.updated = before_updated AND c.id < before_id))
  ORDER BY c.minute DESC, c.updated DESC, c.id DESC LIMIT most;
END $$;

-- matching_where: the turns that contain words, of the newest passages that do, and meet a filter
CREATE OR REPLACE FUNCTION palaver.matching_where(me palaver.asker, query tsquery, cids bigint[], candidates integer,
  filter jsonb, roles text[], actors text[], since bigint, until bigint) RETURNS TABLE (cid bigint, tid bigint, pid bigint)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, palaver, pg_temp
  SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
DECLARE
  wanted bigint[] := CASE WHEN filter IS NOT NULL THEN ARRAY(SELECT * FROM turns_with(me.tenant, cids, filter)) END;
BEGIN
  RETURN QUERY SELECT p.cid, p.tid, max(p.pid) FROM matching(query, cids, 100 * candidates) AS m (pid)
  CROSS JOIN LATERAL (SELECT o.* FROM passages o WHERE o.tenant = me.tenant AND o.pid = m.pid OFFSET 0) AS p
  CROSS JOIN LATERAL (SELECT o.* FROM turns o WHERE o.tenant = me.tenant AND o.tid = p.tid OFFSET 0) AS t
  WHERE t.active = 1 AND fits_filter(t.role, t.actor, t.created, roles, actors, since, until)
    AND (wanted IS NULL OR t.tid IN (SELECT unnest(wanted)))
  GROUP BY p.cid, p.tid ORDER BY max(p.pid) DESC LIMIT candidates;
END $$;

-- search_where: `search` among the turns that meet a filter; titles are not searched
CREATE OR REPLACE FUNCTION palaver_api.search_where(who jsonb, query text, candidates integer, shown integer, most integer,
  filter jsonb DEFAULT NULL, roles text[] DEFAULT NULL, actors text[] DEFAULT NULL, since bigint DEFAULT NULL,
  until bigint DEFAULT NULL)
RETURNS TABLE (conversation jsonb, in_title boolean, turns jsonb)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp
  SET plan_cache_mode = force_custom_plan AS $$
DECLARE me asker := enter(who, 'read');
BEGIN
  RETURN QUERY
  WITH numbered AS (
    SELECT h.*, row_number() OVER (PARTITION BY h.cid ORDER BY h.pid DESC) AS place
    FROM matching_where(me, query::tsquery, sighted(me), candidates, filter, roles, actors, since, until) AS h
  ), found AS (
    SELECT h.cid, array_agg(h.tid ORDER BY h.pid DESC) FILTER (WHERE h.place <= shown) AS tids FROM numbered h GROUP BY h.cid
  )
  SELECT to_jsonb(c), false, (SELECT jsonb_agg(to_jsonb(t) ORDER BY k.n) FROM unnest(f.tids) WITH ORDINALITY AS k (tid, n)
    CROSS JOIN LATERAL (SELECT o.* FROM turns o WHERE o.tenant = me.tenant AND o.tid = k.tid OFFSET 0) AS t)
  FROM found f JOIN conversations c ON c.tenant = me.tenant AND c.cid = f.cid AND c.gone IS NULL
    AND (c.expires_at IS NULL OR c.expires_at > me.now)
  ORDER BY c.updated DESC LIMIT most;
END $$;

-- matches_where: `matches` among the turns that meet a filter
CREATE OR REPLACE FUNCTION palaver_api.matches_where(who jsonb, conversation text, query text, candidates integer,
  filter jsonb DEFAULT NULL, roles text[] DEFAULT NULL, actors text[] DEFAULT NULL, since bigint DEFAULT NULL,
  until bigint DEFAULT NULL)
RETURNS SETOF palaver.turns
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp
  SET plan_cache_mode = force_custom_plan AS $$
DECLARE
  me asker := enter(who, 'read');
  c palaver.conversations := find(me, conversation);
BEGIN
  RETURN QUERY SELECT t.*
  FROM matching_where(me, query::tsquery, ARRAY[c.cid], candidates, filter, roles, actors, since, until) AS h
  CROSS JOIN LATERAL (SELECT o.* FROM turns o WHERE o.tenant = me.tenant AND o.tid = h.tid OFFSET 0) AS t
  ORDER BY h.pid DESC;
END $$;

-- turns_where: the numbers of the turns that a recall looks at and whose metadata meets a filter
CREATE OR REPLACE FUNCTION palaver_api.turns_where(who jsonb, filter jsonb, conversation text DEFAULT NULL,
  owner text DEFAULT NULL) RETURNS TABLE (tids text)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp
  SET plan_cache_mode = force_custom_plan AS $$
DECLARE
  me asker := enter(who, 'read');
  cids bigint[];
BEGIN
  IF me.sight <> 'tenant' OR coalesce(conversation, turns_where.owner) IS NOT NULL THEN
    SELECT coalesce(array_agg(c.cid), '{}') INTO cids FROM looked_at(me, conversation, turns_where.owner) AS c;
  END IF;
  tids := packed((SELECT string_agg(int8send(w.tid), ''::bytea) FROM turns_with(me.tenant, cids, filter) AS w (tid)));
  RETURN NEXT;
END $$;

-- candidates_where: `candidates` among the turns that meet a filter, which are `matching`. All of them if they are few;
-- otherwise those among ten times as many candidates by words and by meaning
CREATE OR REPLACE FUNCTION palaver_api.candidates_where(who jsonb, stems text[], passages bigint, terms bigint,
  by_words integer, model text DEFAULT NULL, asked text DEFAULT NULL, by_meaning integer DEFAULT 0,
  since bigint DEFAULT NULL, until bigint DEFAULT NULL, owner text DEFAULT NULL, filter jsonb DEFAULT NULL,
  wanted_roles text[] DEFAULT NULL, wanted_actors text[] DEFAULT NULL)
RETURNS TABLE (tids bigint[], cids bigint[], positions bigint[], created bigint[], tokens bigint[], roles text[],
  actors text[], standing smallint[], hits text, places text, holding bigint[], sample bigint[], matching bigint[])
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp
  SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
DECLARE
  me asker := enter(who, 'read');
  few constant integer := 5000;
  scope bigint[];
  pool bigint[];
  holders bigint[];
BEGIN
  IF me.sight <> 'tenant' OR candidates_where.owner IS NOT NULL THEN  -- otherwise all conversations of the tenant
    SELECT coalesce(array_agg(c.cid), '{}') INTO scope FROM looked_at(me, NULL, candidates_where.owner) AS c;
  END IF;
  SELECT w.holding, w.tids, w.sample INTO holding, pool, sample
  FROM ranked_by_words(stems, scope, greatest(candidates_where.passages, 1),
    greatest(candidates_where.terms, 1)::float8 / greatest(candidates_where.passages, 1), 10 * by_words, since, until) AS w;
  IF asked IS NOT NULL THEN
    pool := pool || ARRAY(SELECT ('x' || encode(substr(n.place, 1, 8), 'hex'))::bit(64)::bigint FROM unnest(
      nearest_turns(model, asked, 10 * by_meaning, '{}', scope, candidates_where.passages, since, until)) AS n (place));
  END IF;
  IF filter IS NOT NULL THEN
    holders := ARRAY(SELECT * FROM turns_with(me.tenant, scope, filter));
    pool := CASE WHEN cardinality(holders) <= few THEN holders ELSE pool END;
  END IF;
  matching := ARRAY(SELECT t.tid FROM (SELECT DISTINCT p.tid FROM unnest(pool) AS p (tid)) AS d CROSS JOIN LATERAL (
      SELECT o.* FROM turns o WHERE o.tenant = me.tenant AND o.tid = d.tid OFFSET 0) AS t
    WHERE t.active = 1 AND fits_filter(t.role, t.actor, t.created, wanted_roles, wanted_actors, since, until)
      AND (holders IS NULL OR t.tid IN (SELECT unnest(holders))));
  SELECT t.tids, t.conversations, t.positions, t.created, t.tokens, t.roles, t.actors, t.standing, packed(t.hits), packed(t.near)
  INTO tids, cids, positions, created, tokens, roles, actors, standing, hits, places
  FROM turns_around(matching || sample, scope, ARRAY(SELECT c.cid FROM conversations c WHERE c.tenant = me.tenant
    AND c.gone IS NULL AND c.expires_at <= me.now), stems, model, asked) AS t;
  RETURN NEXT;
END $$;
