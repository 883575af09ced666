-- Create the database role of the server. It owns no tables, so row level security applies to it. It is safe to run
-- this again.
\set ON_ERROR_STOP on
SELECT 'CREATE ROLE palaver_server LOGIN'
WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'palaver_server')
\gexec
ALTER ROLE palaver_server PASSWORD :'password';
GRANT palaver_app, palaver_worker TO palaver_server;
