-- The outbox: which memory work is waiting, who has it, what failed. Jobs hold no content, so that a worker may look at
-- those of every tenant; whatever it does then, it does inside one of them.

-- is_due: its time has come and nobody has it; times further off than any that we write are from before the clock was set
-- back
CREATE OR REPLACE FUNCTION palaver.is_due(j palaver.jobs, now bigint) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN (j).dead = 0 AND ((j).run_at <= now OR (j).run_at > now + 300000000)
    AND ((j).lease_until <= now OR (j).lease_until > now + 300000000);

GRANT EXECUTE ON FUNCTION palaver.is_due(palaver.jobs, bigint) TO palaver_worker;

-- In the functions below, `kinds` are the kinds of jobs that the worker knows: one of another kind was enqueued by a newer
-- version, and is left to its workers. NULL, from a worker of an earlier version, stands for any.

-- tenants_waiting: who has a job that is due, the one that has waited longest first
CREATE OR REPLACE FUNCTION palaver_api.tenants_waiting(who jsonb, most integer, kinds text[] DEFAULT NULL)
RETURNS TABLE (tenant text)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE me asker := enter_worker(who);
BEGIN
  RETURN QUERY SELECT j.tenant FROM jobs j WHERE is_due(j, me.now) AND (kinds IS NULL OR j.kind = ANY (kinds))
    GROUP BY j.tenant ORDER BY min(j.run_at) LIMIT most;
END $$;

