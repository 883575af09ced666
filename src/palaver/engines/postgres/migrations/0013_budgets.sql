-- Budgets, and work that one process of many does. A database that is distributed distributes them, too (docs/scale-out.md).

-- The limits of one tenant, user or key, in place of the defaults in the settings.
CREATE TABLE palaver.budgets (
  tenant text NOT NULL,
  kind text NOT NULL,                          -- tenant, user or key
  name text NOT NULL,                          -- of the user, or the id of the key; '' for the tenant
  limits text NOT NULL,                        -- JSON; a row that is not is ignored
  PRIMARY KEY (tenant, kind, name)
);

-- The use of budgets by day and month; under 'total' the storage. Calls that are being made are counted with their maximum.
CREATE TABLE palaver.budget_use (
  tenant text NOT NULL,
  kind text NOT NULL,
  name text NOT NULL,
  period text NOT NULL,                        -- 2026-11-18, 2026-11 or total
  requests bigint NOT NULL DEFAULT 0,
  tokens bigint NOT NULL DEFAULT 0,
  dollars bigint NOT NULL DEFAULT 0,           -- millionths
  bytes bigint NOT NULL DEFAULT 0,
  conversations bigint NOT NULL DEFAULT 0,
  PRIMARY KEY (tenant, kind, name, period)
);

-- Work that one process does at a time, such as sweeping: nobody else does it before `until`.
CREATE TABLE palaver.leases (
  tenant text NOT NULL,
  name text NOT NULL,
  until bigint NOT NULL,
  PRIMARY KEY (tenant, name)
);

-- For the application itself and for admins, like the keys; a user with a token cannot reach them.
DO $$
DECLARE name text;
BEGIN
  FOREACH name IN ARRAY ARRAY['budgets', 'budget_use', 'leases'] LOOP
    EXECUTE format('ALTER TABLE palaver.%I ENABLE ROW LEVEL SECURITY', name);
    EXECUTE format('ALTER TABLE palaver.%I FORCE ROW LEVEL SECURITY', name);
    EXECUTE format('REVOKE ALL ON palaver.%I FROM PUBLIC', name);
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON palaver.%I TO palaver_app', name);
    EXECUTE format('CREATE POLICY palaver_app ON palaver.%1$I TO palaver_app USING (%2$s) WITH CHECK (%2$s)', name,
      $q$tenant = (SELECT nullif(current_setting('palaver.tenant', true), ''))
        AND 'admin' = ANY (string_to_array((SELECT current_setting('palaver.rights', true)), ','))$q$);
  END LOOP;
END $$;
