-- Appending, reading and switching turns.

-- stored_before: the turn that an earlier try of the same call stored
CREATE OR REPLACE FUNCTION palaver.stored_before(c palaver.conversations, draft palaver.turns) RETURNS palaver.turns
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE t palaver.turns;
BEGIN
  SELECT * INTO t FROM turns o WHERE o.tenant = c.tenant AND o.cid = c.cid
    AND o.idempotency_key IN (draft.idempotency_key, key_hash(c.id, draft.idempotency_key));
  IF t.status = 'forgotten' THEN
    PERFORM fail('PV004', t.id);
  END IF;
  RETURN t;
END $$;

CREATE OR REPLACE FUNCTION palaver.files_of(attachments text) RETURNS text[]
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
  SELECT array_agg(ARRAY[file ->> 'filename', file ->> 'sha256'] ORDER BY n)
  FROM jsonb_array_elements(attachments::jsonb) WITH ORDINALITY AS x (file, n)
$$;

-- same_request: whether a retry says what the first call said; counters, clocks and the ids of uploads may differ
CREATE OR REPLACE FUNCTION palaver.same_request(draft palaver.turns, t palaver.turns) RETURNS boolean
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
  SELECT ROW(draft.role, draft.actor, draft.is_parts, draft.content, draft.tool_calls, draft.tool_results,
      draft.metadata, files_of(draft.attachments))
    IS NOT DISTINCT FROM ROW(t.role, t.actor, t.is_parts, coalesce(t.content, ''), t.tool_calls, t.tool_results,
      t.metadata, files_of(t.attachments))
$$;

-- store_turn: one turn at a place, with its words; its event is the caller's to log. Answers it as stored
CREATE OR REPLACE FUNCTION palaver.store_turn(c palaver.conversations, draft palaver.turns, words jsonb)
RETURNS palaver.turns
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  t palaver.turns := draft;
  file text;
BEGIN
  t.tenant := c.tenant;
  t.cid := c.cid;
  t.tid := nextval('palaver.turn_numbers');
  t.seq := c.next_seq;
  t.id := stamp(t.id, t.seq);
  t.active := 1;
  t.superseded_by := NULL;
  t.created := coalesce(t.created, c.updated);
  IF t.role <> 'user' OR t.status <> 'complete' THEN
    t.preview := NULL;
  END IF;
  t.content_hash := CASE WHEN t.status = 'complete' THEN turn_hash(t) END;
  INSERT INTO turns SELECT t.*;
  IF t.attachments IS NOT NULL THEN
    FOR file IN SELECT f ->> 'id' FROM jsonb_array_elements(t.attachments::jsonb) AS f LOOP
      UPDATE attachments a SET tid = t.tid
      WHERE a.tenant = t.tenant AND a.cid = t.cid AND a.id = file AND a.tid IS NULL;
      IF NOT FOUND THEN
        PERFORM fail('PV005', file);
      END IF;
    END LOOP;
  END IF;
  IF t.status = 'complete' THEN
    PERFORM index_turn(t, words);
  END IF;
  RETURN t;
END $$;

-- added: the conversation with one more turn at its end or at another place
CREATE OR REPLACE FUNCTION palaver.added(c palaver.conversations, t palaver.turns) RETURNS palaver.conversations
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  c.next_seq := c.next_seq + 1;
  c.turn_count := c.turn_count + 1;
  c.token_count := c.token_count + t.token_count;
  IF t.position > c.tip_position THEN
    c.tip_position := t.position;
    c.tip_slot := coalesce(t.slot, t.id);
  END IF;
  c.preview := coalesce(c.preview, t.preview);
  RETURN c;
END $$;

-- append: turns that are stored together, or not at all. What the caller knows already comes back empty.
-- `drafts` are rows of `turns`, each with its `words`: a list of [how many, stems with their places] per passage
CREATE OR REPLACE FUNCTION palaver_api.append(who jsonb, conversation text, drafts jsonb,
  expected_seq bigint DEFAULT NULL, replaces text DEFAULT NULL, discard_after boolean DEFAULT false)
