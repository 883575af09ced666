-- Permanent deletion.
--
-- Forgetting a turn (`forget_one`) removes, in this order:
--
-- 1. the conversation's title, if a job wrote it: it may repeat the turn's words (`drop_made_title`);
-- 2. what memory derived from it: summaries that cover it lose their text and are written again, its notes and facts are
--    deleted, and facts that those facts had replaced are valid again (`changed`);
-- 3. its stream, if it is still being written;
-- 4. its passages in the text index and those of its files, its mark as a standing instruction, its vectors (`unindex`);
-- 5. its files: the rows and, by a foreign key, their extracted text now; the paths go to `doomed_blobs`, and the store
--    deletes the bytes after the commit (`doom`);
-- 6. its content, salt and every other field but id, role, actor, time and the hash of its idempotency key (`stub`);
-- 7. the same (2 to 6) for the turns that hold results of its tool calls (`results_of`);
-- 8. the bodies of recorded requests that may contain it: those sent after it, and those elsewhere that quote it
--    (`drop_bodies`);
-- 9. summaries, notes and facts beyond the new end of the conversation (`cut_beyond_tip`), and the preview, if it came
--    from the turn.
--
-- Each forgotten turn leaves a `forget` event with the hash of its stub. Old row versions are removed by VACUUM and when
-- the WAL is recycled. `reset` does this for every turn of a conversation; `bury` deletes the conversation's own fields as
-- well; `retire` does 3 to 6 and 8, and keeps the memory (2).
-- conversations/deletion.py lists all that a forget removes, also outside the database.

