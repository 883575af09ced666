-- Budgets, and work that one process of many does.

-- The limits of one tenant, user or key, in place of the defaults in the settings.
CREATE TABLE budgets (
  tenant TEXT NOT NULL,
  kind TEXT NOT NULL,                        -- tenant, user or key
  name TEXT NOT NULL,                        -- of the user, or the id of the key; '' for the tenant
  limits TEXT NOT NULL,                      -- JSON
  PRIMARY KEY (tenant, kind, name)
) STRICT, WITHOUT ROWID;

-- The use of budgets by day and month; under 'total' the storage. Calls that are being made are counted with their maximum.
CREATE TABLE budget_use (
  tenant TEXT NOT NULL,
  kind TEXT NOT NULL,
  name TEXT NOT NULL,
  period TEXT NOT NULL,                      -- 2026-11-18, 2026-11 or total
  requests INTEGER NOT NULL DEFAULT 0,
  tokens INTEGER NOT NULL DEFAULT 0,
  dollars INTEGER NOT NULL DEFAULT 0,        -- millionths
  bytes INTEGER NOT NULL DEFAULT 0,
  conversations INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (tenant, kind, name, period)
) STRICT, WITHOUT ROWID;

-- Work that one process does at a time, such as sweeping: nobody else does it before `until`.
CREATE TABLE leases (
  tenant TEXT NOT NULL,
  name TEXT NOT NULL,
  until INTEGER NOT NULL,
  PRIMARY KEY (tenant, name)
) STRICT, WITHOUT ROWID;