RETURNS SETOF palaver.turns
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'write');
  c palaver.conversations := open_thread(me, conversation);
  draft jsonb;
  wanted palaver.turns;
  t palaver.turns;
  expected boolean := false;
  count bigint := 0;
  terms bigint := 0;
BEGIN
  FOR draft IN SELECT value FROM jsonb_array_elements(drafts) LOOP
    wanted := jsonb_populate_record(NULL::palaver.turns, draft);
    IF wanted.idempotency_key IS NOT NULL THEN
      t := stored_before(c, wanted);
      IF t.id IS NOT NULL THEN
        IF NOT same_request(wanted, t) THEN
          PERFORM fail('PV012', t.id);
        END IF;
        RETURN NEXT t;
        CONTINUE;
      END IF;
    END IF;
    IF NOT expected AND expected_seq <> c.next_seq THEN
      PERFORM fail('PV011', expected_seq::text, c.next_seq::text);
    END IF;
    expected := true;
    wanted.status := 'complete';
    IF replaces IS NOT NULL THEN
      c := replace_turn(me, c, wanted, draft -> 'words', replaces, discard_after);
      SELECT * INTO t FROM turns o WHERE o.tenant = c.tenant AND o.cid = c.cid AND o.seq = c.next_seq - 1;
    ELSE
      wanted.position := c.tip_position + 1;
      wanted.parent := c.tip_slot;
      wanted.slot := NULL;
      c.updated := greatest(me.now, c.updated + 1);
      t := store_turn(c, wanted, draft -> 'words');
      c := added(c, t);
      c := log(me, c, 'append', t.actor, t.id, NULL, t.content_hash);
    END IF;
    SELECT count + count(*), terms + coalesce(sum((w ->> 0)::bigint), 0) INTO count, terms
    FROM jsonb_array_elements(draft -> 'words') AS w;
    t.content := NULL; t.tool_calls := NULL; t.tool_results := NULL; t.attachments := NULL; t.sources := NULL;
    t.metadata := NULL;
    RETURN NEXT t;
  END LOOP;
  IF expected THEN
    PERFORM save_appended(c, count, terms, me.now);
  END IF;
END $$;

-- save_appended: like `save`, with what the new words add, and the work that they make
CREATE OR REPLACE FUNCTION palaver.save_appended(c palaver.conversations, passages bigint, terms bigint, now bigint)
RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE due boolean;
BEGIN
  UPDATE conversations o SET next_seq = c.next_seq, next_n = c.next_n, tip_hash = c.tip_hash,
    tip_position = c.tip_position, tip_slot = c.tip_slot, updated = c.updated, minute = c.updated / 60000000,
    turn_count = c.turn_count, token_count = c.token_count, preview = c.preview, expires_at = c.updated + c.ttl,
    passage_count = o.passage_count + save_appended.passages, passage_terms = o.passage_terms + terms
  WHERE o.tenant = c.tenant AND o.cid = c.cid
  RETURNING o.turn_count - o.summarized_turns >= o.compact_turns
    OR o.token_count - o.summarized_tokens >= o.compact_tokens INTO due;
  INSERT INTO jobs (tenant, cid, kind, run_at, created) VALUES (c.tenant, c.cid, 'embed', now, now)
  ON CONFLICT DO NOTHING;
  IF due THEN
    PERFORM put_job(c.tenant, c.cid, 'compact', NULL, now);
  END IF;
END $$;

-- ---- replacing ------------------------------------------------------------------------------------------------------

-- replace_turn: a new version of a turn, at its place; with `discard_after` also instead of all that followed
CREATE OR REPLACE FUNCTION palaver.replace_turn(me palaver.asker, c palaver.conversations, draft palaver.turns,
  words jsonb, replaces text, discard_after boolean) RETURNS palaver.conversations
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  old palaver.turns := kept_turn(c, replaces);
  loser palaver.turns;
  new_id text := stamp(draft.id, c.next_seq);
  t palaver.turns;