-- doom: delete the rows of a turn's files, or of all files of a conversation; the bytes are deleted after the commit
CREATE OR REPLACE FUNCTION palaver.doom(tenant text, cid bigint, tid bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  PERFORM touch(doom.cid, ARRAY(SELECT 'file/' || a.id FROM attachments a WHERE a.tenant = doom.tenant
    AND a.cid = doom.cid AND (doom.tid IS NULL OR a.tid = doom.tid) AND a.characters IS NOT NULL));
  WITH gone AS (
    DELETE FROM attachments a WHERE a.tenant = doom.tenant AND a.cid = doom.cid
      AND (doom.tid IS NULL OR a.tid = doom.tid) RETURNING a.path
  ) INSERT INTO doomed_blobs (tenant, path, cid) SELECT doom.tenant, g.path, doom.cid FROM gone g ON CONFLICT DO NOTHING;
END $$;

-- unindex: delete the index entries of a turn, and everything else that was derived from it alone
CREATE OR REPLACE FUNCTION palaver.unindex(t palaver.turns) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  WITH gone AS (
    DELETE FROM passages p WHERE p.tenant = t.tenant AND p.cid = t.cid AND p.tid = t.tid RETURNING p.size
  ) UPDATE conversations o SET passage_count = o.passage_count - g.passages, passage_terms = o.passage_terms - g.terms
    FROM (SELECT count(*) AS passages, coalesce(sum(size), 0) AS terms FROM gone) g
    WHERE o.tenant = t.tenant AND o.cid = t.cid AND g.passages > 0;
  DELETE FROM turn_metadata m WHERE m.tenant = t.tenant AND m.tid = t.tid;
  PERFORM drop_meaning(t);
  PERFORM doom(t.tenant, t.cid, t.tid);
END $$;

-- stub: reduce a turn to a stub (who spoke and when) and return the hash of that. It clears `FORGOTTEN_FIELDS` of
-- core/turn_draft.py and the turn's preview. `keep_salt` keeps the salt, with which the owner of a copy can prove the
-- original text
CREATE OR REPLACE FUNCTION palaver.stub(c palaver.conversations, t palaver.turns, keep_salt boolean) RETURNS bytea
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE key text := stub_key(c.id, t.idempotency_key);
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

-- results_of: the turns with results of a turn's tool calls. When a later turn uses the same call id, results after
-- it belong to that turn
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

-- forget_one: forget a turn and the results of its tool calls, and return their ids; nothing when it was forgotten
-- before
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

-- forget_retired: forget a turn whose text was retired: delete what was derived from it, and its salt
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

-- retire: drop the text of summarised turns; their summaries stay. The last turn is never retired: the position of
-- the next one follows from it
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

-- forget_older: forget turns that are older than a time, and the summaries of those whose text was retired; in
-- batches, so that writers can go in between
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
  PERFORM unquote(c.cid), unlearn(c.cid);
  PERFORM emptied(c);
  UPDATE turns o SET salt = NULL WHERE o.tenant = c.tenant AND o.cid = c.cid AND o.salt IS NOT NULL;
  PERFORM doom(c.tenant, c.cid, NULL);
  c.updated := tick(me, c);
  c := find_tip(log(me, c, 'reset', content_hash => sha256(stubs)));
  c.preview := NULL;
  PERFORM save(c);
END $$;

-- bury: delete everything but the log, and end the log with a last event
CREATE OR REPLACE FUNCTION palaver.bury(me palaver.asker, c palaver.conversations, kind text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  PERFORM emptied(c);
  PERFORM doom(c.tenant, c.cid, NULL);
  DELETE FROM passages o WHERE o.tenant = c.tenant AND o.cid = c.cid;
  DELETE FROM turn_metadata o WHERE o.tenant = c.tenant AND o.cid = c.cid;
  DELETE FROM conversation_metadata o WHERE o.tenant = c.tenant AND o.cid = c.cid;
  DELETE FROM streams o WHERE o.tenant = c.tenant AND o.cid = c.cid;
  DELETE FROM answer_places o WHERE o.tenant = c.tenant AND o.cid = c.cid;
  DELETE FROM turns o WHERE o.tenant = c.tenant AND o.cid = c.cid;
  DELETE FROM proofs o WHERE o.tenant = c.tenant AND o.cid = c.cid;
  PERFORM unquote(c.cid), unlearn(c.cid);
  c.updated := tick(me, c);
  c := log(me, c, kind);
  UPDATE conversations o SET key = NULL, workspace = NULL, agent = NULL, model = NULL, title = NULL, preview = NULL,
    participants = '[]', metadata = NULL, settings = NULL, ttl = NULL, expires_at = NULL, salt = NULL,
    content_hash = NULL, turn_count = 0, token_count = 0, tip_position = -1, tip_slot = NULL, next_n = c.next_n,
    tip_hash = c.tip_hash, updated = c.updated, minute = c.updated / 60000000, gone = c.updated, members = '{}',
    passage_count = 0, passage_terms = 0
  WHERE o.tenant = c.tenant AND o.cid = c.cid;
END $$;

-- ---- in slices ------------------------------------------------------------------------------------------------------
-- A large conversation is deleted over several transactions, so that none of them holds locks for long or writes a log of
-- any size. The first one hides the conversation: it lets its time to live end in 1970, and frees its key unless it is only
-- reset. Its `expires_at` says how the deletion ends (engines/erasing.py): 0 forget, 1 expire, 2 reset. If it is
-- interrupted, the next `expire_slice` or `finish_slice` continues it, or the same call again.

-- erase_some: delete up to `most` turns and requests of a conversation, with everything that belongs to them, and return
-- how many
CREATE OR REPLACE FUNCTION palaver.erase_some(c palaver.conversations, most bigint) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  asked bigint[] := ARRAY(SELECT r.rid FROM requests r WHERE r.tenant = c.tenant AND r.cid = c.cid LIMIT most);
  tids bigint[];
  ids text[];
  file text;
BEGIN
  DELETE FROM request_quotes q WHERE q.tenant = c.tenant AND q.cid = c.cid AND q.rid = ANY (asked);
  DELETE FROM requests r WHERE r.tenant = c.tenant AND r.rid = ANY (asked);
  SELECT array_agg(t.tid), array_agg(t.id) INTO tids, ids FROM (
    SELECT o.tid, o.id FROM turns o WHERE o.tenant = c.tenant AND o.cid = c.cid ORDER BY o.seq
    LIMIT most - cardinality(asked)) AS t;
  IF tids IS NULL THEN
    RETURN cardinality(asked);
  END IF;
  FOR file IN SELECT a.path FROM attachments a WHERE a.tenant = c.tenant AND a.cid = c.cid AND a.tid = ANY (tids) LOOP
    INSERT INTO doomed_blobs (tenant, path, cid) VALUES (c.tenant, file, c.cid) ON CONFLICT DO NOTHING;
  END LOOP;
  DELETE FROM attachments a WHERE a.tenant = c.tenant AND a.cid = c.cid AND a.tid = ANY (tids);
  DELETE FROM passages p WHERE p.tenant = c.tenant AND p.cid = c.cid AND p.tid = ANY (tids);
  DELETE FROM turn_metadata m WHERE m.tenant = c.tenant AND m.tid = ANY (tids);
  DELETE FROM embeddings e WHERE e.tenant = c.tenant AND e.tid = ANY (tids);
  DELETE FROM marks m WHERE m.tenant = c.tenant AND m.tid = ANY (tids);
  DELETE FROM streams s WHERE s.tenant = c.tenant AND s.tid = ANY (tids);
  DELETE FROM turns t WHERE t.tenant = c.tenant AND t.tid = ANY (tids);
  PERFORM unquote(c.cid, ids), unlearn(c.cid, ids);
  RETURN cardinality(asked) + cardinality(tids);
END $$;

-- forget_slice: delete up to `most` turns and requests of a conversation; true when there are more, and the conversation
-- is hidden. For a large one, the first call only hides it, which takes no longer for a million turns. The call that
-- deletes the last of them ends the log
CREATE OR REPLACE FUNCTION palaver_api.forget_slice(who jsonb, conversation text, most bigint) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'write');
  c palaver.conversations;
BEGIN
  SELECT * INTO c FROM conversations o WHERE o.tenant = me.tenant AND o.id = conversation AND o.expires_at <= 2
    AND o.gone IS NULL FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    c := open_thread(me, conversation);
  ELSIF me.sight <> 'tenant' THEN
    PERFORM set_config('palaver.cid', c.cid::text, true);
  END IF;
  PERFORM require_owner(me, c.owner);
  IF c.expires_at IS DISTINCT FROM 0 AND c.next_seq > greatest(most, 1) THEN
    c.expires_at := 0;
    PERFORM hide(c);
    RETURN true;
  END IF;
  IF erase_some(c, greatest(most, 1)) >= greatest(most, 1) THEN
    c.expires_at := 0;
    PERFORM hide(c);
    RETURN true;
  END IF;
  PERFORM bury(me, c, 'forget');
  RETURN false;
END $$;

-- reset_some: forget up to `most` turns after a number. Returns the number of the last one, and hides the conversation;
-- NULL when that were all of them, and the conversation is there again
CREATE OR REPLACE FUNCTION palaver.reset_some(me palaver.asker, c palaver.conversations, after bigint, most bigint)
RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  t palaver.turns;
  stubs bytea := ''::bytea;
  ids text[] := '{}';
  last bigint;
  looked_at bigint := 0;
BEGIN
  FOR t IN SELECT * FROM turns o WHERE o.tenant = c.tenant AND o.cid = c.cid AND o.seq > after ORDER BY o.seq
      LIMIT most LOOP
    last := t.seq;
    looked_at := looked_at + 1;
    IF t.status = 'forgotten' THEN
      UPDATE turns o SET salt = NULL WHERE o.tenant = t.tenant AND o.tid = t.tid AND o.salt IS NOT NULL;
    ELSE
      IF t.active = 1 THEN
        c.turn_count := c.turn_count - 1;
        c.token_count := c.token_count - t.token_count;
      END IF;
      stubs := stubs || field(stub(c, t, false));
      ids := ids || t.id;
    END IF;
  END LOOP;
  PERFORM unquote(c.cid, ids), unlearn(c.cid, ids);
  c.updated := tick(me, c);
  IF looked_at >= most THEN
    PERFORM save(log(me, c, 'reset', NULL, NULL, jsonb_build_object('through', last), sha256(stubs)));
    UPDATE conversations o SET expires_at = 2 WHERE o.tenant = c.tenant AND o.cid = c.cid;
    DELETE FROM jobs j WHERE j.tenant = c.tenant AND j.cid = c.cid;
    RETURN last;
  END IF;
  PERFORM emptied(c);
  PERFORM doom(c.tenant, c.cid, NULL);
  c := find_tip(log(me, c, 'reset', content_hash => sha256(stubs)));
  c.preview := NULL;
  PERFORM save(c);
  RETURN NULL;
END $$;

-- reset_slice: forget up to `most` turns of a conversation after a number, and return the number of the last one; NULL
-- when all are forgotten
CREATE OR REPLACE FUNCTION palaver_api.reset_slice(who jsonb, conversation text, after bigint, most bigint) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'write');
  c palaver.conversations;
