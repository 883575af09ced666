-- Vectors of passages and facts, as the worker keeps them up to date.

-- behind: conversations with passages that a model has not embedded: the named one, or any of the tenant
CREATE OR REPLACE FUNCTION palaver.behind(me palaver.asker, model text, conversation text)
RETURNS TABLE (cid bigint, pid bigint)
LANGUAGE sql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
  SELECT c.cid, coalesce(e.pid, 0) FROM conversations c
  LEFT JOIN embedded e ON e.tenant = me.tenant AND e.cid = c.cid AND e.model = behind.model
  -- The limit makes the planner look it up, and under a policy it may use an index for CASE, but not for coalesce: it would
  -- read all passages of a conversation.
  CROSS JOIN LATERAL (SELECT 1 FROM passages p WHERE p.tenant = me.tenant AND p.cid = c.cid
    AND p.pid > CASE WHEN e.pid IS NULL THEN 0 ELSE e.pid END LIMIT 1) AS p
  WHERE c.tenant = me.tenant AND c.gone IS NULL AND (behind.conversation IS NULL OR c.id = behind.conversation)
$$;

-- to_embed: the next passages of one conversation that a model has not embedded; without text where none is needed
CREATE OR REPLACE FUNCTION palaver_api.to_embed(who jsonb, model text, most integer, looked_at integer,
  conversation text DEFAULT NULL)
RETURNS TABLE (cid bigint, pid bigint, part integer, tid bigint, id text, role text, is_parts smallint, content text,
  metadata text)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp
  SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
DECLARE me asker := enter(who, 'read');
BEGIN
  RETURN QUERY SELECT p.cid, p.pid, p.part, t.tid, t.id, t.role, t.is_parts,
    CASE WHEN f.text IS NOT NULL THEN f.text WHEN p.part < to_embed.looked_at AND t.status = 'complete' THEN t.content END,
    t.metadata
  FROM (SELECT * FROM behind(me, model, conversation) LIMIT 1) AS b
  CROSS JOIN LATERAL (SELECT * FROM passages o WHERE o.tenant = me.tenant AND o.cid = b.cid AND o.pid > b.pid
    ORDER BY o.pid LIMIT most) AS p
  LEFT JOIN turns t ON t.tenant = me.tenant AND t.tid = p.tid
  LEFT JOIN file_passages f ON f.tenant = me.tenant AND p.part >= 100000 AND f.tid = p.tid AND f.part = p.part
  ORDER BY p.pid;
END $$;

-- put_embedded: store the vectors and marks of a batch, for passages that still exist; nothing when another worker
-- was faster
CREATE OR REPLACE FUNCTION palaver_api.put_embedded(who jsonb, model text, cid bigint, first bigint, last bigint,
  vectors jsonb, marks jsonb)
RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, extensions, pg_temp AS $$
#variable_conflict use_column
DECLARE
  me asker := enter(who, 'write');
  progress bigint;
  added bigint;