BEGIN
  IF old.active = 0 AND (old.status <> 'aborted' OR old.superseded_by <> old.id) THEN
    PERFORM fail('PV013', old.id, old.superseded_by);
  END IF;
  PERFORM check_place(c, old, discard_after);
  IF discard_after THEN
    PERFORM cut(c, old.position);
  ELSE
    PERFORM changed(me, c, old);
  END IF;
  FOR loser IN SELECT * FROM turns o WHERE o.tenant = c.tenant AND o.cid = c.cid AND o.active = 1
      AND (o.tid = old.tid OR (discard_after AND o.position >= old.position)) ORDER BY o.position LOOP
    IF loser.status = 'pending' THEN
      c := abort_turn(me, c, loser);
    ELSE
      c := shelve(c, loser.seq, new_id);
    END IF;
  END LOOP;
  IF old.status IN ('aborted', 'pending') THEN
    UPDATE turns o SET superseded_by = new_id WHERE o.tenant = old.tenant AND o.tid = old.tid;
  END IF;
  draft.position := old.position;
  draft.parent := old.parent;
  draft.slot := CASE WHEN NOT discard_after THEN coalesce(old.slot, old.id) END;
  c.updated := tick(me, c);
  t := store_turn(c, draft, words);
  c := find_tip(added(c, t));
  IF discard_after THEN
    PERFORM prune(me, c, old.position);
  END IF;
  c := log(me, c, CASE t.status WHEN 'complete' THEN 'append' ELSE 'open' END, t.actor, t.id,
    jsonb_build_object('replaces', replaces) || CASE WHEN discard_after THEN '{"discard_after": true}' ELSE '{}' END::jsonb,
    turn_hash(t));
  RETURN refresh_preview(c);
END $$;

-- check_place: the place of an aborted turn may have been taken by somebody else meanwhile, or be in another branch
CREATE OR REPLACE FUNCTION palaver.check_place(c palaver.conversations, old palaver.turns, discard_after boolean)
RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  rival text;
  above text := old.parent;
  first palaver.turns;
BEGIN
  IF old.active = 1 THEN
    RETURN;
  END IF;
  WHILE above IS NOT NULL LOOP
    first := turn_of(c, above);  -- a slot has the id of its first version
    EXIT WHEN EXISTS (SELECT 1 FROM turns t WHERE t.tenant = c.tenant AND t.cid = c.cid AND t.active = 1
      AND t.position = first.position AND coalesce(t.slot, t.id) = above);
    SELECT t.id INTO rival FROM turns t
    WHERE t.tenant = c.tenant AND t.cid = c.cid AND t.active = 1 AND t.position = first.position;
    EXIT WHEN rival IS NOT NULL;
    above := first.parent;
  END LOOP;
  IF rival IS NULL AND NOT discard_after THEN
    SELECT t.id INTO rival FROM turns t
    WHERE t.tenant = c.tenant AND t.cid = c.cid AND t.active = 1 AND t.position = old.position;
  END IF;
  IF rival IS NOT NULL THEN
    PERFORM fail('PV013', old.id, rival);
  END IF;
END $$;

-- shelve: out of the active view, displaced by another turn
CREATE OR REPLACE FUNCTION palaver.shelve(c palaver.conversations, turn_seq bigint, by text)
RETURNS palaver.conversations
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE weight bigint;
BEGIN
  UPDATE turns t SET active = 0, superseded_by = by
  WHERE t.tenant = c.tenant AND t.cid = c.cid AND t.seq = turn_seq AND t.active = 1 RETURNING t.token_count INTO weight;
  IF FOUND THEN
    c.turn_count := c.turn_count - 1;
    c.token_count := c.token_count - weight;
  END IF;
  RETURN c;
END $$;

-- unshelve: back into the active view
CREATE OR REPLACE FUNCTION palaver.unshelve(c palaver.conversations, turn_seq bigint) RETURNS palaver.conversations
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE weight bigint;
BEGIN
  UPDATE turns t SET active = 1, superseded_by = NULL
  WHERE t.tenant = c.tenant AND t.cid = c.cid AND t.seq = turn_seq AND t.active = 0 RETURNING t.token_count INTO weight;
  IF FOUND THEN
    c.turn_count := c.turn_count + 1;
    c.token_count := c.token_count + weight;
  END IF;
  RETURN c;
