-- They have other columns now. And whoever comes from schema 1 gets the functions of today, some of which have changed.

DROP FUNCTION IF EXISTS palaver_api.profile(jsonb, bigint[], bigint, text, text);
DROP FUNCTION IF EXISTS palaver_api.whole(jsonb, text);
