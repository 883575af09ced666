-- The questions of a conversation that are being answered, or that wait for the answers ahead of them. Only conversations
-- whose questions are queued or refused have rows. No content; a row whose lease has ended is deleted with the next question.
CREATE TABLE palaver.answer_places (
  tenant text NOT NULL,
  cid bigint NOT NULL,
  id text NOT NULL,
  seq bigint NOT NULL,                         -- of the question; while it is not stored, the lowest that it can get
  stored boolean NOT NULL,                     -- whether the question is stored
  started boolean NOT NULL,                    -- whether it is being answered
  lease_until bigint NOT NULL,
  PRIMARY KEY (tenant, cid, id),
  FOREIGN KEY (tenant, cid) REFERENCES palaver.conversations
);
ALTER TABLE palaver.answer_places ENABLE ROW LEVEL SECURITY;
ALTER TABLE palaver.answer_places FORCE ROW LEVEL SECURITY;
REVOKE ALL ON palaver.answer_places FROM PUBLIC;

-- The same policies and rights as those of `streams`, whatever they are in this database.
DO $$
DECLARE p record;
BEGIN
  FOR p IN SELECT o.polname, pg_get_expr(o.polqual, o.polrelid) AS may_see, pg_get_expr(o.polwithcheck, o.polrelid) AS may_write
    FROM pg_policy o WHERE o.polrelid = 'palaver.streams'::regclass AND o.polname IN ('palaver_app', 'authenticated') LOOP
    EXECUTE format('CREATE POLICY %I ON palaver.answer_places TO %I USING (%s) WITH CHECK (%s)',
      p.polname, p.polname, p.may_see, p.may_write);
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON palaver.answer_places TO %I', p.polname);
  END LOOP;
  IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'anon') THEN
    REVOKE ALL ON palaver.answer_places FROM anon;
  END IF;
  IF to_regproc('palaver.is_distributed') IS NOT NULL AND palaver.is_distributed() THEN
    PERFORM create_distributed_table('palaver.answer_places', 'tenant', colocate_with => 'palaver.conversations');
  END IF;
END $$;