END $$;

-- abort_turn: seal a pending turn as cut; its text stays for the record, out of the active view
CREATE OR REPLACE FUNCTION palaver.abort_turn(me palaver.asker, c palaver.conversations, t palaver.turns)
RETURNS palaver.conversations
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE hash bytea := turn_hash(t);
BEGIN
  DELETE FROM streams s WHERE s.tenant = t.tenant AND s.tid = t.tid;
  UPDATE turns o SET status = 'aborted', active = 0, content_hash = hash,
    superseded_by = CASE WHEN o.active = 1 THEN o.id ELSE o.superseded_by END
  WHERE o.tenant = t.tenant AND o.tid = t.tid;
  c.updated := tick(me, c);
  c := log(me, c, 'abort', t.actor, t.id, NULL, hash);
  IF t.active = 1 THEN
    c.turn_count := c.turn_count - 1;
    c.token_count := c.token_count - t.token_count;
    c := find_tip(c);
  END IF;
  RETURN c;
END $$;

-- ---- reading --------------------------------------------------------------------------------------------------------

-- cursor_of: where a turn stands: its position in the view, or its seq in the whole record
CREATE OR REPLACE FUNCTION palaver.cursor_of(c palaver.conversations, id text, whole boolean) RETURNS bigint
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE t palaver.turns := turn_of(c, id);
BEGIN
  RETURN CASE WHEN whole THEN t.seq ELSE t.position END;
END $$;

-- history: the latest turns before a cursor, or the next ones after one; in the order in which they are to be read
CREATE OR REPLACE FUNCTION palaver_api.history(who jsonb, conversation text, most integer, before text DEFAULT NULL,
  after text DEFAULT NULL, since bigint DEFAULT NULL, until bigint DEFAULT NULL, whole boolean DEFAULT false,
  actors text[] DEFAULT NULL, roles text[] DEFAULT NULL) RETURNS SETOF palaver.turns
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who);
  c palaver.conversations := find(me, conversation);
  last bigint := coalesce(CASE WHEN before IS NOT NULL THEN cursor_of(c, before, whole) END, 9223372036854775807);
  first bigint := coalesce(CASE WHEN after IS NOT NULL THEN cursor_of(c, after, whole) END, -1);
BEGIN
  IF whole AND after IS NOT NULL AND before IS NULL THEN
    RETURN QUERY SELECT t.* FROM turns t WHERE t.tenant = c.tenant AND t.cid = c.cid AND t.seq > first
      AND t.status <> 'forgotten' AND (since IS NULL OR t.created >= since) AND (until IS NULL OR t.created < until)
      AND (roles IS NULL OR t.role = ANY (roles)) AND (actors IS NULL OR t.actor = ANY (actors))
      ORDER BY t.seq LIMIT most;
  ELSIF whole THEN
    RETURN QUERY SELECT * FROM (SELECT t.* FROM turns t WHERE t.tenant = c.tenant AND t.cid = c.cid AND t.seq > first
      AND t.seq < last AND t.status <> 'forgotten' AND (since IS NULL OR t.created >= since)
      AND (until IS NULL OR t.created < until)
      AND (roles IS NULL OR t.role = ANY (roles)) AND (actors IS NULL OR t.actor = ANY (actors))
      ORDER BY t.seq DESC LIMIT most) AS latest ORDER BY latest.seq;
  ELSIF after IS NOT NULL AND before IS NULL THEN
    RETURN QUERY SELECT t.* FROM turns t WHERE t.tenant = c.tenant AND t.cid = c.cid AND t.active = 1
      AND t.position > first AND (since IS NULL OR t.created >= since) AND (until IS NULL OR t.created < until)
      AND (roles IS NULL OR t.role = ANY (roles)) AND (actors IS NULL OR t.actor = ANY (actors))
      ORDER BY t.position LIMIT most;
  ELSE
    RETURN QUERY SELECT * FROM (SELECT t.* FROM turns t WHERE t.tenant = c.tenant AND t.cid = c.cid AND t.active = 1
      AND t.position > first AND t.position < last AND (since IS NULL OR t.created >= since)
      AND (until IS NULL OR t.created < until)
      AND (roles IS NULL OR t.role = ANY (roles)) AND (actors IS NULL OR t.actor = ANY (actors))
      ORDER BY t.position DESC LIMIT most) AS latest ORDER BY latest.position;
  END IF;
