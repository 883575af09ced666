-- The data that recall ranks by: turn arrays, postings of stems, vectors. Long lists of numbers are packed in base64,
-- which takes a tenth of the time of JSON.
--
-- `plan_cache_mode = force_custom_plan`: the best plan of a query depends on how many conversations its list contains.
-- After five calls on a connection plpgsql would use one generic plan for lists of any length, and a recall over a tenant
-- became a hundred times slower, and stayed so. Planning each time costs less than a millisecond. Every function that takes a
-- list of conversations or turns of unbounded length has this setting, and so have those whose optional arguments select
-- another index (a generic plan reads all conversations of the tenant instead); tests/postgres/test_plans.py names them.
--
-- `CROSS JOIN LATERAL (… OFFSET 0)`: rows are looked up one by one, by their keys, even if the planner has no statistics,
-- as after an import. It expects a handful of turns in the tenant then, and would read all of them for each row. `active`
-- is checked outside that query: as a part of it, the planner would read the index of all active turns.

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
  wanted bigint[];
  total bigint;
BEGIN
  SELECT coalesce(array_agg(c.cid), '{}'), array_agg(c.cid) FILTER (WHERE c.updated > known[6] - late),
    coalesce(sum(c.passage_count), 0), coalesce(sum(c.passage_terms), 0), coalesce(sum(c.turn_count), 0),
    ARRAY[count(*), coalesce(sum(c.revision), 0), coalesce(sum(c.cid & 4294967295), 0)::bigint,
      coalesce(sum(hashint8(c.cid)::bigint), 0), coalesce(sum(c.marked), 0), coalesce(max(c.updated), 0)]
  INTO cids, changed, passages, terms, total, stamp FROM looked_at(me, conversation, owner) AS c;
  SELECT total - count(*) INTO total FROM streams s
  CROSS JOIN LATERAL (SELECT o.active FROM turns o WHERE o.tenant = me.tenant AND o.tid = s.tid OFFSET 0) AS t
  WHERE s.tenant = me.tenant AND s.cid = ANY (cids) AND t.active = 1;
  stamp := stamp || total;
  fresh := known[:4] IS DISTINCT FROM stamp[:4] OR cardinality(known) <> cardinality(stamp);
  IF fresh THEN
    SELECT json_agg(shape(ROW(t.*)::palaver.turns, m.standing) ORDER BY t.cid, t.position)::text INTO shapes
    FROM turns t LEFT JOIN marks m ON m.tenant = t.tenant AND m.tid = t.tid
    WHERE t.tenant = me.tenant AND t.cid = ANY (cids) AND t.active = 1 AND t.status = 'complete';
  ELSE
    wanted := ARRAY(SELECT o.tid FROM unnest(changed) AS n (cid) CROSS JOIN LATERAL (
      SELECT t.tid FROM turns t WHERE t.tenant = me.tenant AND t.cid = n.cid
      ORDER BY t.seq DESC LIMIT 16 + 2 * greatest(total - known[7], 0)) AS o);
    IF known[5] <> stamp[5] THEN
      wanted := wanted || ARRAY(SELECT k.tid FROM marks k WHERE k.tenant = me.tenant AND k.cid = ANY (cids));
    END IF;
    SELECT json_agg(shape(ROW(t.*)::palaver.turns, m.standing) ORDER BY t.cid, t.position)::text INTO shapes
    FROM (SELECT DISTINCT n.tid FROM unnest(wanted) AS n (tid)) AS n
    CROSS JOIN LATERAL (SELECT o.* FROM turns o WHERE o.tenant = me.tenant AND o.tid = n.tid OFFSET 0) AS t
    LEFT JOIN LATERAL (SELECT o.standing FROM marks o WHERE o.tenant = me.tenant AND o.tid = t.tid OFFSET 0) AS m ON true
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

-- turns_numbered: turns of the active branch by their row numbers, as far as the caller may see them
CREATE OR REPLACE FUNCTION palaver_api.turns_numbered(who jsonb, tids bigint[])
RETURNS TABLE (tid bigint, conversation text, turn text)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp
  SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