BEGIN
  SELECT * INTO c FROM conversations o WHERE o.tenant = me.tenant AND o.id = conversation AND o.expires_at = 2
    AND o.gone IS NULL FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    c := open_thread(me, conversation);
    PERFORM require_owner(me, c.owner);
    c := drop_made_title(me, c);
  ELSIF me.sight <> 'tenant' THEN
    PERFORM set_config('palaver.cid', c.cid::text, true);
  END IF;
  PERFORM require_owner(me, c.owner);
  RETURN reset_some(me, c, after, greatest(most, 1));
END $$;

-- erase_due: continue or begin the deletion of conversations whose time to live ended by a time, up to `most_rows` turns
-- and requests. Returns those that are deleted, and one that is deleted in part or was reset
CREATE OR REPLACE FUNCTION palaver.erase_due(me palaver.asker, until bigint, most integer, most_rows bigint)
RETURNS TABLE (conversation text, done boolean)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
#variable_conflict use_column
DECLARE
  late text;
  c palaver.conversations;
  room bigint := greatest(most_rows, 1);
BEGIN
  FOR late IN SELECT o.id FROM conversations o WHERE o.tenant = me.tenant AND o.gone IS NULL AND o.expires_at <= until
      ORDER BY o.cid LIMIT most LOOP
    SELECT * INTO c FROM conversations o WHERE o.tenant = me.tenant AND o.id = late AND o.gone IS NULL
      AND o.expires_at <= until FOR NO KEY UPDATE;
    CONTINUE WHEN NOT FOUND;  -- another transaction deleted it
    IF c.expires_at = 2 THEN
      PERFORM reset_some(me, c, (SELECT coalesce(min(t.seq) - 1, c.next_seq) FROM turns t WHERE t.tenant = c.tenant
        AND t.cid = c.cid AND (t.status <> 'forgotten' OR t.salt IS NOT NULL)), room);
      RETURN QUERY SELECT late, false;
      RETURN;
    END IF;
    room := room - erase_some(c, room);
    IF room > 0 THEN
      PERFORM bury(me, c, CASE WHEN c.expires_at = 0 THEN 'forget' ELSE 'expire' END);
    ELSE
      PERFORM hide(c);
    END IF;
    RETURN QUERY SELECT late, room > 0;
    EXIT WHEN room <= 0;
  END LOOP;
