-- Deleting for good.

-- doom: the files of a turn, or all of a conversation's: their rows go now, and they after the commit
CREATE OR REPLACE FUNCTION palaver.doom(tenant text, cid bigint, tid bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  WITH gone AS (
    DELETE FROM attachments a WHERE a.tenant = doom.tenant AND a.cid = doom.cid
      AND (doom.tid IS NULL OR a.tid = doom.tid) RETURNING a.path
  ) INSERT INTO doomed_blobs (tenant, path, cid) SELECT doom.tenant, g.path, doom.cid FROM gone g ON CONFLICT DO NOTHING;
END $$;

-- unindex: the words of a turn, and everything else that was made of it alone
CREATE OR REPLACE FUNCTION palaver.unindex(t palaver.turns) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  WITH gone AS (
    DELETE FROM passages p WHERE p.tenant = t.tenant AND p.cid = t.cid AND p.tid = t.tid RETURNING p.size
  ) UPDATE conversations o SET passage_count = o.passage_count - g.passages, passage_terms = o.passage_terms - g.terms
    FROM (SELECT count(*) AS passages, coalesce(sum(size), 0) AS terms FROM gone) g
    WHERE o.tenant = t.tenant AND o.cid = t.cid AND g.passages > 0;
  PERFORM drop_meaning(t);
  PERFORM doom(t.tenant, t.cid, t.tid);
END $$;

-- stub: what remains of a turn is that something was said here, by whom and when; answers the fingerprint of that.
-- `keep_salt` keeps what proves the words to somebody who has them
CREATE OR REPLACE FUNCTION palaver.stub(c palaver.conversations, t palaver.turns, keep_salt boolean) RETURNS bytea
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE key text := key_hash(c.id, t.idempotency_key);
BEGIN
  DELETE FROM streams s WHERE s.tenant = t.tenant AND s.tid = t.tid;
  PERFORM unindex(t);
  UPDATE turns o SET status = 'forgotten', active = 0, is_parts = 0, content = NULL, tool_calls = NULL,
    tool_results = NULL, attachments = NULL, sources = NULL, prompt_tokens = NULL, completion_tokens = NULL,
    token_count = 0, model = NULL, adapter = NULL, finish_reason = NULL, metadata = NULL, preview = NULL,
    idempotency_key = key, salt = CASE WHEN keep_salt THEN o.salt END
  WHERE o.tenant = t.tenant AND o.tid = t.tid;
  RETURN stub_hash(t, key);
END $$;

-- results_of: the turns that answer the calls of a turn. An id that a later turn calls again belongs to that one from
-- there on
CREATE OR REPLACE FUNCTION palaver.results_of(c palaver.conversations, t palaver.turns) RETURNS SETOF palaver.turns
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  open_calls text[] := ARRAY(SELECT call ->> 'id' FROM jsonb_array_elements(t.tool_calls::jsonb) AS call);
  other palaver.turns;
BEGIN
  IF cardinality(open_calls) = 0 THEN
    RETURN;
  END IF;
  FOR other IN SELECT * FROM turns o WHERE o.tenant = t.tenant AND o.cid = t.cid AND o.seq > t.seq
      AND (o.tool_results IS NOT NULL OR o.tool_calls IS NOT NULL) ORDER BY o.seq LOOP
    IF other.tool_calls IS NOT NULL THEN
      open_calls := ARRAY(SELECT id FROM unnest(open_calls) AS id WHERE id NOT IN (
        SELECT call ->> 'id' FROM jsonb_array_elements(other.tool_calls::jsonb) AS call));
    END IF;
    IF open_calls && ARRAY(SELECT r ->> 'id' FROM jsonb_array_elements(other.tool_results::jsonb) AS r) THEN
      RETURN NEXT other;
    END IF;
  END LOOP;
END $$;

-- forget_one: a turn and what answers it; answers their ids. Nothing when it was forgotten before
CREATE OR REPLACE FUNCTION palaver.forget_one(me palaver.asker, c palaver.conversations, t palaver.turns)
RETURNS SETOF text
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  one palaver.turns;
  doomed palaver.turns[];
BEGIN
  c := drop_made_title(me, c);
  IF t.status = 'forgotten' THEN
    IF NOT EXISTS (SELECT 1 FROM events e WHERE e.tenant = c.tenant AND e.cid = c.cid AND e.turn = t.id
                   AND e.kind = 'forget') THEN
      RETURN QUERY SELECT forget_retired(me, c, t);
    END IF;
    RETURN;
  END IF;
  doomed := t || ARRAY(SELECT r FROM results_of(c, t) AS r);
  FOREACH one IN ARRAY doomed LOOP
    PERFORM changed(me, c, one);
    IF one.active = 1 THEN
      c.turn_count := c.turn_count - 1;
      c.token_count := c.token_count - one.token_count;
    END IF;
    c.updated := tick(me, c);
    c := log(me, c, 'forget', NULL, one.id, NULL, stub(c, one, false));
    RETURN NEXT one.id;
  END LOOP;
  PERFORM drop_bodies(c, t.seq, ARRAY(SELECT d.id FROM unnest(doomed) AS d));
  c := find_tip(c);
  PERFORM cut_beyond_tip(me, c);
  PERFORM save(refresh_preview(c));
END $$;

-- forget_retired: the words of a turn are gone already; now what was made of them goes too, and the proof
CREATE OR REPLACE FUNCTION palaver.forget_retired(me palaver.asker, c palaver.conversations, t palaver.turns)
RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  PERFORM changed(me, c, t);
  PERFORM drop_bodies(c, t.seq, ARRAY[t.id]);
  UPDATE turns o SET salt = NULL WHERE o.tenant = t.tenant AND o.tid = t.tid;
  c.updated := tick(me, c);
  PERFORM save(log(me, c, 'forget', NULL, t.id, NULL, stub_hash(t, t.idempotency_key)));
  RETURN t.id;
END $$;

CREATE OR REPLACE FUNCTION palaver_api.forget_turn(who jsonb, conversation text, turn text) RETURNS SETOF text
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'write');
  c palaver.conversations := open_thread(me, conversation);