BEGIN
  PERFORM 1 FROM conversations c WHERE c.tenant = me.tenant AND c.cid = put_embedded.cid AND c.gone IS NULL
  FOR NO KEY UPDATE;
  IF NOT FOUND OR EXISTS (SELECT 1 FROM embedded e WHERE e.tenant = me.tenant AND e.cid = put_embedded.cid
                          AND e.model = put_embedded.model AND e.pid >= first) THEN
    RETURN;
  END IF;
  IF EXISTS (SELECT 1 FROM jsonb_array_elements(put_embedded.marks) AS m (value)
      WHERE (m.value ->> 1)::bigint NOT BETWEEN 0 AND 2) THEN
    PERFORM fail('PV031', 'marks', 'must be from 0 to 2');
  END IF;
  -- All vectors of an embedder have the same length: readers put them into one array.
  IF EXISTS (SELECT 1 FROM jsonb_array_elements(vectors) AS v (value)
      WHERE vector_dims((v.value ->> 1)::halfvec) IS DISTINCT FROM coalesce((SELECT vector_dims(e.vector)
        FROM embeddings e WHERE e.tenant = me.tenant AND e.cid = put_embedded.cid AND e.model = put_embedded.model LIMIT 1),
        vector_dims((vectors -> 0 ->> 1)::halfvec))) THEN
    PERFORM fail('PV031', 'vectors', 'must have the length of the other vectors of this embedder');
  END IF;
  INSERT INTO embeddings (tenant, cid, tid, part, model, vector)
  SELECT me.tenant, p.cid, p.tid, p.part, put_embedded.model, (v.value ->> 1)::halfvec
  FROM jsonb_array_elements(vectors) WITH ORDINALITY AS v (value, n)
  JOIN passages p ON p.tenant = me.tenant AND p.cid = put_embedded.cid AND p.pid = (v.value ->> 0)::bigint
  JOIN turns t ON t.tenant = me.tenant AND t.tid = p.tid AND t.status = 'complete'
  ORDER BY v.n
  ON CONFLICT DO NOTHING;
  GET DIAGNOSTICS added = ROW_COUNT;
  INSERT INTO marks AS o (tenant, tid, cid, standing)
  SELECT me.tenant, p.tid, p.cid, max((m.value ->> 1)::smallint) FROM jsonb_array_elements(put_embedded.marks) AS m (value)
  JOIN passages p ON p.tenant = me.tenant AND p.cid = put_embedded.cid AND p.pid = (m.value ->> 0)::bigint
  JOIN turns t ON t.tenant = me.tenant AND t.tid = p.tid AND t.status = 'complete'
  GROUP BY p.tid, p.cid
  ON CONFLICT ON CONSTRAINT marks_pkey DO UPDATE SET standing = greatest(o.standing, excluded.standing);
  IF FOUND THEN  -- so that cached turn arrays are read again
    UPDATE conversations c SET marked = c.marked + 1 WHERE c.tenant = me.tenant AND c.cid = put_embedded.cid;
  END IF;
  -- Not past the last passage: those of later turns are still to be embedded, whatever the caller says.
  SELECT least(last, coalesce(max(p.pid), 0)) INTO progress FROM passages p
  WHERE p.tenant = me.tenant AND p.cid = put_embedded.cid;
  INSERT INTO embedded AS o (tenant, cid, model, pid, vectors)
  VALUES (me.tenant, put_embedded.cid, put_embedded.model, progress, added)
  ON CONFLICT ON CONSTRAINT embedded_pkey DO UPDATE SET pid = excluded.pid, vectors = o.vectors + added;
END $$;

-- drop_other_vectors: delete a batch of the vectors of other embedders, and their progress. A user without the right
-- `admin` does so in the own conversations only
CREATE OR REPLACE FUNCTION palaver_api.drop_other_vectors(who jsonb, model text, most integer)
RETURNS TABLE (dropped bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'write');
  -- NULL: all of them
  own bigint[] := CASE WHEN strpos(',' || me.rights || ',', ',admin,') = 0 THEN ARRAY(
    SELECT c.cid FROM conversations c WHERE c.tenant = me.tenant AND c.owner = coalesce(me."user", '')) END;
BEGIN
  DELETE FROM embedded e WHERE e.tenant = me.tenant AND e.model <> drop_other_vectors.model
    AND (own IS NULL OR e.cid = ANY (own));
  DELETE FROM embeddings e WHERE e.tenant = me.tenant AND e.eid IN (
    SELECT o.eid FROM embeddings o WHERE o.tenant = me.tenant AND o.model <> drop_other_vectors.model
      AND (own IS NULL OR o.cid = ANY (own)) LIMIT most);
  GET DIAGNOSTICS dropped = ROW_COUNT;
  RETURN NEXT;
END $$;

-- embed_again: enqueue jobs for a batch of conversations that have vectors of these embedders; `last` is where the
-- next batch starts, NULL at the end. Reads `embedded`, which is smaller than the vectors
CREATE OR REPLACE FUNCTION palaver_api.embed_again(who jsonb, models text[], after bigint, most integer)
RETURNS TABLE (last bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'write');
  found bigint[];
