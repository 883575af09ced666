-- Memory of subjects (persons, projects, teams), and the two times of a fact. The tables of items are empty, so their
-- indexes are made at once.

-- ---- facts over time -------------------------------------------------------------------------------------------------
ALTER TABLE palaver.facts ADD COLUMN valid_to bigint;   -- when it stopped to hold
ALTER TABLE palaver.facts ADD COLUMN learnt bigint;     -- when it was said; facts from before have none

-- ---- what is remembered of a subject ---------------------------------------------------------------------------------
-- The memory of a subject belongs to a conversation of its own, without turns, which lists do not show (its key begins
-- with 'palaver:memory/'). Its log is the log of the memory, and users who may see it may see the memory.
CREATE TABLE palaver.items (
  tenant text NOT NULL,
  cid bigint NOT NULL,
  id text NOT NULL,
  iid bigint NOT NULL DEFAULT nextval('palaver.numbers'),
  kind text NOT NULL,
  subject text NOT NULL,
  predicate text NOT NULL,
  object text NOT NULL,
  confidence double precision NOT NULL,
  valid_from bigint,
  valid_to bigint,                             -- as it was said; the end by another item is that item's `valid_from`
  learnt bigint NOT NULL,
  ended_at bigint,
  ended_by text,                               -- the item that took its place: if that is gone, this one holds again
  origin text NOT NULL,
  status text NOT NULL,
  said_by text,
  "by" text NOT NULL,
  created bigint NOT NULL,
  PRIMARY KEY (tenant, cid, id),
  FOREIGN KEY (tenant, cid) REFERENCES palaver.conversations
);
CREATE INDEX items_newest ON palaver.items (tenant, cid, iid);
CREATE INDEX items_of_kind ON palaver.items (tenant, cid, kind, iid);

-- The turns that say it. With the last of them the item is deleted; one that a person wrote has none.
CREATE TABLE palaver.item_sources (
  tenant text NOT NULL,
  cid bigint NOT NULL,
  item text NOT NULL,
  turn text NOT NULL,
  source_cid bigint NOT NULL,                  -- the conversation of the turn: its number, and its id
  conversation text NOT NULL,
  said bigint NOT NULL,
  PRIMARY KEY (tenant, cid, item, turn),
  FOREIGN KEY (tenant, cid) REFERENCES palaver.conversations
);
CREATE INDEX item_sources_from ON palaver.item_sources (tenant, source_cid, turn);

-- The same policies and rights as those of `streams`, whatever they are in this database.
DO $$
DECLARE
  name text;
  p record;
BEGIN
  FOREACH name IN ARRAY ARRAY['items', 'item_sources'] LOOP
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

-- The role that deletes bodies which quote forgotten turns also deletes what was learnt from such turns, in memories that
-- the caller may not see, and the salts of their hashes. It cannot read the words.
CREATE POLICY palaver_eraser ON palaver.items TO palaver_eraser USING (true) WITH CHECK (false);
CREATE POLICY palaver_eraser ON palaver.item_sources TO palaver_eraser USING (true) WITH CHECK (false);
CREATE POLICY palaver_eraser_items ON palaver.proofs TO palaver_eraser
  USING (starts_with(key, 'item/') OR starts_with(key, 'source/')) WITH CHECK (false);
GRANT SELECT (tenant, cid, id, origin), DELETE ON palaver.items TO palaver_eraser;
GRANT SELECT (tenant, cid, item, turn, source_cid), DELETE ON palaver.item_sources TO palaver_eraser;
GRANT SELECT (active) ON palaver.turns TO palaver_eraser;
