-- The data that recall ranks by: turn arrays, postings of stems, vectors. Long lists of numbers are packed in base64,
-- which takes a tenth of the time of JSON.
--
-- `plan_cache_mode = force_custom_plan`: the best plan of a query depends on how many conversations its list contains.
-- After five calls on a connection plpgsql would use one generic plan for lists of any length, and a recall over a tenant
-- became a hundred times slower for good. Planning each time costs less than a millisecond. Every function that takes a
-- list of conversations or turns of unbounded length has this setting; tests/postgres/test_plans.py names them.

-- looked_at: the conversations that a recall looks at. An unknown conversation is an error, not an empty result
CREATE OR REPLACE FUNCTION palaver.looked_at(me palaver.asker, conversation text, owner text)
RETURNS SETOF palaver.conversations
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, palaver, pg_temp
  SET plan_cache_mode = force_custom_plan AS $$
BEGIN
  IF conversation IS NOT NULL THEN
    RETURN QUERY SELECT * FROM find(me, conversation) AS c WHERE looked_at.owner IS NULL OR c.owner = looked_at.owner;
  ELSE
    RETURN QUERY SELECT * FROM conversations c WHERE c.tenant = me.tenant AND c.gone IS NULL
      AND (c.expires_at IS NULL OR c.expires_at > me.now) AND (looked_at.owner IS NULL OR c.owner = looked_at.owner);
  END IF;
END $$;

CREATE OR REPLACE FUNCTION palaver.packed(bytes bytea) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN translate(encode(coalesce(bytes, ''), 'base64'), E'\n', '');

-- shape: the columns of the turn arrays (recall/turn_arrays.py) for a turn
CREATE OR REPLACE FUNCTION palaver.shape(t palaver.turns, standing smallint) RETURNS json LANGUAGE sql STABLE PARALLEL SAFE
  RETURN json_build_array((t).tid, (t).cid, (t).position, (t).created,
    greatest((t).token_count, ((t).attachments IS NOT NULL)::integer), (t).role, (t).actor, coalesce(standing, 0), (t).status);

-- profiled: the rows of the turn arrays, without text. A caller whose stamp differs only in its last three numbers gets
-- only the newest turns of the conversations that have changed since (twice as many as there are new ones), and those with
-- a mark when there are new marks; every other caller gets all of them.
--
-- Row numbers and times of turns grow in the order of commits inside one conversation, but not across conversations: a
-- turn that was committed late may be missing. The last number of the stamp is the total count, which reveals that. The
-- function is STABLE, so that it reads from one snapshot
CREATE OR REPLACE FUNCTION palaver.profiled(me palaver.asker, known bigint[], conversation text, owner text)
RETURNS TABLE (stamp bigint[], fresh boolean, shapes text, passages bigint, terms bigint)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, palaver, pg_temp
  SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
DECLARE
  late bigint := 5000000;  -- microseconds; a transaction that takes longer is missed at first
  cids bigint[];
  changed bigint[];
  total bigint;