BEGIN
  RETURN QUERY SELECT forget_one(me, c, turn_of(c, turn));
END $$;

-- retire: drop the words of turns that are summarised; their summaries stay, and so does what they were worth. The last
-- turn keeps its place in any case: the next one is counted from there
CREATE OR REPLACE FUNCTION palaver_api.retire(who jsonb, conversation text, place bigint, keep_salt boolean, most integer)
RETURNS SETOF text
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'write');
  c palaver.conversations := open_thread(me, conversation);
  t palaver.turns;
  removed text[] := '{}';
BEGIN
  FOR t IN SELECT * FROM turns o WHERE o.tenant = c.tenant AND o.cid = c.cid AND o.active IN (0, 1)
      AND o.position < least(place, c.tip_position) AND o.status IN ('complete', 'aborted') ORDER BY o.seq LIMIT most LOOP
    IF t.active = 1 THEN
      c.turn_count := c.turn_count - 1;
      c.token_count := c.token_count - t.token_count;
    END IF;
    c.updated := tick(me, c);
    c := log(me, c, 'retire', NULL, t.id, CASE WHEN keep_salt THEN '{"salt": true}'::jsonb END, stub(c, t, keep_salt));
    removed := removed || t.id;
    RETURN NEXT t.id;
  END LOOP;
  IF removed <> '{}' THEN
    PERFORM drop_bodies(c, stamped_seq(removed[1]), removed);
    PERFORM bump(c);
    PERFORM recount(c);
    PERFORM save(refresh_preview(find_tip(c)));
  END IF;
END $$;

-- forget_older: turns from before a moment, and what summaries still say of those whose words are gone already; some at a
-- time, so that writers can go in between
CREATE OR REPLACE FUNCTION palaver_api.forget_older(who jsonb, before bigint, most integer)
RETURNS TABLE (conversation text, turn text)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'write');
  c palaver.conversations;
  one record;
BEGIN
  FOR one IN
    SELECT o.id AS conversation, t.id AS turn FROM turns t
    JOIN conversations o ON o.tenant = me.tenant AND o.cid = t.cid AND o.gone IS NULL
      AND (o.expires_at IS NULL OR o.expires_at > me.now)
    WHERE t.tenant = me.tenant AND t.created < before AND t.status IN ('complete', 'aborted')
    ORDER BY t.cid, t.seq LIMIT most
  LOOP
    CONTINUE WHEN NOT lock_if_there(me, one.conversation);
    c := open_thread(me, one.conversation);
    RETURN QUERY SELECT c.id, f FROM forget_one(me, c, turn_of(c, one.turn)) AS f;
  END LOOP;
  FOR one IN
    SELECT o.id AS conversation, t.id AS turn FROM summaries s
    JOIN conversations o ON o.tenant = me.tenant AND o.cid = s.cid AND o.gone IS NULL
      AND (o.expires_at IS NULL OR o.expires_at > me.now)
    JOIN turns t ON t.tenant = me.tenant AND t.cid = s.cid AND t.active = 0 AND t.position >= s.from_seq
      AND t.position < s.through_seq
    WHERE s.tenant = me.tenant AND s.level = 0 AND s.stale = 0 AND t.status = 'forgotten' AND t.created < before
      AND NOT EXISTS (SELECT 1 FROM turns k WHERE k.tenant = me.tenant AND k.cid = s.cid AND k.active = 1
        AND k.position >= s.from_seq AND k.position < s.through_seq)
    ORDER BY t.cid, t.seq LIMIT most
  LOOP
    CONTINUE WHEN NOT lock_if_there(me, one.conversation);
    c := open_thread(me, one.conversation);
    RETURN QUERY SELECT c.id, forget_retired(me, c, turn_of(c, one.turn));
  END LOOP;