END $$;

CREATE OR REPLACE FUNCTION palaver_api.turn(who jsonb, conversation text, turn text) RETURNS SETOF palaver.turns
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  RETURN NEXT kept_turn(find(enter(who), conversation), turn);
END $$;

-- ---- branches -------------------------------------------------------------------------------------------------------

-- branches: every version at the places that have one off the path, or at the place of one turn
CREATE OR REPLACE FUNCTION palaver_api.branches(who jsonb, conversation text, turn text DEFAULT NULL)
RETURNS SETOF palaver.turns
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who);
  c palaver.conversations := find(me, conversation);
  here palaver.turns;
BEGIN
  IF turn IS NOT NULL THEN
    here := turn_of(c, turn);
    RETURN QUERY SELECT t.* FROM turns t WHERE t.tenant = c.tenant AND t.cid = c.cid AND t.position = here.position
      AND t.active IN (0, 1) AND t.parent IS NOT DISTINCT FROM here.parent AND t.status IN ('complete', 'pending')
      ORDER BY t.seq;
    RETURN;
  END IF;
  RETURN QUERY SELECT t.* FROM turns t WHERE t.tenant = c.tenant AND t.cid = c.cid
    AND t.status IN ('complete', 'pending') AND (t.position, coalesce(t.parent, '')) IN (
      SELECT o.position, coalesce(o.parent, '') FROM turns o WHERE o.tenant = c.tenant AND o.cid = c.cid
        AND o.active = 0 AND o.status IN ('complete', 'pending'))
    ORDER BY t.position, t.parent NULLS FIRST, t.seq;
END $$;

-- version_of: the version of a slot that is active, or was last; `place` is where the slot stands
CREATE OR REPLACE FUNCTION palaver.version_of(c palaver.conversations, place bigint, wanted_slot text)
RETURNS palaver.turns
LANGUAGE sql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
  WITH versions AS (
    SELECT t.* FROM turns t WHERE t.tenant = c.tenant AND t.cid = c.cid AND t.position = place AND t.active IN (0, 1)
      AND coalesce(t.slot, t.id) = wanted_slot AND (t.active = 1 OR t.status IN ('complete', 'pending'))
  ) SELECT v.*::palaver.turns FROM versions v
    ORDER BY v.active DESC, coalesce(v.superseded_by IN (SELECT id FROM versions), false), v.seq DESC LIMIT 1
$$;

-- next_slot: below a slot, the one that is on the path or was last
CREATE OR REPLACE FUNCTION palaver.next_slot(c palaver.conversations, place bigint, above text) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
  WITH siblings AS (
    SELECT t.*, t.active = 1 OR t.status IN ('complete', 'pending') AS usable FROM turns t
    WHERE t.tenant = c.tenant AND t.cid = c.cid AND t.position = place AND t.active IN (0, 1) AND t.parent = above
  ) SELECT coalesce(s.slot, s.id) FROM siblings s
    ORDER BY s.usable DESC, s.active DESC,
      s.usable AND coalesce(s.superseded_by IN (SELECT id FROM siblings), false), s.seq DESC LIMIT 1
$$;

-- path_through: the turns of the path that leads through `target`, from where it leaves the active one (see tree.py).
-- A slot of which nothing is left is passed through: it still leads to what is above it
CREATE OR REPLACE FUNCTION palaver.path_through(c palaver.conversations, target palaver.turns)
RETURNS TABLE (divergence bigint, path bigint[])
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  at_slot text := target.parent;
  first palaver.turns;
  version palaver.turns;
  place bigint;