BEGIN
  SELECT coalesce(array_agg(c.cid), '{}'), array_agg(c.cid) FILTER (WHERE c.updated > known[6] - late),
    coalesce(sum(c.passage_count), 0), coalesce(sum(c.passage_terms), 0), coalesce(sum(c.turn_count), 0),
    ARRAY[count(*), coalesce(sum(c.revision), 0), coalesce(sum(c.cid), 0)::bigint,
      coalesce(sum(hashint8(c.cid)::bigint), 0), coalesce(sum(c.marked), 0), coalesce(max(c.updated), 0)]
  INTO cids, changed, passages, terms, total, stamp FROM looked_at(me, conversation, owner) AS c;
  SELECT total - count(*) INTO total FROM streams s JOIN turns t ON t.tenant = s.tenant AND t.tid = s.tid
  WHERE s.tenant = me.tenant AND s.cid = ANY (cids) AND t.active = 1;
  stamp := stamp || total;
  fresh := known[:4] IS DISTINCT FROM stamp[:4] OR cardinality(known) <> cardinality(stamp);
  IF fresh THEN
    SELECT json_agg(shape(t, m.standing) ORDER BY t.cid, t.position)::text INTO shapes
    FROM turns t LEFT JOIN marks m ON m.tenant = t.tenant AND m.tid = t.tid
    WHERE t.tenant = me.tenant AND t.cid = ANY (cids) AND t.active = 1 AND t.status = 'complete';
  ELSE
    WITH new AS MATERIALIZED (
      SELECT o.* FROM unnest(changed) AS n (cid) CROSS JOIN LATERAL (
        SELECT o AS t, o.* FROM turns o WHERE o.tenant = me.tenant AND o.cid = n.cid
        ORDER BY o.seq DESC LIMIT 16 + 2 * greatest(total - known[7], 0)) AS o
      UNION ALL
      SELECT o AS t, o.* FROM marks k JOIN turns o ON o.tenant = k.tenant AND o.tid = k.tid
      WHERE known[5] <> stamp[5] AND k.tenant = me.tenant AND k.cid = ANY (cids))
    SELECT json_agg(shape(t.t, m.standing) ORDER BY t.cid, t.position)::text INTO shapes
    FROM new t LEFT JOIN marks m ON m.tenant = t.tenant AND m.tid = t.tid
    WHERE t.active = 1 AND t.status = 'complete';
  END IF;
  RETURN NEXT;
END $$;

CREATE OR REPLACE FUNCTION palaver_api.profile(who jsonb, known bigint[], conversation text DEFAULT NULL,
  owner text DEFAULT NULL)