DECLARE me asker := enter(who, 'read');
BEGIN
  RETURN QUERY SELECT n.tid, c.id, turn_json(t.whole)::text FROM unnest(tids) AS n (tid)
  CROSS JOIN LATERAL (SELECT ROW(o.*)::palaver.turns AS whole, o.cid, o.active, o.status FROM turns o
    WHERE o.tenant = me.tenant AND o.tid = n.tid OFFSET 0) AS t
  CROSS JOIN LATERAL (SELECT o.id, o.gone, o.expires_at FROM conversations o
    WHERE o.tenant = me.tenant AND o.cid = t.cid OFFSET 0) AS c
  WHERE t.active = 1 AND t.status = 'complete' AND c.gone IS NULL AND (c.expires_at IS NULL OR c.expires_at > me.now);
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
  JOIN facts f ON f.tenant = me.tenant AND f.cid = c.cid
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
  RETURN QUERY WITH found AS MATERIALIZED (
    SELECT v.*, extensions.vector_dims(v.vector) AS length FROM unnest(cids) AS c (cid) CROSS JOIN LATERAL (
      (SELECT e.eid, e.tid, e.vector FROM embeddings e
       WHERE e.tenant = me.tenant AND e.cid = c.cid AND e.model = some_vectors.model ORDER BY e.eid LIMIT each)
      UNION
      (SELECT e.eid, e.tid, e.vector FROM embeddings e
       WHERE e.tenant = me.tenant AND e.cid = c.cid AND e.model = some_vectors.model ORDER BY e.eid DESC LIMIT each)
    ) AS v
  )
  SELECT packed(string_agg(int8send(v.eid) || int8send(v.tid), ''::bytea ORDER BY v.eid)),
    packed(string_agg(half_floats(v.vector), ''::bytea ORDER BY v.eid))
  FROM found v WHERE v.length = (SELECT mode() WITHIN GROUP (ORDER BY f.length) FROM found f);
END $$;

-- joined: some binary values, one after the other
CREATE OR REPLACE FUNCTION palaver.joined(found bytea[]) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, palaver, pg_temp AS $$
  SELECT packed(string_agg(f.one, ''::bytea)) FROM unnest(found) AS f (one)
$$;

-- nearest_turns: the turns nearest to a question by meaning, and how near the turns `among` are, each as its number and
-- its inner product. `cids` are the conversations to look at (NULL: all of the tenant), `size` is about how many vectors
-- they have. Runs as the role that owns the look-up, because a policy would be evaluated for every vector; it returns only
-- numbers, and looks only at conversations that the caller may see.
--
-- Uses the vector index when the scope is a large part of it: behind a narrow filter it passes many others, and comparing
-- every vector is cheaper. When the index finds fewer than asked for, every vector is compared, unless they are very many
CREATE OR REPLACE FUNCTION palaver.nearest_turns(model text, asked text, most integer, among bigint[], cids bigint[],
  size bigint, since bigint DEFAULT NULL, until bigint DEFAULT NULL) RETURNS bytea[]
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, palaver, extensions, pg_temp
  SET plan_cache_mode = force_custom_plan AS $$
DECLARE
  here text := (whoami()).tenant;
  length integer := vector_dims(asked::halfvec);
  bounds text;
  found bytea[];
  many constant bigint := 200000;  -- vectors, to compare all of them takes longer than a question may wait
