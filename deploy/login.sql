-- The login of the server: it owns nothing, and row level security holds for it. Safe to run again.
\set ON_ERROR_STOP on
SELECT 'CREATE ROLE palaver_server LOGIN'
WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'palaver_server')
\gexec
ALTER ROLE palaver_server PASSWORD :'password';
GRANT palaver_app, palaver_worker TO palaver_server;