END $$;

-- hide: hide a conversation whose time to live has ended, or that was forgotten, before all of it is deleted. A clock that
-- is set back does not show it again
CREATE OR REPLACE FUNCTION palaver.hide(c palaver.conversations) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  UPDATE conversations o SET key = NULL, ttl = NULL, expires_at = CASE WHEN c.expires_at = 0 THEN 0 ELSE 1 END
  WHERE o.tenant = c.tenant AND o.cid = c.cid;
  DELETE FROM jobs j WHERE j.tenant = c.tenant AND j.cid = c.cid;
END $$;

-- expire_slice: delete conversations whose time to live has ended, and continue deletions that were interrupted
CREATE OR REPLACE FUNCTION palaver_api.expire_slice(who jsonb, most integer, most_rows bigint)
RETURNS TABLE (conversation text, done boolean)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE me asker := enter(who, 'write');
BEGIN
  RETURN QUERY SELECT e.conversation, e.done FROM erase_due(me, me.now, most, most_rows) AS e;
END $$;

-- finish_slice: only continue deletions that were interrupted
CREATE OR REPLACE FUNCTION palaver_api.finish_slice(who jsonb, most integer, most_rows bigint)
RETURNS TABLE (conversation text, done boolean)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE me asker := enter(who, 'write');
BEGIN
  RETURN QUERY SELECT e.conversation, e.done FROM erase_due(me, 2, most, most_rows) AS e;
END $$;

-- bury_expired: delete a conversation whose time to live has ended, or hide it if it is large: then a sweep deletes it.
-- False when another transaction did
CREATE OR REPLACE FUNCTION palaver.bury_expired(me palaver.asker, conversation text) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE c palaver.conversations;
BEGIN
  SELECT * INTO c FROM conversations o WHERE o.tenant = me.tenant AND o.id = conversation AND o.gone IS NULL
    AND o.expires_at <= me.now FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  IF c.expires_at = 2 THEN
    PERFORM fail('PV018', conversation);
  END IF;
  IF EXISTS (SELECT 1 FROM turns t WHERE t.tenant = c.tenant AND t.cid = c.cid OFFSET 200) THEN
    PERFORM hide(c);
  ELSE
    PERFORM bury(me, c, CASE WHEN c.expires_at = 0 THEN 'forget' ELSE 'expire' END);
  END IF;
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

-- expire: delete conversations whose time to live has ended; in batches, so that writers can go in between
CREATE OR REPLACE FUNCTION palaver_api.expire(who jsonb, most integer) RETURNS SETOF text
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp
  SET plan_cache_mode = force_custom_plan AS $$
DECLARE
  me asker := enter(who, 'write');
  late text;
BEGIN
  FOR late IN SELECT c.id FROM conversations c WHERE c.tenant = me.tenant AND c.gone IS NULL AND c.expires_at <= me.now
      AND c.expires_at > 2 ORDER BY c.cid LIMIT most LOOP
    IF bury_expired(me, late) THEN
      RETURN NEXT late;
    END IF;
  END LOOP;
END $$;

-- ---- deleted files --------------------------------------------------------------------------------------------------

-- doomed_blobs: paths of files to delete
CREATE OR REPLACE FUNCTION palaver_api.doomed_blobs(who jsonb, most integer) RETURNS SETOF text
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE me asker := enter(who, 'write');
BEGIN
  RETURN QUERY SELECT b.path FROM doomed_blobs b WHERE b.tenant = me.tenant ORDER BY b.path LIMIT most;
END $$;

-- blobs_deleted: remove paths from that list, after their files were deleted
CREATE OR REPLACE FUNCTION palaver_api.blobs_deleted(who jsonb, paths text[]) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE me asker := enter(who, 'write');
BEGIN
  DELETE FROM doomed_blobs b WHERE b.tenant = me.tenant AND b.path = ANY (paths);
  RETURN true;
END $$;