BEGIN
  divergence := target.position;
  path := ARRAY[target.seq];
  WHILE at_slot IS NOT NULL LOOP
    first := turn_of(c, at_slot);  -- a slot has the id of its first version
    EXIT WHEN EXISTS (SELECT 1 FROM turns t WHERE t.tenant = c.tenant AND t.cid = c.cid AND t.active = 1
        AND t.position = first.position AND coalesce(t.slot, t.id) = at_slot)
      OR EXISTS (SELECT 1 FROM turns t WHERE t.tenant = c.tenant AND t.cid = c.cid AND t.active = 1
        AND t.position = first.position + 1 AND t.parent = at_slot);
    version := version_of(c, first.position, at_slot);
    IF version.id IS NOT NULL THEN
      path := version.seq || path;
    END IF;
    divergence := first.position;
    at_slot := first.parent;
  END LOOP;
  at_slot := coalesce(target.slot, target.id);
  place := target.position;
  LOOP
    place := place + 1;
    at_slot := next_slot(c, place, at_slot);
    EXIT WHEN at_slot IS NULL;
    version := version_of(c, place, at_slot);
    IF version.id IS NOT NULL THEN
      path := path || version.seq;
    END IF;
  END LOOP;
  RETURN NEXT;
END $$;

-- switch: make the active path lead through a turn
CREATE OR REPLACE FUNCTION palaver_api.switch(who jsonb, conversation text, turn text) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'write');
  c palaver.conversations := open_thread(me, conversation);
  target palaver.turns := kept_turn(c, turn);
  way record;
BEGIN
  IF target.active = 1 THEN
    RETURN false;
  ELSIF target.status = 'aborted' THEN
    PERFORM fail('PV013', turn, NULL);
  END IF;
  SELECT * INTO way FROM path_through(c, target);
  PERFORM cut(c, way.divergence);
  -- Siblings off the path that no sibling has displaced so far: those that come onto it do so now.
  UPDATE turns r SET superseded_by = n.id FROM turns n
  WHERE n.tenant = c.tenant AND n.cid = c.cid AND n.seq = ANY (way.path) AND n.active = 0
    AND r.tenant = c.tenant AND r.cid = c.cid AND r.position = n.position AND r.parent IS NOT DISTINCT FROM n.parent
    AND r.active = 0 AND r.seq <> n.seq AND r.status IN ('complete', 'pending')
    AND NOT EXISTS (SELECT 1 FROM turns s WHERE s.tenant = c.tenant AND s.cid = c.cid AND s.position = r.position
      AND s.active IN (0, 1) AND s.parent IS NOT DISTINCT FROM r.parent AND s.id = r.superseded_by);
  WITH off AS (
    UPDATE turns t SET active = 0, superseded_by = (SELECT f.id FROM turns f
      WHERE f.tenant = c.tenant AND f.cid = c.cid AND f.seq = way.path[1])
    WHERE t.tenant = c.tenant AND t.cid = c.cid AND t.active = 1 AND t.position >= way.divergence
      AND t.seq <> ALL (way.path) RETURNING t.token_count
  ) SELECT c.turn_count - count(*), c.token_count - coalesce(sum(off.token_count), 0)
    INTO c.turn_count, c.token_count FROM off;
  WITH back AS (
    UPDATE turns t SET active = 1, superseded_by = NULL
    WHERE t.tenant = c.tenant AND t.cid = c.cid AND t.active = 0 AND t.seq = ANY (way.path) RETURNING t.token_count
  ) SELECT c.turn_count + count(*), c.token_count + coalesce(sum(back.token_count), 0)
    INTO c.turn_count, c.token_count FROM back;
  c := find_tip(c);
  PERFORM prune(me, c, way.divergence);
  c.updated := tick(me, c);
  c := refresh_preview(log(me, c, 'switch', NULL, turn));
  PERFORM save(c);
  RETURN true;
END $$;