RETURNS TABLE (stamp bigint[], fresh boolean, shapes text, passages bigint, terms bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE me asker := enter(who, 'read');
BEGIN
  RETURN QUERY SELECT * FROM profiled(me, known, conversation, owner);
END $$;

-- stem_postings: the turn and the size of every passage of the tenant that contains a stem, the newest `most` of
-- them. Runs as the role that owns the look-up (see `passages`), returns only numbers, and looks only at conversations
-- that the caller may see
CREATE OR REPLACE FUNCTION palaver.stem_postings(stem text, cids bigint[], most integer) RETURNS bytea
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, palaver, extensions, pg_temp
  SET plan_cache_mode = force_custom_plan AS $$
DECLARE
  here text := (whoami()).tenant;
  wanted tsquery := array_to_string(ARRAY['''' || replace(stem, '''', '''''') || ''''], '')::tsquery;
BEGIN
  cids := seen(cids);
  IF cardinality(cids) = 1 THEN
    RETURN (SELECT string_agg(int8send(p.tid) || int8send(p.size), ''::bytea) FROM (
      SELECT o.tid, o.size FROM passages o
      WHERE o.tenant = here AND o.cid = cids[1] AND o.terms @@ wanted AND o.tid IS NOT NULL
      ORDER BY o.pid DESC LIMIT most) AS p);
  END IF;
  RETURN (SELECT string_agg(int8send(p.tid) || int8send(p.size), ''::bytea) FROM (
    SELECT o.tid, o.size FROM passages o
    WHERE o.tenant = here AND o.terms @@ wanted AND o.cid = ANY (cids) AND o.tid IS NOT NULL
    ORDER BY o.pid DESC LIMIT most) AS p);
END $$;
GRANT CREATE ON SCHEMA palaver TO palaver_index;
ALTER FUNCTION palaver.stem_postings(text, bigint[], integer) OWNER TO palaver_index;
REVOKE CREATE ON SCHEMA palaver FROM palaver_index;

-- postings: for each stem, the passages that contain it
CREATE OR REPLACE FUNCTION palaver_api.postings(who jsonb, stems text[], most integer, conversation text DEFAULT NULL,
  owner text DEFAULT NULL)
RETURNS TABLE (stem text, places text)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp
  SET plan_cache_mode = force_custom_plan AS $$
DECLARE
  me asker := enter(who, 'read');
  cids bigint[];
BEGIN
  SELECT coalesce(array_agg(c.cid), '{}') INTO cids FROM looked_at(me, conversation, owner) AS c;
  RETURN QUERY SELECT s.stem, packed(stem_postings(s.stem, cids, most)) FROM unnest(stems) AS s (stem);
END $$;

-- half_floats: the numbers of a vector, without its header
CREATE OR REPLACE FUNCTION palaver.half_floats(v extensions.halfvec) RETURNS bytea LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN substring(extensions.halfvec_send(v) FROM 5);

-- vectors: per conversation, the vectors that are not known yet, or all of them when known ones may be deleted. A
-- stamp is (revision, newest): every deletion changes the revision. `known` is {cid: stamp}
CREATE OR REPLACE FUNCTION palaver_api.vectors(who jsonb, model text, known jsonb, conversation text DEFAULT NULL,
  owner text DEFAULT NULL)
RETURNS TABLE (cid bigint, fresh boolean, stamp bigint[], numbers text, floats text)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp
  SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
DECLARE
  me asker := enter(who, 'read');
BEGIN
  RETURN QUERY
  SELECT c.cid, c.changed, ARRAY[c.revision, c.newest], packed(f.numbers), packed(f.floats)
  FROM (
    SELECT o.cid, o.revision, coalesce(n.eid, 0) AS newest, coalesce((known -> o.cid::text ->> 1)::bigint, 0) AS last,
      (known -> o.cid::text ->> 0)::bigint IS DISTINCT FROM o.revision AS changed
    FROM looked_at(me, conversation, owner) AS o
    LEFT JOIN LATERAL (SELECT e.eid FROM embeddings e WHERE e.tenant = me.tenant AND e.cid = o.cid
      ORDER BY e.eid DESC LIMIT 1) AS n ON true
  ) AS c
  LEFT JOIN LATERAL (
    SELECT string_agg(int8send(e.eid) || int8send(e.tid), ''::bytea ORDER BY e.eid) AS numbers,
      string_agg(half_floats(e.vector), ''::bytea ORDER BY e.eid) AS floats
    FROM embeddings e WHERE e.tenant = me.tenant AND e.cid = c.cid AND e.model = vectors.model
      AND (c.changed OR e.eid > c.last)
  ) AS f ON true
  WHERE c.newest <> c.last OR (c.changed AND c.last > 0);
END $$;

-- turns_numbered: turns of the active view by their row numbers, as far as the caller may see them
CREATE OR REPLACE FUNCTION palaver_api.turns_numbered(who jsonb, tids bigint[])
RETURNS TABLE (tid bigint, conversation text, turn text)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
#variable_conflict use_column
DECLARE me asker := enter(who, 'read');
BEGIN
  RETURN QUERY SELECT n.tid, c.id, turn_json(t.whole)::text FROM unnest(tids) AS n (tid)
  CROSS JOIN LATERAL (SELECT o AS whole, o.cid FROM turns o WHERE o.tenant = me.tenant AND o.tid = n.tid
    AND o.active = 1 AND o.status = 'complete' LIMIT 1) AS t  -- LIMIT 1 makes the planner look turns up one by one
  JOIN conversations c ON c.tenant = me.tenant AND c.cid = t.cid
  WHERE c.gone IS NULL AND (c.expires_at IS NULL OR c.expires_at > me.now);
END $$;

-- fact_vectors: the vectors of facts of one embedder
CREATE OR REPLACE FUNCTION palaver_api.fact_vectors(who jsonb, model text, conversation text DEFAULT NULL,
  owner text DEFAULT NULL)
RETURNS TABLE (id text, floats text)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, extensions, pg_temp
  SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
DECLARE me asker := enter(who, 'read');
BEGIN
  RETURN QUERY SELECT f.id, packed(half_floats(f.vector)) FROM looked_at(me, conversation, owner) AS c
  JOIN facts f ON f.tenant = c.tenant AND f.cid = c.cid
  WHERE f.invalidated_at IS NULL AND f.model = fact_vectors.model;
END $$;

-- ---- many vectors ---------------------------------------------------------------------------------------------------

-- some_vectors: a sample of the vectors: the first and the last of each conversation
CREATE OR REPLACE FUNCTION palaver_api.some_vectors(who jsonb, model text, most integer, conversation text DEFAULT NULL,
  owner text DEFAULT NULL)
RETURNS TABLE (numbers text, floats text)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp
  SET plan_cache_mode = force_custom_plan AS $$
DECLARE
  me asker := enter(who, 'read');
  cids bigint[];
  each integer;
BEGIN
  SELECT coalesce(array_agg(c.cid), '{}') INTO cids FROM (
    SELECT o.cid FROM looked_at(me, conversation, owner) AS o ORDER BY o.updated DESC LIMIT most) AS c;
  each := ceil(most / 2.0 / greatest(cardinality(cids), 1));
  RETURN QUERY SELECT packed(string_agg(int8send(v.eid) || int8send(v.tid), ''::bytea ORDER BY v.eid)),
    packed(string_agg(half_floats(v.vector), ''::bytea ORDER BY v.eid))
  FROM unnest(cids) AS c (cid) CROSS JOIN LATERAL (
    (SELECT e.eid, e.tid, e.vector FROM embeddings e
     WHERE e.tenant = me.tenant AND e.cid = c.cid AND e.model = some_vectors.model ORDER BY e.eid LIMIT each)
    UNION
    (SELECT e.eid, e.tid, e.vector FROM embeddings e
     WHERE e.tenant = me.tenant AND e.cid = c.cid AND e.model = some_vectors.model ORDER BY e.eid DESC LIMIT each)
  ) AS v;
END $$;

-- nearest: the nearest turns by meaning, and how near the turns `among` are. Uses the vector index when the scope is
-- a large part of it: behind a narrow filter the index finds too little, and an exact scan is cheap. When the index
-- finds fewer than asked for, all vectors are compared
CREATE OR REPLACE FUNCTION palaver_api.nearest(who jsonb, model text, asked text, most integer, among bigint[],
  conversation text DEFAULT NULL, owner text DEFAULT NULL)
RETURNS TABLE (places text)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, extensions, pg_temp
  SET plan_cache_mode = force_custom_plan AS $$
DECLARE
  me asker := enter(who, 'read');
  length integer := vector_dims(asked::halfvec);
  cids bigint[];
  size bigint;
  found bytea[];
BEGIN
  SELECT coalesce(array_agg(c.cid), '{}'), coalesce(sum(c.passage_count), 0) INTO cids, size
  FROM looked_at(me, conversation, owner) AS c;
  IF size * 4 >= (SELECT r.reltuples FROM pg_class r WHERE r.oid = 'palaver.embeddings'::regclass) THEN
    PERFORM set_config('hnsw.iterative_scan', 'relaxed_order', true), set_config('hnsw.ef_search', '400', true);
    EXECUTE format('SELECT array_agg(n.place) FROM (
      SELECT int8send(e.tid) || float8send(-(e.vector::halfvec(%1$s) <#> $1::halfvec(%1$s))) AS place
      FROM palaver.embeddings e WHERE e.tenant = $2 AND e.cid = ANY ($3) AND e.model = $4
        AND vector_dims(e.vector) = %1$s
      ORDER BY e.vector::halfvec(%1$s) <#> $1::halfvec(%1$s) LIMIT $5) AS n', length)
    INTO found USING asked, me.tenant, cids, model, most;
  END IF;
  IF coalesce(cardinality(found), 0) < most THEN
    found := ARRAY(SELECT int8send(e.tid) || float8send(-(e.vector <#> asked::halfvec)) FROM embeddings e
      WHERE e.tenant = me.tenant AND e.cid = ANY (cids) AND e.model = nearest.model AND vector_dims(e.vector) = length
      ORDER BY e.vector <#> asked::halfvec LIMIT most);
  END IF;
  found := found || ARRAY(SELECT int8send(e.tid) || float8send(-(e.vector <#> asked::halfvec)) FROM embeddings e
    WHERE e.tenant = me.tenant AND e.tid = ANY (among) AND e.model = nearest.model AND vector_dims(e.vector) = length);
  places := packed((SELECT string_agg(f.place, ''::bytea) FROM unnest(found) AS f (place)));
  RETURN NEXT;
END $$;
