-- Background jobs: which are waiting, which worker has one, which failed. A job holds no content, so that a worker may see
-- those of every tenant; it then runs each one inside its tenant.

-- is_due: whether a job is due and not leased. Times further ahead than any that are ever written come from before
-- the clock was set back
CREATE OR REPLACE FUNCTION palaver.is_due(dead smallint, run_at bigint, lease_until bigint, now bigint) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN dead = 0 AND (run_at <= now OR run_at > now + 300000000)
    AND (lease_until <= now OR lease_until > now + 300000000);
GRANT EXECUTE ON FUNCTION palaver.is_due(smallint, bigint, bigint, bigint) TO palaver_worker;

-- `kinds` in the functions below are the kinds of jobs that the worker knows. A job of another kind was enqueued by a newer
-- version, and is left to its workers. Workers of 0.1.0 do not say which they know (older_code.sql).

-- tenants_waiting: the tenants with a due job, the one that has waited longest first
CREATE OR REPLACE FUNCTION palaver_api.tenants_waiting(who jsonb, most integer, kinds text[])
RETURNS TABLE (tenant text)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE me asker := enter_worker(who);
BEGIN
  RETURN QUERY SELECT j.tenant FROM jobs j WHERE is_due(j.dead, j.run_at, j.lease_until, me.now) AND j.kind = ANY (kinds)
    GROUP BY j.tenant ORDER BY min(j.run_at) LIMIT most;
END $$;

-- due_at: when a job is due next
CREATE OR REPLACE FUNCTION palaver.due_at(dead smallint, run_at bigint, lease_until bigint, now bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN CASE WHEN palaver.is_due(dead, run_at, lease_until, now) THEN now ELSE greatest(run_at, lease_until) END;
GRANT EXECUTE ON FUNCTION palaver.due_at(smallint, bigint, bigint, bigint) TO palaver_worker;

-- Before schema 11 they took a row. A row of a shard has another type than one of its table, and Citus refuses such a
-- function of `jobs`.
DROP FUNCTION IF EXISTS palaver.due_at(palaver.jobs, bigint);
DROP FUNCTION IF EXISTS palaver.is_due(palaver.jobs, bigint);

-- next_job: when the next job of a tenant is due
CREATE OR REPLACE FUNCTION palaver_api.next_job(who jsonb, kinds text[]) RETURNS TABLE (due bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE me asker := enter(who, 'read');
BEGIN
  RETURN QUERY SELECT min(due_at(j.dead, j.run_at, j.lease_until, me.now)) FROM jobs j
  WHERE j.tenant = me.tenant AND j.dead = 0 AND j.kind = ANY (kinds);
END $$;

-- next_job_anywhere: when the next job of any tenant is due
CREATE OR REPLACE FUNCTION palaver_api.next_job_anywhere(who jsonb, kinds text[])
RETURNS TABLE (due bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE me asker := enter_worker(who);
BEGIN
  RETURN QUERY SELECT min(due_at(j.dead, j.run_at, j.lease_until, me.now)) FROM jobs j
  WHERE j.dead = 0 AND j.kind = ANY (kinds);
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

-- claim_job: lease the job of this tenant that has waited longest. When the worker dies, the lease ends
CREATE OR REPLACE FUNCTION palaver_api.claim_job(who jsonb, lease bigint, kinds text[])
RETURNS TABLE (id bigint, kind text, conversation text, argument bigint, attempts integer, asked bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
#variable_conflict use_column
DECLARE
  me asker := enter(who, 'write');
  j palaver.jobs;
BEGIN
  LOOP
    SELECT * INTO j FROM jobs o
    WHERE o.tenant = me.tenant AND is_due(o.dead, o.run_at, o.lease_until, me.now) AND o.kind = ANY (kinds)
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

-- held: a job, if this worker still has its lease
CREATE OR REPLACE FUNCTION palaver.held(me palaver.asker, job jsonb) RETURNS SETOF palaver.jobs
LANGUAGE sql SET search_path = pg_catalog, palaver, pg_temp AS $$
  SELECT j.* FROM jobs j WHERE j.tenant = me.tenant AND j.kind = job ->> 'kind' AND j.jid = (job ->> 'id')::bigint
    AND j.attempts = (job ->> 'attempts')::integer
    AND j.cid = (SELECT c.cid FROM conversations c WHERE c.tenant = me.tenant AND c.id = job ->> 'conversation')
$$;

-- renew_job: renew the lease of a job
CREATE OR REPLACE FUNCTION palaver_api.renew_job(who jsonb, job jsonb, lease bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'write');
  j palaver.jobs;
BEGIN
  SELECT * INTO j FROM held(me, job);
  UPDATE jobs o SET lease_until = me.now + lease
  WHERE o.tenant = me.tenant AND o.cid = j.cid AND o.kind = j.kind AND o.attempts = j.attempts;
END $$;

-- finish_job: delete a finished job, or make it due again if more work was added since. For `embed`, the passages
-- show whether there is more: they are read under the conversation's lock, under which appends add them
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

-- release_job: give a job back undone, without counting the attempt
CREATE OR REPLACE FUNCTION palaver_api.release_job(who jsonb, job jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'write');
  j palaver.jobs;
BEGIN
  SELECT * INTO j FROM held(me, job);
  UPDATE jobs o SET lease_until = 0, attempts = o.attempts - 1
  WHERE o.tenant = me.tenant AND o.cid = j.cid AND o.kind = j.kind AND o.attempts = j.attempts;
END $$;

-- retry_job: run a failed job again later. A dead job is enqueued again by the next append; the conversation is
-- locked first
CREATE OR REPLACE FUNCTION palaver_api.retry_job(who jsonb, job jsonb, delay bigint, error text, dead boolean)
RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'write');
  j palaver.jobs;
BEGIN
  SELECT * INTO j FROM held(me, job);
  IF retry_job.dead AND j.kind = 'embed' THEN
    UPDATE conversations c SET to_embed = false WHERE c.tenant = me.tenant AND c.cid = j.cid;
  END IF;
  UPDATE jobs o SET run_at = me.now + least(delay, 300000000), lease_until = 0, error = retry_job.error,
    dead = retry_job.dead::integer
  WHERE o.tenant = me.tenant AND o.cid = j.cid AND o.kind = j.kind AND o.attempts = j.attempts;
END $$;