END $$;

-- reset: forget every turn and keep the conversation
CREATE OR REPLACE FUNCTION palaver_api.reset(who jsonb, conversation text) RETURNS SETOF text
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'write');
  c palaver.conversations := open_thread(me, conversation);
  t palaver.turns;
  stubs bytea := ''::bytea;
BEGIN
  PERFORM require_owner(me, c.owner);
  c := drop_made_title(me, c);
  FOR t IN SELECT * FROM turns o WHERE o.tenant = c.tenant AND o.cid = c.cid AND o.status <> 'forgotten'
      ORDER BY o.seq LOOP
    IF t.active = 1 THEN
      c.turn_count := c.turn_count - 1;
      c.token_count := c.token_count - t.token_count;
    END IF;
    stubs := stubs || field(stub(c, t, false));
    RETURN NEXT t.id;
  END LOOP;
  PERFORM unquote(c.cid);
  PERFORM emptied(c);
  UPDATE turns o SET salt = NULL WHERE o.tenant = c.tenant AND o.cid = c.cid AND o.salt IS NOT NULL;
  PERFORM doom(c.tenant, c.cid, NULL);
  c.updated := tick(me, c);
  c := find_tip(log(me, c, 'reset', content_hash => sha256(stubs)));
  c.preview := NULL;
  PERFORM save(c);
END $$;

-- bury: delete everything but the log, and close the log with a tombstone
CREATE OR REPLACE FUNCTION palaver.bury(me palaver.asker, c palaver.conversations, kind text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  PERFORM emptied(c);
  PERFORM doom(c.tenant, c.cid, NULL);
  DELETE FROM passages o WHERE o.tenant = c.tenant AND o.cid = c.cid;
  DELETE FROM streams o WHERE o.tenant = c.tenant AND o.cid = c.cid;
  DELETE FROM turns o WHERE o.tenant = c.tenant AND o.cid = c.cid;
  PERFORM unquote(c.cid);
  c.updated := tick(me, c);
  c := log(me, c, kind);
  UPDATE conversations o SET key = NULL, workspace = NULL, agent = NULL, model = NULL, title = NULL, preview = NULL,
    participants = '[]', metadata = NULL, settings = NULL, ttl = NULL, expires_at = NULL, salt = NULL,
    content_hash = NULL, turn_count = 0, token_count = 0, tip_position = -1, tip_slot = NULL, next_n = c.next_n,
    tip_hash = c.tip_hash, updated = c.updated, minute = c.updated / 60000000, gone = c.updated, members = '{}',
    passage_count = 0, passage_terms = 0
  WHERE o.tenant = c.tenant AND o.cid = c.cid;
END $$;

-- bury_expired: one whose time is up, unless somebody else was faster
CREATE OR REPLACE FUNCTION palaver.bury_expired(me palaver.asker, conversation text) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE c palaver.conversations;
BEGIN
  SELECT * INTO c FROM conversations o WHERE o.tenant = me.tenant AND o.id = conversation AND o.gone IS NULL
    AND o.expires_at <= me.now FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  PERFORM bury(me, c, 'expire');
  RETURN true;
END $$;

CREATE OR REPLACE FUNCTION palaver_api.forget_conversation(who jsonb, conversation text) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'write');
  c palaver.conversations := open_thread(me, conversation);
BEGIN
  PERFORM require_owner(me, c.owner);
  PERFORM bury(me, c, 'forget');
  RETURN true;
END $$;

-- expire: conversations whose time is up; some at a time, so that writers can go in between
CREATE OR REPLACE FUNCTION palaver_api.expire(who jsonb, most integer) RETURNS SETOF text
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'write');
  late text;
BEGIN
  FOR late IN SELECT c.id FROM conversations c WHERE c.tenant = me.tenant AND c.gone IS NULL AND c.expires_at <= me.now
      ORDER BY c.cid LIMIT most LOOP
    IF bury_expired(me, late) THEN
      RETURN NEXT late;
    END IF;
  END LOOP;
END $$;
