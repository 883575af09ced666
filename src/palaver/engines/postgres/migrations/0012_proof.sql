-- Proof of what reaches a prompt, and what other changes of this release need. Each part has a heading; tables are
-- distributed where the others are (docs/scale-out.md). A database with schema 11 gets the current functions.

-- ---- erasing a person ------------------------------------------------------------------------------------------------
-- Who was erased, by a salted digest of the name. The name itself and the key of the pseudonym are here only while the
-- erasure is under way, so that it can be continued after a crash.
CREATE TABLE palaver.erasures (
  tenant text NOT NULL,
  digest text NOT NULL,
  salt text NOT NULL,
  started bigint NOT NULL,
  at bigint NOT NULL DEFAULT 0,                -- what is older must not come back; 0: the first erasure is under way
  "user" text,
  key text,
  conversations text NOT NULL DEFAULT '[]',    -- JSON: digests of the conversations that were deleted
  PRIMARY KEY (tenant, digest)
);

-- The ids of everything that an erasure under way has deleted, for its receipt.
CREATE TABLE palaver.erased_items (
  tenant text NOT NULL,
  digest text NOT NULL,
  kind text NOT NULL,
  item text NOT NULL,
  PRIMARY KEY (tenant, digest, kind, item)
);

-- For the application itself and for admins, like the keys; a user with a token cannot reach them.
DO $$
DECLARE name text;
BEGIN
  FOREACH name IN ARRAY ARRAY['erasures', 'erased_items'] LOOP
    EXECUTE format('ALTER TABLE palaver.%I ENABLE ROW LEVEL SECURITY', name);
    EXECUTE format('ALTER TABLE palaver.%I FORCE ROW LEVEL SECURITY', name);
    EXECUTE format('REVOKE ALL ON palaver.%I FROM PUBLIC', name);
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON palaver.%I TO palaver_app', name);
    EXECUTE format('CREATE POLICY palaver_app ON palaver.%1$I TO palaver_app USING (%2$s) WITH CHECK (%2$s)', name,
      $q$tenant = (SELECT nullif(current_setting('palaver.tenant', true), ''))
        AND 'admin' = ANY (string_to_array((SELECT current_setting('palaver.rights', true)), ','))$q$);
  END LOOP;
END $$;
