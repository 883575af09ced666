-- Statistics for database administrators: sizes, and the work that waits. The views read with the rights of their reader;
-- they are for superusers and for members of `palaver_worker` (SET ROLE palaver_worker), who see every tenant and no content.

-- table_sizes: rows (estimated since the last ANALYZE), dead rows and bytes of each table, with its indexes
CREATE OR REPLACE VIEW palaver.table_sizes WITH (security_invoker = true) AS
SELECT c.relname::text AS "table", greatest(c.reltuples, 0)::bigint AS estimated_rows, s.n_dead_tup AS dead_rows,
  pg_table_size(c.oid) AS table_bytes, pg_indexes_size(c.oid) AS index_bytes, pg_total_relation_size(c.oid) AS total_bytes,
  greatest(s.last_vacuum, s.last_autovacuum) AS last_vacuum, greatest(s.last_analyze, s.last_autoanalyze) AS last_analyze
FROM pg_catalog.pg_class c LEFT JOIN pg_catalog.pg_stat_all_tables s ON s.relid = c.oid
WHERE c.relnamespace = 'palaver'::regnamespace AND c.relkind IN ('r', 'p');

-- tenant_work: of each tenant, its conversations, the jobs that wait and that failed permanently, since when the oldest one
-- has been due, its open streams and how many of them ended without a word, and the files that are still to be deleted
CREATE OR REPLACE VIEW palaver.tenant_work WITH (security_invoker = true) AS
SELECT t.tenant, t.conversations, coalesce(j.waiting, 0) AS jobs_waiting, coalesce(j.dead, 0) AS jobs_dead, j.oldest_due,
  coalesce(s.pending, 0) AS streams_pending, coalesce(s.abandoned, 0) AS streams_abandoned,
  coalesce(b.files, 0) AS files_to_delete
FROM (SELECT c.tenant, count(*) AS conversations FROM palaver.conversations c GROUP BY c.tenant) AS t
LEFT JOIN (
  SELECT o.tenant, count(*) FILTER (WHERE o.dead = 0) AS waiting, count(*) FILTER (WHERE o.dead <> 0) AS dead,
    to_timestamp(min(nullif(o.run_at, 0)) FILTER (WHERE o.dead = 0) / 1000000.0) AS oldest_due
  FROM palaver.jobs o GROUP BY o.tenant) AS j ON j.tenant = t.tenant
LEFT JOIN (
  SELECT o.tenant, count(*) AS pending,
    count(*) FILTER (WHERE o.lease_until < extract(epoch FROM now()) * 1000000) AS abandoned
  FROM palaver.streams o GROUP BY o.tenant) AS s ON s.tenant = t.tenant
LEFT JOIN (SELECT o.tenant, count(*) AS files FROM palaver.doomed_blobs o GROUP BY o.tenant) AS b ON b.tenant = t.tenant;

REVOKE ALL ON palaver.table_sizes, palaver.tenant_work FROM PUBLIC;
GRANT SELECT ON palaver.table_sizes, palaver.tenant_work TO palaver_worker;
