-- No table changes. The functions that hand out jobs get one more parameter: the kinds that the worker knows. Postgres
-- treats them as new functions, so the old ones are dropped: a call without `kinds` would match both.
DROP FUNCTION IF EXISTS palaver_api.tenants_waiting(jsonb, integer);
DROP FUNCTION IF EXISTS palaver_api.next_job(jsonb);
DROP FUNCTION IF EXISTS palaver_api.next_job_anywhere(jsonb);
DROP FUNCTION IF EXISTS palaver_api.health(jsonb, boolean);
DROP FUNCTION IF EXISTS palaver_api.claim_job(jsonb, bigint);
-- Unused.
DROP FUNCTION IF EXISTS palaver.forgotten(palaver.asker, palaver.conversations, palaver.turns);
DROP FUNCTION IF EXISTS palaver.unshelve(palaver.conversations, bigint);
