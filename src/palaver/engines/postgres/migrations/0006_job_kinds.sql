-- No table changes. The functions that hand out jobs are told which kinds the worker knows. With another number of
-- parameters they are other functions: those of before go, or a call without `kinds` would fit both.
DROP FUNCTION IF EXISTS palaver_api.tenants_waiting(jsonb, integer);
DROP FUNCTION IF EXISTS palaver_api.next_job(jsonb);
DROP FUNCTION IF EXISTS palaver_api.next_job_anywhere(jsonb);
DROP FUNCTION IF EXISTS palaver_api.health(jsonb, boolean);
DROP FUNCTION IF EXISTS palaver_api.claim_job(jsonb, bigint);
