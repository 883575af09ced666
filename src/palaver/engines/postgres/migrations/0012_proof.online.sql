-- After the migration, when no call of the version before is under way that would look for these.

-- step: drop_append_at_end
DROP FUNCTION IF EXISTS palaver.append_at_end(palaver.asker, text, jsonb, bigint);

-- step: drop_work_made
DROP FUNCTION IF EXISTS palaver.work_made(text, bigint, boolean, bigint);

-- Derived rows that were written before are counted, some thousand at a time.

-- step: restrict_set_aside
SELECT palaver.restrict_writes('set_aside');

-- step: restrict_derived_counts
SELECT palaver.restrict_writes('derived_counts');

-- step: count_facts_and_memories, repeat
INSERT INTO palaver.derived_counts (tenant, cid, facts, memories)
SELECT c.tenant, c.cid, (SELECT count(*) FROM palaver.facts f WHERE f.tenant = c.tenant AND f.cid = c.cid),
  (SELECT count(*) FROM palaver.working_memory w WHERE w.tenant = c.tenant AND w.cid = c.cid)
FROM palaver.conversations c
WHERE c.gone IS NULL
  AND NOT EXISTS (SELECT 1 FROM palaver.derived_counts d WHERE d.tenant = c.tenant AND d.cid = c.cid)
  AND (EXISTS (SELECT 1 FROM palaver.facts f WHERE f.tenant = c.tenant AND f.cid = c.cid)
    OR EXISTS (SELECT 1 FROM palaver.working_memory w WHERE w.tenant = c.tenant AND w.cid = c.cid))
LIMIT 2000
ON CONFLICT DO NOTHING;

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
