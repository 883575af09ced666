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

-- ---- repair of derived data ------------------------------------------------------------------------------------------
-- How many rows there should be. Fewer mean that some were lost, and they are made again from the turns. Conversations from
-- before are counted online. It is a table of its own, because the last release reads whole rows of `conversations`.
CREATE TABLE palaver.derived_counts (
  tenant text NOT NULL,
  cid bigint NOT NULL,
  facts bigint NOT NULL DEFAULT 0,
  memories bigint NOT NULL DEFAULT 0,          -- 1: there is a working memory
  PRIMARY KEY (tenant, cid),
  FOREIGN KEY (tenant, cid) REFERENCES palaver.conversations
);
ALTER TABLE palaver.embedded ADD COLUMN vectors bigint NOT NULL DEFAULT 0;

-- Damaged rows that cannot be made again, such as notes that a person wrote, as they were found. They are deleted when a turn
-- of the conversation is forgotten, because nobody can tell whether they quote it.
CREATE TABLE palaver.set_aside (
  tenant text NOT NULL,
  said bigint NOT NULL DEFAULT nextval('palaver.numbers'),
  cid bigint NOT NULL,
  source text NOT NULL,                        -- the table that the row was in
  at bigint NOT NULL,
  data text NOT NULL,
  PRIMARY KEY (tenant, cid, said),
  FOREIGN KEY (tenant, cid) REFERENCES palaver.conversations
);

-- The same policies and rights as those of `streams`, whatever they are in this database.
DO $$
DECLARE
  name text;
  p record;
BEGIN
  FOREACH name IN ARRAY ARRAY['derived_counts', 'set_aside'] LOOP
    EXECUTE format('ALTER TABLE palaver.%I ENABLE ROW LEVEL SECURITY', name);
    EXECUTE format('ALTER TABLE palaver.%I FORCE ROW LEVEL SECURITY', name);
    EXECUTE format('REVOKE ALL ON palaver.%I FROM PUBLIC', name);
    FOR p IN SELECT o.polname, pg_get_expr(o.polqual, o.polrelid) AS may_see, pg_get_expr(o.polwithcheck, o.polrelid) AS may_write
      FROM pg_policy o WHERE o.polrelid = 'palaver.streams'::regclass AND o.polname IN ('palaver_app', 'authenticated') LOOP
      EXECUTE format('CREATE POLICY %I ON palaver.%I TO %I USING (%s) WITH CHECK (%s)',
        p.polname, name, p.polname, p.may_see, p.may_write);
      EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON palaver.%I TO %I', name, p.polname);
    END LOOP;
    IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'anon') THEN
      EXECUTE format('REVOKE ALL ON palaver.%I FROM anon', name);
    END IF;
    IF to_regproc('palaver.is_distributed') IS NOT NULL AND palaver.is_distributed() THEN
      PERFORM create_distributed_table('palaver.' || name, 'tenant', colocate_with => 'palaver.conversations');
    END IF;
  END LOOP;
END $$;

-- ---- proof of derived rows -------------------------------------------------------------------------------------------
-- For each summary, working memory, fact, file's text, request and request's body: the salt of its hash, and the number of
-- the event that has the hash (functions/proof.sql). The salt is deleted with the row. The key '' says that from event `n`
-- on the log knows every such row of the conversation.
CREATE TABLE palaver.proofs (
  tenant text NOT NULL,
  cid bigint NOT NULL,
  key text NOT NULL,
  n bigint NOT NULL,
  salt bytea NOT NULL,
  PRIMARY KEY (tenant, cid, key),
  FOREIGN KEY (tenant, cid) REFERENCES palaver.conversations
);
ALTER TABLE palaver.proofs ENABLE ROW LEVEL SECURITY;
ALTER TABLE palaver.proofs FORCE ROW LEVEL SECURITY;
REVOKE ALL ON palaver.proofs FROM PUBLIC;

-- The same policies and rights as those of `streams`, whatever they are in this database.
DO $$
DECLARE p record;
BEGIN
  FOR p IN SELECT o.polname, pg_get_expr(o.polqual, o.polrelid) AS may_see, pg_get_expr(o.polwithcheck, o.polrelid) AS may_write
    FROM pg_policy o WHERE o.polrelid = 'palaver.streams'::regclass AND o.polname IN ('palaver_app', 'authenticated') LOOP
    EXECUTE format('CREATE POLICY %I ON palaver.proofs TO %I USING (%s) WITH CHECK (%s)',
      p.polname, p.polname, p.may_see, p.may_write);
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON palaver.proofs TO %I', p.polname);
  END LOOP;
  IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'anon') THEN
    REVOKE ALL ON palaver.proofs FROM anon;
  END IF;
  IF to_regproc('palaver.is_distributed') IS NOT NULL AND palaver.is_distributed() THEN
    PERFORM create_distributed_table('palaver.proofs', 'tenant', colocate_with => 'palaver.conversations');
  END IF;
END $$;

-- The role that deletes bodies which quote forgotten turns also deletes the salts of their hashes, and no other.
CREATE POLICY palaver_eraser ON palaver.proofs TO palaver_eraser USING (starts_with(key, 'body/')) WITH CHECK (false);
GRANT SELECT (tenant, cid, key), DELETE ON palaver.proofs TO palaver_eraser;
GRANT SELECT (cid, id) ON palaver.requests TO palaver_eraser;
