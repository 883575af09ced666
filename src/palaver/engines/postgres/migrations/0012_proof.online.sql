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