BEGIN
  cids := seen(cids);
  bounds := CASE WHEN cids IS NULL THEN '' ELSE 'AND e.cid = ANY ($3)' END
    || CASE WHEN since IS NULL AND until IS NULL THEN '' ELSE ' AND EXISTS (SELECT 1 FROM palaver.turns t
      WHERE t.tenant = $2 AND t.tid = e.tid AND ($6 IS NULL OR t.created >= $6) AND ($7 IS NULL OR t.created < $7))' END;
  IF size > many OR size * 4 >= (SELECT r.reltuples FROM pg_class r WHERE r.oid = 'palaver.embeddings'::regclass) THEN
    PERFORM set_config('hnsw.iterative_scan', 'relaxed_order', true), set_config('hnsw.ef_search', '400', true);
    EXECUTE format('SELECT array_agg(n.place) FROM (
      SELECT int8send(e.tid) || float8send(-(e.vector::halfvec(%1$s) <#> $1::halfvec(%1$s))) AS place
      FROM palaver.embeddings e WHERE e.tenant = $2 AND e.model = $4 AND vector_dims(e.vector) = %1$s %2$s
      ORDER BY e.vector::halfvec(%1$s) <#> $1::halfvec(%1$s) LIMIT $5) AS n', length, bounds)
    INTO found USING asked, here, cids, model, most, since, until;
  END IF;
  IF found IS NULL OR (cardinality(found) < most AND size <= many) THEN
    EXECUTE format('SELECT array_agg(n.place) FROM (
      SELECT int8send(e.tid) || float8send(-(e.vector <#> $1::halfvec)) AS place
      FROM palaver.embeddings e WHERE e.tenant = $2 AND e.model = $4 AND vector_dims(e.vector) = %s %s
      ORDER BY e.vector <#> $1::halfvec LIMIT $5) AS n', length, bounds)
    INTO found USING asked, here, cids, model, most, since, until;
  END IF;
  RETURN found || ARRAY(SELECT int8send(e.tid) || float8send(-(e.vector <#> asked::halfvec)) FROM embeddings e
    WHERE e.tenant = here AND e.tid = ANY (among) AND (cids IS NULL OR e.cid = ANY (cids))
      AND e.model = nearest_turns.model AND vector_dims(e.vector) = length);
END $$;
GRANT CREATE ON SCHEMA palaver TO palaver_index;
ALTER FUNCTION palaver.nearest_turns(text, text, integer, bigint[], bigint[], bigint, bigint, bigint) OWNER TO palaver_index;
REVOKE CREATE ON SCHEMA palaver FROM palaver_index;

-- nearest: the nearest turns by meaning, and how near the turns `among` are
CREATE OR REPLACE FUNCTION palaver_api.nearest(who jsonb, model text, asked text, most integer, among bigint[],
  conversation text DEFAULT NULL, owner text DEFAULT NULL)
RETURNS TABLE (places text)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, extensions, pg_temp
  SET plan_cache_mode = force_custom_plan AS $$
DECLARE
  me asker := enter(who, 'read');
  cids bigint[];
  size bigint;
BEGIN
  SELECT coalesce(array_agg(c.cid), '{}'), coalesce(sum(c.passage_count), 0) INTO cids, size
  FROM looked_at(me, conversation, owner) AS c;
  places := joined(nearest_turns(model, asked, most, among, cids, size));
  RETURN NEXT;
END $$;

-- ---- large scopes ---------------------------------------------------------------------------------------------------
-- The turns of an owner or a tenant may be too many to send to the client. Then the database ranks them by words and by
-- meaning, and the client ranks a bounded number of candidates by everything else.

-- recall_size: how much a recall looks at. If that is more than `most` turns, also the names of those who spoke last
CREATE OR REPLACE FUNCTION palaver_api.recall_size(who jsonb, most bigint, owner text DEFAULT NULL)
RETURNS TABLE (turns bigint, passages bigint, terms bigint, actors text[])
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp
  SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
DECLARE
  me asker := enter(who, 'read');
BEGIN
  SELECT coalesce(sum(c.turn_count), 0), coalesce(sum(c.passage_count), 0), coalesce(sum(c.passage_terms), 0)
  INTO recall_size.turns, recall_size.passages, recall_size.terms FROM looked_at(me, NULL, recall_size.owner) AS c;
  IF recall_size.turns > most THEN
    actors := ARRAY(SELECT DISTINCT s.actor FROM (
        SELECT c.cid FROM looked_at(me, NULL, recall_size.owner) AS c ORDER BY c.updated DESC LIMIT 50) AS n
      CROSS JOIN LATERAL (SELECT t.actor FROM palaver.turns t WHERE t.tenant = me.tenant AND t.cid = n.cid AND t.active = 1
        ORDER BY t.position DESC LIMIT 4) AS s);
  END IF;
  RETURN NEXT;
END $$;

-- some_passages: passages from all over a scope, about `most` of them
CREATE OR REPLACE FUNCTION palaver.some_passages(here text, cids bigint[], most integer)
RETURNS TABLE (cid bigint, tid bigint, terms tsvector)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, palaver, pg_temp
  SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
DECLARE
  places integer := least(40, cardinality(cids));
  first bigint;
  last bigint;
BEGIN
  IF cids IS NOT NULL THEN
    RETURN QUERY SELECT s.cid, s.tid, s.terms FROM generate_series(0, places - 1) AS g
    CROSS JOIN LATERAL (
      (SELECT p.cid, p.tid, p.terms FROM passages p
       WHERE p.tenant = here AND p.cid = cids[1 + g * cardinality(cids) / places] AND p.tid IS NOT NULL
       ORDER BY p.pid LIMIT most / places / 2)
      UNION ALL
      (SELECT p.cid, p.tid, p.terms FROM passages p
       WHERE p.tenant = here AND p.cid = cids[1 + g * cardinality(cids) / places] AND p.tid IS NOT NULL
       ORDER BY p.pid DESC LIMIT most / places / 2)) AS s;
    RETURN;
  END IF;
  SELECT p.pid INTO first FROM passages p WHERE p.tenant = here ORDER BY p.pid LIMIT 1;
  SELECT p.pid INTO last FROM passages p WHERE p.tenant = here ORDER BY p.pid DESC LIMIT 1;
  RETURN QUERY SELECT s.cid, s.tid, s.terms FROM generate_series(0, 39) AS g
  CROSS JOIN LATERAL (SELECT p.cid, p.tid, p.terms FROM passages p
    WHERE p.tenant = here AND p.pid >= first + (last - first) * g / 40 AND p.tid IS NOT NULL
    ORDER BY p.pid LIMIT most / 40) AS s;
END $$;

-- shares_of: which part of some passages holds each stem
CREATE OR REPLACE FUNCTION palaver.shares_of(wanted tsquery[], texts tsvector[]) RETURNS double precision[]
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
  SELECT array_agg((SELECT count(*) FROM unnest(texts) AS t (terms) WHERE t.terms @@ w.one)::float8
    / greatest(cardinality(texts), 1) ORDER BY w.i) FROM unnest(wanted) WITH ORDINALITY AS w (one, i)
$$;

-- words_to_read: which passages to read for a question. `shares` says which part of `total` passages holds each stem, as
-- a sample shows it. All passages with a rare stem are read; of common stems, those with two of them, or with all. NULL
-- when there is nothing to read but the passages with one common stem. `exact` are the rare stems
CREATE OR REPLACE FUNCTION palaver.words_to_read(wanted tsquery[], shares double precision[], total bigint, room bigint,
  OUT query tsquery, OUT exact integer[])
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  left_over double precision := room;
  common integer[] := '{}';
  one integer;
  other integer;
BEGIN
  exact := '{}';
  FOR one IN SELECT s.i FROM unnest(shares) WITH ORDINALITY AS s (share, i) ORDER BY s.share, s.i LOOP
    IF shares[one] * total <= left_over / 2 THEN
      query := coalesce(query || wanted[one], wanted[one]);
      exact := exact || one;
      left_over := left_over - shares[one] * total;
    ELSIF cardinality(common) < 6 THEN
      common := common || one;
    END IF;
  END LOOP;
  FOR n IN 1 .. cardinality(common) LOOP
    one := common[n];
    FOREACH other IN ARRAY common[n + 1:] LOOP
      IF shares[one] * shares[other] * total <= left_over THEN
        query := coalesce(query || (wanted[one] && wanted[other]), wanted[one] && wanted[other]);
        left_over := left_over - shares[one] * shares[other] * total;
      END IF;
    END LOOP;
  END LOOP;
  IF query IS NULL AND cardinality(common) > 1 THEN
    query := wanted[common[1]];
    FOREACH one IN ARRAY common[2:] LOOP
      query := query && wanted[one];
    END LOOP;
  END IF;
END $$;

-- queries_for: each stem as a query
CREATE OR REPLACE FUNCTION palaver.queries_for(stems text[]) RETURNS tsquery[]
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
  SELECT coalesce(array_agg(('''' || replace(s.stem, '''', '''''') || '''')::tsquery ORDER BY s.i), '{}')
  FROM unnest(stems) WITH ORDINALITY AS s (stem, i)
$$;

-- mask_of: the SQL for the stems that a passage `p` holds, one bit each
CREATE OR REPLACE FUNCTION palaver.mask_of(wanted tsquery[]) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
  SELECT string_agg(format('((p.terms @@ %L::tsquery)::integer::bigint << %s)', w.one, w.i - 1), ' | ' ORDER BY w.i)
  FROM unnest(wanted) WITH ORDINALITY AS w (one, i)
$$;

-- ranked_by_words: the turns of a scope whose passages hold most of a question's stems (BM25, as recall/scoring.py counts
-- it), without reading all of its passages. `total` and `mean` are the number of passages and their mean size. Returns for
-- each stem how many passages hold it, the best turns, and some turns from all over the scope. Runs as the role that owns
-- the look-up, returns only numbers, and looks only at conversations that the caller may see
CREATE OR REPLACE FUNCTION palaver.ranked_by_words(stems text[], cids bigint[], total bigint, mean double precision,
  most integer, since bigint, until bigint, OUT holding bigint[], OUT tids bigint[], OUT sample bigint[])
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, palaver, pg_temp
  SET plan_cache_mode = force_custom_plan AS $$
DECLARE
  here text := (whoami()).tenant;
  wanted tsquery[] := queries_for(stems);
  few constant integer := 8;  -- conversations, up to which the index looks into each; otherwise it finds those of all
  texts tsvector[];
  shares double precision[];
  all_texts tsvector[];
  part double precision;
  query tsquery;
  exact integer[];
  bounds text;
BEGIN
  cids := seen(cids);
  IF cardinality(cids) = 0 THEN
    RETURN;
  END IF;
  SELECT array_agg(s.tid) FILTER (WHERE s.n % 10 = 1), array_agg(s.terms) INTO sample, texts
  FROM (SELECT p.*, row_number() OVER () AS n FROM some_passages(here, cids, 1000) AS p) AS s;
  IF texts IS NULL OR cardinality(stems) = 0 THEN
    RETURN;
  END IF;
  shares := shares_of(wanted, texts);
  IF cardinality(cids) > few THEN  -- how much is read depends on how common the stems are in the whole tenant
    SELECT array_agg(p.terms), greatest(count(*) FILTER (WHERE p.cid = ANY (ranked_by_words.cids)), 0.5) / count(*)
    INTO all_texts, part FROM some_passages(here, NULL, 1000) AS p;
    SELECT r.query, r.exact INTO query, exact
    FROM words_to_read(wanted, shares_of(wanted, all_texts), (total / part)::bigint, 10000) AS r;
  ELSE
    SELECT r.query, r.exact INTO query, exact FROM words_to_read(wanted, shares, total, 10000) AS r;
  END IF;
  bounds := CASE WHEN cids IS NULL THEN '' WHEN cardinality(cids) > few THEN 'AND p.cid + 0 = ANY ($3)'
      ELSE 'AND p.cid = ANY ($3)' END
    || CASE WHEN since IS NULL AND until IS NULL THEN '' ELSE ' AND EXISTS (SELECT 1 FROM palaver.turns t
      WHERE t.tenant = $1 AND t.tid = p.tid AND ($9 IS NULL OR t.created >= $9) AND ($10 IS NULL OR t.created < $10))' END
    || CASE WHEN query IS NULL THEN ' ORDER BY p.pid DESC LIMIT 2000' ELSE ' LIMIT 30000' END;
  EXECUTE format($q$
    WITH found AS MATERIALIZED (
      SELECT p.tid, p.size, %s AS held FROM palaver.passages p
      WHERE p.tenant = $1 AND p.terms @@ $2 AND p.tid IS NOT NULL %s
    ), masks AS MATERIALIZED (
      SELECT f.held, count(*) AS n FROM found f GROUP BY f.held
    ), counted AS MATERIALIZED (
      SELECT s.i, CASE WHEN s.i = ANY ($6) THEN coalesce(sum(m.n) FILTER (WHERE (m.held >> (s.i - 1)::integer & 1) = 1), 0)
        ELSE s.share * $4 END::bigint AS n
      FROM unnest($5) WITH ORDINALITY AS s (share, i) LEFT JOIN masks m ON true GROUP BY s.i, s.share
    ), weighed AS MATERIALIZED (
      SELECT m.held, sum(ln(1 + (greatest($4 - c.n, 0) + 0.5) / (c.n + 0.5)))::float8 AS weight
      FROM masks m JOIN counted c ON (m.held >> (c.i - 1)::integer & 1) = 1 GROUP BY m.held
    ), best AS (
      SELECT f.tid, max(w.weight / (1 + 1.2 * (0.25 + 0.75 * f.size::float8 / $7))) AS score
      FROM found f JOIN weighed w ON w.held = f.held GROUP BY f.tid ORDER BY score DESC, f.tid DESC LIMIT 2 * $8
    )
    SELECT ARRAY(SELECT c.n FROM counted c ORDER BY c.i),
      ARRAY(SELECT b.tid FROM best b CROSS JOIN LATERAL (
          SELECT o.active, o.status FROM palaver.turns o WHERE o.tenant = $1 AND o.tid = b.tid OFFSET 0) AS t
        WHERE t.active = 1 AND t.status = 'complete' ORDER BY b.score DESC, b.tid DESC LIMIT $8)
  $q$, mask_of(wanted), bounds)
  INTO holding, tids
  USING here, coalesce(query, wanted[1]), cids, total, shares, exact, mean, most, since, until;
END $$;
GRANT CREATE ON SCHEMA palaver TO palaver_index;
ALTER FUNCTION palaver.ranked_by_words(text[], bigint[], bigint, double precision, integer, bigint, bigint)
  OWNER TO palaver_index;
REVOKE CREATE ON SCHEMA palaver FROM palaver_index;

-- dated_turns: some turns that were created in these spans of time (from and to, one after the other)
CREATE OR REPLACE FUNCTION palaver.dated_turns(me palaver.asker, owner text, spans bigint[], most integer) RETURNS bigint[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, palaver, pg_temp
  SET plan_cache_mode = force_custom_plan AS $$
BEGIN
  IF cardinality(spans) = 0 THEN
    RETURN '{}';
  END IF;
  RETURN ARRAY(SELECT t.tid FROM generate_series(1, cardinality(spans) - 1, 2) AS i
    CROSS JOIN LATERAL (
      SELECT c.cid FROM looked_at(me, NULL, dated_turns.owner) AS c WHERE c.updated >= spans[i]
      ORDER BY c.updated LIMIT 20) AS n  -- the first that ended later
    CROSS JOIN LATERAL (
      SELECT o.tid FROM turns o WHERE o.tenant = me.tenant AND o.cid = n.cid AND o.active = 1
        AND o.created >= spans[i] AND o.created < spans[i + 1]
      ORDER BY o.position LIMIT most / 20) AS t);
END $$;

-- turns_around: the columns of the turn arrays for these turns and the one before and after each, as far as they are in
-- the active branch of the conversations `cids` (NULL: all of the tenant), and not of those that are `hidden`. `hits` are
-- the passages of these turns that hold a stem: the turn, the size, and the stems, one bit each; `near` are the inner
-- products with the question. Runs as the role that owns the look-up, because a policy would be evaluated for every row,
-- and looks only at conversations that the caller may see
CREATE OR REPLACE FUNCTION palaver.turns_around(chosen bigint[], cids bigint[], hidden bigint[], stems text[], model text,
  asked text, OUT tids bigint[], OUT conversations bigint[], OUT positions bigint[], OUT created bigint[],
  OUT tokens bigint[], OUT roles text[], OUT actors text[], OUT standing smallint[], OUT hits bytea, OUT near bytea)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, palaver, extensions, pg_temp
  SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
DECLARE
  here text := (whoami()).tenant;
  wanted tsquery[] := queries_for(stems);
BEGIN
  cids := seen(cids);
  -- A limit or an offset inside a lateral query makes the planner look rows up one by one.
  WITH found AS MATERIALIZED (
    SELECT t.cid, t.position FROM (SELECT DISTINCT n.tid FROM unnest(chosen) AS n (tid)) AS n
    CROSS JOIN LATERAL (SELECT o.cid, o.position, o.active FROM turns o
      WHERE o.tenant = here AND o.tid = n.tid OFFSET 0) AS t
    WHERE t.active = 1 AND (turns_around.cids IS NULL OR t.cid = ANY (turns_around.cids)) AND t.cid <> ALL (hidden)
  ), around AS MATERIALIZED (
    SELECT DISTINCT ON (t.tid) t.* FROM found f CROSS JOIN LATERAL (
      SELECT o.tid, o.cid, o.position, o.created, o.role, o.actor,
        CASE WHEN o.token_count > 0 THEN o.token_count  -- otherwise the words of a file, if there are any
          ELSE EXISTS (SELECT 1 FROM passages p WHERE p.tenant = here AND p.cid = o.cid AND p.tid = o.tid)::integer END AS tokens
      FROM turns o WHERE o.tenant = here AND o.cid = f.cid AND o.active = 1 AND o.status = 'complete'
        AND o.position BETWEEN f.position - 1 AND f.position + 1
      ORDER BY o.position LIMIT 3) AS t ORDER BY t.tid
  )
  SELECT array_agg(a.tid), array_agg(a.cid), array_agg(a.position), array_agg(a.created), array_agg(a.tokens),
    array_agg(a.role), array_agg(a.actor), array_agg(coalesce(m.standing, 0::smallint))
  INTO tids, conversations, positions, created, tokens, roles, actors, standing
  FROM around a LEFT JOIN marks m ON m.tenant = here AND m.tid = a.tid;
  IF cardinality(wanted) > 0 THEN
    EXECUTE format('SELECT string_agg(int8send(h.tid) || int8send(h.size) || int8send(h.held), %2$L::bytea) FROM (
      SELECT p.tid, p.size, %1$s AS held FROM unnest($2, $3) AS t (tid, cid) CROSS JOIN LATERAL (
        SELECT o.tid, o.size, o.terms FROM palaver.passages o WHERE o.tenant = $1 AND o.cid = t.cid AND o.tid = t.tid
        LIMIT 100) AS p) AS h WHERE h.held <> 0', mask_of(wanted), '')
    INTO hits USING here, tids, conversations;
  END IF;
  IF asked IS NOT NULL THEN
    SELECT string_agg(int8send(e.tid) || float8send(-(e.vector <#> turns_around.asked::halfvec)), ''::bytea) INTO near
    FROM unnest(tids) AS t (tid) CROSS JOIN LATERAL (
      SELECT o.tid, o.vector FROM embeddings o WHERE o.tenant = here AND o.tid = t.tid AND o.model = turns_around.model
      LIMIT 100) AS e WHERE vector_dims(e.vector) = vector_dims(turns_around.asked::halfvec);
  END IF;
END $$;
GRANT CREATE ON SCHEMA palaver TO palaver_index;
ALTER FUNCTION palaver.turns_around(bigint[], bigint[], bigint[], text[], text, text) OWNER TO palaver_index;
REVOKE CREATE ON SCHEMA palaver FROM palaver_index;

-- candidates: the turns of an owner or of the tenant that may be the best for a question: by words, by meaning, by the
-- dates that it names, standing instructions, and a sample of all; with the turns before and after each. `passages` and
-- `terms` are those of `recall_size`. Returns the columns of the turn arrays and what `turns_around` says of them, and for
-- each stem how many passages of the scope hold it; `sample` are turns that stand for all
CREATE OR REPLACE FUNCTION palaver_api.candidates(who jsonb, stems text[], passages bigint, terms bigint, by_words integer,
  model text DEFAULT NULL, asked text DEFAULT NULL, by_meaning integer DEFAULT 0, spans bigint[] DEFAULT '{}',
  since bigint DEFAULT NULL, until bigint DEFAULT NULL, owner text DEFAULT NULL)
RETURNS TABLE (tids bigint[], cids bigint[], positions bigint[], created bigint[], tokens bigint[], roles text[],
  actors text[], standing smallint[], hits text, places text, holding bigint[], sample bigint[])
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp
  SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
DECLARE
  me asker := enter(who, 'read');
  scope bigint[];
  chosen bigint[];
BEGIN
  IF me.sight <> 'tenant' OR candidates.owner IS NOT NULL THEN  -- otherwise all conversations of the tenant
    SELECT coalesce(array_agg(c.cid), '{}') INTO scope FROM looked_at(me, NULL, candidates.owner) AS c;
  END IF;
  SELECT w.holding, w.tids, w.sample INTO holding, chosen, sample
  FROM ranked_by_words(stems, scope, greatest(candidates.passages, 1),
    greatest(candidates.terms, 1)::float8 / greatest(candidates.passages, 1), by_words, since, until) AS w;
  chosen := chosen || sample || dated_turns(me, candidates.owner, spans, 200)
    || ARRAY(SELECT m.tid FROM marks m WHERE m.tenant = me.tenant AND m.standing = 2 AND (scope IS NULL OR m.cid = ANY (scope))
      ORDER BY m.tid DESC LIMIT 50);
  IF asked IS NOT NULL THEN
    chosen := chosen || ARRAY(SELECT ('x' || encode(substr(n.place, 1, 8), 'hex'))::bit(64)::bigint
      FROM unnest(nearest_turns(model, asked, by_meaning, '{}', scope, candidates.passages, since, until)) AS n (place));
  END IF;
  SELECT t.tids, t.conversations, t.positions, t.created, t.tokens, t.roles, t.actors, t.standing, packed(t.hits), packed(t.near)
  INTO tids, cids, positions, created, tokens, roles, actors, standing, hits, places
  FROM turns_around(chosen, scope, ARRAY(SELECT c.cid FROM conversations c WHERE c.tenant = me.tenant AND c.gone IS NULL
    AND c.expires_at <= me.now), stems, model, asked) AS t;
  RETURN NEXT;
END $$;

-- matching_facts: the valid facts of a large scope that may be the best for a question: the nearest by meaning, and the newest
-- that contain one of its stems; each with its vector
CREATE OR REPLACE FUNCTION palaver_api.matching_facts(who jsonb, stems text[], most integer, model text DEFAULT NULL,
  asked text DEFAULT NULL, owner text DEFAULT NULL)
RETURNS TABLE (id text, subject text, predicate text, object text, source_turn text, confidence double precision,
  valid_from bigint, invalidated_at bigint, invalidated_by text, by text, created bigint, valid_to bigint, learnt bigint,
  floats text)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, extensions, pg_temp
  SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
DECLARE
  me asker := enter(who, 'read');
  wanted text[] := ARRAY(SELECT '%' || replace(replace(replace(s.stem, '\', '\\'), '%', '\%'), '_', '\_') || '%'
    FROM unnest(stems) AS s (stem));
BEGIN
  RETURN QUERY WITH held AS MATERIALIZED (
    SELECT f.* FROM looked_at(me, NULL, matching_facts.owner) AS c JOIN facts f ON f.tenant = me.tenant AND f.cid = c.cid
    WHERE f.invalidated_at IS NULL
  ), chosen AS (
    (SELECT h.fid FROM held h WHERE h.model = matching_facts.model
       AND vector_dims(h.vector) = vector_dims(matching_facts.asked::halfvec)
     ORDER BY h.vector <#> matching_facts.asked::halfvec LIMIT most)
    UNION
    (SELECT h.fid FROM held h WHERE lower(h.subject || ' ' || h.predicate || ' ' || h.object) LIKE ANY (wanted)
     ORDER BY h.fid DESC LIMIT most)
  )
  SELECT h.id, h.subject, h.predicate, h.object, h.source_turn, h.confidence, h.valid_from, h.invalidated_at,
    h.invalidated_by, h.by, h.created, h.valid_to, h.learnt,
    packed(CASE WHEN h.model = matching_facts.model THEN half_floats(h.vector) END)
  FROM held h WHERE h.fid IN (SELECT c.fid FROM chosen c) AND fits(me.tenant, h.cid, 'fact/' || h.id) ORDER BY h.fid;
END $$;
