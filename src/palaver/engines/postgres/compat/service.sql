-- Binds Supabase's server key to one tenant in the compatibility tables, for programs that use them with nobody signed in.
-- It works there as the application does. An empty tenant binds it to none. This file can be run again.

CREATE OR REPLACE FUNCTION palaver_compat.service() RETURNS palaver.asker LANGUAGE sql STABLE PARALLEL SAFE
  RETURN ROW(nullif({tenant}, ''), NULL, 'tenant', NULL, 'read,write,system,admin', NULL)::palaver.asker;
