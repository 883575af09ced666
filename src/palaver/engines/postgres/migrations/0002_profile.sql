-- These functions have other columns now. A database with schema 1 also gets the current functions, some of which have
-- changed.

DROP FUNCTION IF EXISTS palaver_api.profile(jsonb, bigint[], bigint, text, text);
DROP FUNCTION IF EXISTS palaver_api.whole(jsonb, text);
