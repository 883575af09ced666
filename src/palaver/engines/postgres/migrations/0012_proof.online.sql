-- After the migration, when no call of the version before is under way that would look for these.

-- step: drop_append_at_end
DROP FUNCTION IF EXISTS palaver.append_at_end(palaver.asker, text, jsonb, bigint);

-- step: drop_work_made
DROP FUNCTION IF EXISTS palaver.work_made(text, bigint, boolean, bigint);

-- Derived rows that were written before are counted, some thousand at a time.

-- step: restrict_set_aside
SELECT palaver.restrict_writes('set_aside');

-- step: count_facts, repeat
UPDATE palaver.conversations c SET fact_count = f.facts FROM (
  SELECT o.tenant, o.cid, count(*) AS facts FROM palaver.facts o JOIN palaver.conversations n
    ON n.tenant = o.tenant AND n.cid = o.cid AND n.fact_count = 0 AND n.gone IS NULL
  GROUP BY o.tenant, o.cid LIMIT 2000) AS f
WHERE c.tenant = f.tenant AND c.cid = f.cid AND c.fact_count = 0;

-- step: mark_memory, repeat
UPDATE palaver.conversations c SET has_memory = 1 FROM (
  SELECT w.tenant, w.cid FROM palaver.working_memory w JOIN palaver.conversations n
    ON n.tenant = w.tenant AND n.cid = w.cid AND n.has_memory = 0 AND n.gone IS NULL LIMIT 2000) AS w
WHERE c.tenant = w.tenant AND c.cid = w.cid AND c.has_memory = 0;

-- step: count_vectors, repeat
UPDATE palaver.embedded e SET vectors = v.vectors FROM (
  SELECT o.tenant, o.cid, o.model, count(*) AS vectors FROM palaver.embeddings o JOIN palaver.embedded n
    ON n.tenant = o.tenant AND n.cid = o.cid AND n.model = o.model AND n.vectors = 0
  GROUP BY o.tenant, o.cid, o.model LIMIT 2000) AS v
WHERE e.tenant = v.tenant AND e.cid = v.cid AND e.model = v.model AND e.vectors = 0;

-- step: restrict_proofs
SELECT palaver.restrict_writes('proofs');

-- Rows from before are proved from now on: a job of each conversation brings them into its log, some at a time. (A login
-- that row level security hides them from adds no job; the next change of such a row does.)

-- step: prove_older_rows
INSERT INTO palaver.jobs (tenant, cid, kind, run_at, created)
SELECT o.tenant, o.cid, 'prove', 0, 0 FROM palaver.conversations o
WHERE o.gone IS NULL
  AND (EXISTS (SELECT 1 FROM palaver.summaries s WHERE s.tenant = o.tenant AND s.cid = o.cid)
    OR EXISTS (SELECT 1 FROM palaver.working_memory w WHERE w.tenant = o.tenant AND w.cid = o.cid)
    OR EXISTS (SELECT 1 FROM palaver.facts f WHERE f.tenant = o.tenant AND f.cid = o.cid)
    OR EXISTS (SELECT 1 FROM palaver.file_passages p WHERE p.tenant = o.tenant AND p.cid = o.cid)
    OR EXISTS (SELECT 1 FROM palaver.requests r WHERE r.tenant = o.tenant AND r.cid = o.cid))
ON CONFLICT DO NOTHING;