BEGIN
  found := ARRAY(SELECT e.cid FROM embedded e WHERE e.tenant = me.tenant AND e.cid > after AND e.model = ANY (models)
    GROUP BY e.cid ORDER BY e.cid LIMIT most);
  PERFORM put_job(c.tenant, c.cid, 'embed', NULL, me.now) FROM conversations c
  WHERE c.tenant = me.tenant AND c.cid = ANY (found) AND c.gone IS NULL;
  last := CASE WHEN cardinality(found) = most THEN found[most] END;
  RETURN NEXT;
END $$;

-- drop_vectors: delete a batch of one conversation's vectors of these embedders. Their progress is set to 0 first,
-- so that such an embedder would start again, and deleted last, so that a crash in between leaves no vectors behind
-- unnoticed
CREATE OR REPLACE FUNCTION palaver_api.drop_vectors(who jsonb, models text[], conversation text, most integer)
RETURNS TABLE (dropped bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'write');
  c palaver.conversations := find(me, conversation);
BEGIN
  dropped := 0;
  UPDATE embedded e SET pid = 0, vectors = 0 WHERE e.tenant = c.tenant AND e.cid = c.cid AND e.model = ANY (models);
  IF FOUND THEN
    DELETE FROM embeddings e WHERE e.tenant = c.tenant AND e.eid IN (
      SELECT o.eid FROM embeddings o WHERE o.tenant = c.tenant AND o.cid = c.cid AND o.model = ANY (models) LIMIT most);
    GET DIAGNOSTICS dropped = ROW_COUNT;
  END IF;
  IF dropped = 0 THEN
    DELETE FROM embedded e WHERE e.tenant = c.tenant AND e.cid = c.cid AND e.model = ANY (models);
  END IF;
  RETURN NEXT;
END $$;

-- embedding_backlog: how many passages a model has not embedded
CREATE OR REPLACE FUNCTION palaver_api.embedding_backlog(who jsonb, model text) RETURNS TABLE (passages bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
#variable_conflict use_column
DECLARE me asker := enter(who, 'read');
BEGIN
  RETURN QUERY SELECT count(*) FROM behind(me, model, NULL) AS b
  JOIN passages p ON p.tenant = me.tenant AND p.cid = b.cid AND p.pid > b.pid;
END $$;

-- facts_to_embed: valid facts without a vector of this embedder, of one conversation or of the tenant
CREATE OR REPLACE FUNCTION palaver_api.facts_to_embed(who jsonb, model text, most integer, conversation text DEFAULT NULL)
RETURNS TABLE (thread text, id text, fact text)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
#variable_conflict use_column
DECLARE me asker := enter(who, 'read');
BEGIN
  RETURN QUERY SELECT c.id, f.id, f.subject || ' ' || f.predicate || ' ' || f.object FROM facts f
  JOIN conversations c ON c.tenant = f.tenant AND c.cid = f.cid
  WHERE f.tenant = me.tenant AND f.invalidated_at IS NULL AND f.model IS DISTINCT FROM facts_to_embed.model
    AND (facts_to_embed.conversation IS NULL OR c.id = facts_to_embed.conversation)
  LIMIT most;
END $$;

-- put_fact_vectors: store vectors with their facts. `vectors` is a list of [conversation, fact, vector]
CREATE OR REPLACE FUNCTION palaver_api.put_fact_vectors(who jsonb, model text, vectors jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, extensions, pg_temp AS $$
DECLARE me asker := enter(who, 'write');
BEGIN
  UPDATE facts f SET model = put_fact_vectors.model, vector = (v.value ->> 2)::halfvec
  FROM jsonb_array_elements(vectors) AS v (value)
  JOIN conversations c ON c.tenant = me.tenant AND c.id = v.value ->> 0
  WHERE f.tenant = me.tenant AND f.cid = c.cid AND f.id = v.value ->> 1;
END $$;