-- due_at: when a job is to be looked at again
CREATE OR REPLACE FUNCTION palaver.due_at(j palaver.jobs, now bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN CASE WHEN palaver.is_due(j, now) THEN now ELSE greatest((j).run_at, (j).lease_until) END;
GRANT EXECUTE ON FUNCTION palaver.due_at(palaver.jobs, bigint) TO palaver_worker;

-- next_job: when there is something to do again in a tenant
CREATE OR REPLACE FUNCTION palaver_api.next_job(who jsonb, kinds text[] DEFAULT NULL) RETURNS TABLE (due bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE me asker := enter(who, 'read');
BEGIN
  RETURN QUERY SELECT min(due_at(j, me.now)) FROM jobs j
  WHERE j.tenant = me.tenant AND j.dead = 0 AND (kinds IS NULL OR j.kind = ANY (kinds));
END $$;

-- next_job_anywhere: the same for all of them
CREATE OR REPLACE FUNCTION palaver_api.next_job_anywhere(who jsonb, kinds text[] DEFAULT NULL)
RETURNS TABLE (due bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE me asker := enter_worker(who);
BEGIN
  RETURN QUERY SELECT min(due_at(j, me.now)) FROM jobs j
  WHERE j.dead = 0 AND (kinds IS NULL OR j.kind = ANY (kinds));
END $$;

-- health: which schema the database has, how much work waits or was put aside, and since when the oldest could be done;
-- in one tenant, or in all of them. What a migration asks for has no time
CREATE OR REPLACE FUNCTION palaver_api.health(who jsonb, everywhere boolean, kinds text[] DEFAULT NULL)
RETURNS TABLE (schema integer, waiting bigint, put_aside bigint, oldest bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE me asker := CASE WHEN everywhere THEN enter_worker(who) ELSE enter(who, 'read') END;
BEGIN
  RETURN QUERY SELECT schema_version(), count(*) FILTER (WHERE j.dead = 0), count(*) FILTER (WHERE j.dead <> 0),
    min(nullif(j.run_at, 0)) FILTER (WHERE is_due(j, me.now) AND (kinds IS NULL OR j.kind = ANY (kinds)))
  FROM jobs j WHERE everywhere OR j.tenant = me.tenant;
END $$;

CREATE OR REPLACE FUNCTION palaver_api.add_job(who jsonb, conversation text, kind text, argument bigint DEFAULT NULL)
RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'write');
  c palaver.conversations := find(me, conversation);
BEGIN
  PERFORM put_job(c.tenant, c.cid, kind, argument, me.now);
END $$;

-- claim_job: the job of this tenant that has waited longest. A worker that dies loses it when the lease ends
CREATE OR REPLACE FUNCTION palaver_api.claim_job(who jsonb, lease bigint, kinds text[] DEFAULT NULL)
RETURNS TABLE (id bigint, kind text, conversation text, argument bigint, attempts integer, asked bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
#variable_conflict use_column
DECLARE
  me asker := enter(who, 'write');
  j palaver.jobs;
BEGIN
  LOOP
    SELECT * INTO j FROM jobs o
    WHERE o.tenant = me.tenant AND is_due(o, me.now) AND (kinds IS NULL OR o.kind = ANY (kinds))
    ORDER BY o.run_at LIMIT 1 FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
      RETURN;
    END IF;
    conversation := (SELECT c.id FROM conversations c WHERE c.tenant = j.tenant AND c.cid = j.cid AND c.gone IS NULL);
    EXIT WHEN conversation IS NOT NULL;
    DELETE FROM jobs o WHERE o.tenant = j.tenant AND o.cid = j.cid AND o.kind = j.kind;
  END LOOP;
  UPDATE jobs o SET lease_until = me.now + lease, attempts = o.attempts + 1
  WHERE o.tenant = j.tenant AND o.cid = j.cid AND o.kind = j.kind
  RETURNING o.jid, o.kind, o.argument, o.attempts, o.created INTO id, kind, argument, attempts, asked;
  RETURN NEXT;
END $$;

-- held: a job, as long as the worker who asks still has it
CREATE OR REPLACE FUNCTION palaver.held(me palaver.asker, job jsonb) RETURNS SETOF palaver.jobs
LANGUAGE sql SET search_path = pg_catalog, palaver, pg_temp AS $$
  SELECT j.* FROM jobs j WHERE j.tenant = me.tenant AND j.kind = job ->> 'kind' AND j.jid = (job ->> 'id')::bigint
    AND j.attempts = (job ->> 'attempts')::integer
    AND j.cid = (SELECT c.cid FROM conversations c WHERE c.tenant = me.tenant AND c.id = job ->> 'conversation')
$$;

-- renew_job: a sign of life from the worker who has it
CREATE OR REPLACE FUNCTION palaver_api.renew_job(who jsonb, job jsonb, lease bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE me asker := enter(who, 'write');
BEGIN
  UPDATE jobs o SET lease_until = me.now + lease FROM held(me, job) AS j
  WHERE o.tenant = j.tenant AND o.cid = j.cid AND o.kind = j.kind;
END $$;

-- finish_job: done. What was asked for meanwhile makes it a job again. For `embed` the passages say whether there is more:
-- they are looked at under the conversation's lock, where appends add them
CREATE OR REPLACE FUNCTION palaver_api.finish_job(who jsonb, job jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'write');
  j palaver.jobs;
  more boolean;
BEGIN
  PERFORM 1 FROM conversations c WHERE c.tenant = me.tenant AND c.id = job ->> 'conversation' FOR NO KEY UPDATE;
  SELECT * INTO j FROM held(me, job);
  IF NOT FOUND THEN
    RETURN;
  END IF;
  more := j.created <> (job ->> 'asked')::bigint OR (j.kind = 'embed' AND EXISTS (
    SELECT 1 FROM passages p WHERE p.tenant = j.tenant AND p.cid = j.cid AND p.pid > (
      SELECT coalesce(max(e.pid), 0) FROM embedded e WHERE e.tenant = j.tenant AND e.cid = j.cid)));
  IF more THEN
    UPDATE jobs o SET lease_until = 0, attempts = 0, run_at = me.now  -- at the end of the queue
    WHERE o.tenant = j.tenant AND o.cid = j.cid AND o.kind = j.kind;
  ELSE
    DELETE FROM jobs o WHERE o.tenant = j.tenant AND o.cid = j.cid AND o.kind = j.kind;
    UPDATE conversations c SET to_embed = false
    WHERE c.tenant = j.tenant AND c.cid = j.cid AND j.kind = 'embed' AND c.to_embed;
  END IF;
END $$;

-- release_job: not done, and nobody's fault
CREATE OR REPLACE FUNCTION palaver_api.release_job(who jsonb, job jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE me asker := enter(who, 'write');
BEGIN
  UPDATE jobs o SET lease_until = 0, attempts = o.attempts - 1 FROM held(me, job) AS j
  WHERE o.tenant = j.tenant AND o.cid = j.cid AND o.kind = j.kind;
END $$;

-- retry_job: later. A job that is put aside is put in again by the next append; the conversation's lock comes first
CREATE OR REPLACE FUNCTION palaver_api.retry_job(who jsonb, job jsonb, delay bigint, error text, dead boolean)
RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE me asker := enter(who, 'write');
BEGIN
  IF retry_job.dead AND job ->> 'kind' = 'embed' THEN
    UPDATE conversations c SET to_embed = false FROM held(me, job) AS j WHERE c.tenant = j.tenant AND c.cid = j.cid;
  END IF;
  UPDATE jobs o SET run_at = me.now + least(delay, 300000000), lease_until = 0, error = retry_job.error,
    dead = retry_job.dead::integer
  FROM held(me, job) AS j WHERE o.tenant = j.tenant AND o.cid = j.cid AND o.kind = j.kind;
END $$;

-- ---- vectors --------------------------------------------------------------------------------------------------------

-- behind: a conversation with passages that a model has not seen; the named one, or any of the tenant's
CREATE OR REPLACE FUNCTION palaver.behind(me palaver.asker, model text, conversation text)
RETURNS TABLE (cid bigint, pid bigint)
LANGUAGE sql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
  SELECT c.cid, coalesce(e.pid, 0) FROM conversations c
  LEFT JOIN embedded e ON e.tenant = c.tenant AND e.cid = c.cid AND e.model = behind.model
  WHERE c.tenant = me.tenant AND c.gone IS NULL AND (behind.conversation IS NULL OR c.id = behind.conversation)
    AND EXISTS (SELECT 1 FROM passages p WHERE p.tenant = c.tenant AND p.cid = c.cid AND p.pid > coalesce(e.pid, 0))
$$;

-- to_embed: the next passages that a model has not seen, of one conversation; without the words where nobody will look
-- at them
CREATE OR REPLACE FUNCTION palaver_api.to_embed(who jsonb, model text, most integer, looked_at integer,
  conversation text DEFAULT NULL)
RETURNS TABLE (cid bigint, pid bigint, part integer, tid bigint, id text, role text, is_parts smallint, content text,
  metadata text)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
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

-- put_embedded: store what was made of a batch; nothing when another worker was faster. `vectors` and `marks` are for
-- passages, and count only where the passage is still there
CREATE OR REPLACE FUNCTION palaver_api.put_embedded(who jsonb, model text, cid bigint, first bigint, last bigint,
  vectors jsonb, marks jsonb)
RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, extensions, pg_temp AS $$
#variable_conflict use_column
DECLARE
  me asker := enter(who, 'write');
BEGIN
  PERFORM 1 FROM conversations c WHERE c.tenant = me.tenant AND c.cid = put_embedded.cid AND c.gone IS NULL
  FOR NO KEY UPDATE;
  IF NOT FOUND OR EXISTS (SELECT 1 FROM embedded e WHERE e.tenant = me.tenant AND e.cid = put_embedded.cid
                          AND e.model = put_embedded.model AND e.pid >= first) THEN
    RETURN;
  END IF;
  INSERT INTO embeddings (tenant, cid, tid, part, model, vector)
  SELECT me.tenant, p.cid, p.tid, p.part, put_embedded.model, (v.value ->> 1)::halfvec
  FROM jsonb_array_elements(vectors) WITH ORDINALITY AS v (value, n)
  JOIN passages p ON p.tenant = me.tenant AND p.cid = put_embedded.cid AND p.pid = (v.value ->> 0)::bigint
  JOIN turns t ON t.tenant = me.tenant AND t.tid = p.tid AND t.status = 'complete'
  ORDER BY v.n
  ON CONFLICT DO NOTHING;
  INSERT INTO marks AS o (tenant, tid, cid, standing)
  SELECT me.tenant, p.tid, p.cid, max((m.value ->> 1)::smallint) FROM jsonb_array_elements(put_embedded.marks) AS m (value)
  JOIN passages p ON p.tenant = me.tenant AND p.cid = put_embedded.cid AND p.pid = (m.value ->> 0)::bigint
  JOIN turns t ON t.tenant = me.tenant AND t.tid = p.tid AND t.status = 'complete'
  GROUP BY p.tid, p.cid
  ON CONFLICT ON CONSTRAINT marks_pkey DO UPDATE SET standing = greatest(o.standing, excluded.standing);
  IF FOUND THEN  -- so that cached profiles learn of the marks
    UPDATE conversations c SET marked = c.marked + 1 WHERE c.tenant = me.tenant AND c.cid = put_embedded.cid;
  END IF;
  INSERT INTO embedded (tenant, cid, model, pid) VALUES (me.tenant, put_embedded.cid, put_embedded.model, last)
  ON CONFLICT ON CONSTRAINT embedded_pkey DO UPDATE SET pid = excluded.pid;
END $$;

-- drop_other_vectors: some of the vectors of other embedders, and how far those had come
CREATE OR REPLACE FUNCTION palaver_api.drop_other_vectors(who jsonb, model text, most integer)
RETURNS TABLE (dropped bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE me asker := enter(who, 'write');
BEGIN
  DELETE FROM embedded e WHERE e.tenant = me.tenant AND e.model <> drop_other_vectors.model;
  DELETE FROM embeddings e WHERE e.tenant = me.tenant AND e.eid IN (
    SELECT o.eid FROM embeddings o WHERE o.tenant = me.tenant AND o.model <> drop_other_vectors.model LIMIT most);
  GET DIAGNOSTICS dropped = ROW_COUNT;
  RETURN NEXT;
END $$;

-- embed_again: a job for some conversations that have vectors of these embedders; `last` is where to go on, null at the end.
-- `embedded` says it without a look at the vectors
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

-- drop_vectors: some of the vectors that these embedders made of one conversation. How far they had come is set to 0 first,
-- so that one of them would start again, and forgotten last, so that a crash in between leaves no vectors unnoticed
CREATE OR REPLACE FUNCTION palaver_api.drop_vectors(who jsonb, models text[], conversation text, most integer)
RETURNS TABLE (dropped bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'write');
  c palaver.conversations := find(me, conversation);
BEGIN
  dropped := 0;
  UPDATE embedded e SET pid = 0 WHERE e.tenant = c.tenant AND e.cid = c.cid AND e.model = ANY (models);
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

-- embedding_backlog: how many passages a model has not seen
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

-- put_fact_vectors: beside their facts. `vectors` is a list of [conversation, fact, vector]
CREATE OR REPLACE FUNCTION palaver_api.put_fact_vectors(who jsonb, model text, vectors jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, extensions, pg_temp AS $$
DECLARE me asker := enter(who, 'write');
BEGIN
  UPDATE facts f SET model = put_fact_vectors.model, vector = (v.value ->> 2)::halfvec
  FROM jsonb_array_elements(vectors) AS v (value)
  JOIN conversations c ON c.tenant = me.tenant AND c.id = v.value ->> 0
  WHERE f.tenant = me.tenant AND f.cid = c.cid AND f.id = v.value ->> 1;
END $$;
