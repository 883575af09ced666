-- Turns that are stored piece by piece while they are written.

-- stream_open: open a pending turn, or return the one that an earlier attempt opened
CREATE OR REPLACE FUNCTION palaver_api.stream_open(who jsonb, conversation text, draft jsonb, lease bigint,
  expected_seq bigint DEFAULT NULL, replaces text DEFAULT NULL, discard_after boolean DEFAULT false)
RETURNS SETOF palaver.turns
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'write');
  c palaver.conversations := open_thread(me, conversation);
  wanted palaver.turns := jsonb_populate_record(NULL::palaver.turns, draft);
  t palaver.turns;
BEGIN
  PERFORM check_draft(me, wanted), check_lease(lease);
  IF wanted.content <> '' THEN
    PERFORM fail('PV031', 'content', 'of a stream begins empty: it is sent in pieces');
  ELSIF is_watched(c.settings) THEN
    PERFORM check_speaker(c.tenant, c.cid, wanted.actor), check_redacted(wanted.content, wanted.is_parts,
      wanted.tool_calls, wanted.tool_results, wanted.sources, wanted.metadata, wanted.attachments,
      open_key(wanted.idempotency_key, draft));
  END IF;
  IF wanted.idempotency_key IS NOT NULL THEN
    t := stored_before(c.tenant, c.cid, c.id, wanted);
    IF t.id IS NOT NULL THEN
      RETURN NEXT t;
      RETURN;
    END IF;
    wanted.idempotency_key := stored_key(c.id, wanted.idempotency_key, draft);
  END IF;
  IF expected_seq <> c.next_seq THEN
    PERFORM fail('PV011', expected_seq::text, c.next_seq::text);
  END IF;
  wanted.status := 'pending';
  IF replaces IS NOT NULL THEN
    c := replace_turn(me, c, wanted, NULL, replaces, discard_after);
    SELECT * INTO t FROM turns o WHERE o.tenant = c.tenant AND o.cid = c.cid AND o.seq = c.next_seq - 1;
  ELSE
    wanted.position := c.tip_position + 1;
    wanted.parent := c.tip_slot;
    wanted.slot := NULL;
    c.updated := tick(me, c);
    t := store_turn(c, wanted, NULL);
    c := log(me, added(c, t), 'open', t.actor, t.id, NULL, turn_hash(t));
  END IF;
  INSERT INTO streams (tenant, tid, cid, lease_until) VALUES (t.tenant, t.tid, t.cid, me.now + lease);
  PERFORM save(c);
  RETURN NEXT t;
END $$;

-- require_pending: fail when a stream has ended
CREATE OR REPLACE FUNCTION palaver.require_pending(t palaver.turns) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  IF t.status <> 'pending' THEN
    PERFORM fail('PV014', t.id, t.status);
  END IF;
END $$;

-- extend: append piece `n` of a stream and renew its lease. A piece that was stored before changes nothing. Returns
-- the conversation, with one more event if there was text; the number of the next piece is in `streams`
CREATE OR REPLACE FUNCTION palaver.extend(me palaver.asker, c palaver.conversations, t palaver.turns, n bigint,
  piece text, alive_until bigint) RETURNS palaver.conversations
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  s palaver.streams;
  size bigint := octet_length(coalesce(t.content, '')) + octet_length(piece);
BEGIN
  SELECT * INTO STRICT s FROM streams o WHERE o.tenant = t.tenant AND o.tid = t.tid;
  IF n > s.next_chunk THEN
    PERFORM fail('PV031', 'n', format('chunk %s has not arrived yet, so chunk %s cannot be stored', s.next_chunk, n));
  ELSIF n < s.next_chunk THEN
    RETURN c;
  ELSIF size > 5000000 THEN
    PERFORM fail('PV032', 'content', size::text, '5000000', 'bytes');
  END IF;
  IF is_watched(c.settings) THEN
    PERFORM check_piece(t.content, piece);
  END IF;
  UPDATE streams o SET next_chunk = s.next_chunk + 1, length = s.length + char_length(piece),
    lease_until = greatest(o.lease_until, alive_until)
  WHERE o.tenant = t.tenant AND o.tid = t.tid;
  IF piece = '' THEN
    RETURN c;
  END IF;
  UPDATE turns o SET content = o.content || piece WHERE o.tenant = t.tenant AND o.tid = t.tid;
  c.updated := tick(me, c);
  RETURN log(me, c, 'chunk', t.actor, t.id,
    jsonb_build_object('from', s.length, 'to', s.length + char_length(piece)), chunk_hash(t.salt, piece));
END $$;

-- stream_chunk: append one piece; returns the number of the next one
CREATE OR REPLACE FUNCTION palaver_api.stream_chunk(who jsonb, conversation text, turn text, n bigint, piece text,
  lease bigint) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'write');
  c palaver.conversations := open_thread(me, conversation);
  t palaver.turns := kept_turn(c, turn);
BEGIN
  PERFORM require_pending(t), check_lease(lease);
  PERFORM save(extend(me, c, t, n, piece, me.now + lease));
  RETURN (SELECT s.next_chunk FROM streams s WHERE s.tenant = t.tenant AND s.tid = t.tid);
END $$;

CREATE OR REPLACE FUNCTION palaver_api.stream_renew(who jsonb, conversation text, turn text, lease bigint) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'write');
  c palaver.conversations := open_thread(me, conversation);
  t palaver.turns := kept_turn(c, turn);
BEGIN
  PERFORM require_pending(t), check_lease(lease);
  UPDATE streams s SET lease_until = greatest(s.lease_until, me.now + lease)
  WHERE s.tenant = t.tenant AND s.tid = t.tid;
  RETURN true;
END $$;

-- stream_commit: complete a pending turn. The caller must know its whole text. `seal` holds the other fields
CREATE OR REPLACE FUNCTION palaver_api.stream_commit(who jsonb, conversation text, turn text, seal jsonb, words jsonb,
  tail_n bigint DEFAULT NULL, tail text DEFAULT NULL) RETURNS SETOF palaver.turns
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'write');
  c palaver.conversations := open_thread(me, conversation);
  t palaver.turns := kept_turn(c, turn);
  done palaver.turns := jsonb_populate_record(NULL::palaver.turns, seal);
  passages bigint;
  terms bigint := check_words(words);
BEGIN
  IF t.status = 'complete' AND t.content = done.content THEN
    RETURN NEXT t;  -- an earlier attempt of this commit succeeded, and its response was lost
    RETURN;
  END IF;
  PERFORM require_pending(t);
  IF tail_n IS NOT NULL THEN
    c := extend(me, c, t, tail_n, tail, me.now);
    t := kept_turn(c, turn);
  END IF;
  IF t.content IS DISTINCT FROM done.content THEN
    PERFORM fail('PV015', turn);
  END IF;
  IF t.active = 1 THEN
    c.token_count := c.token_count + done.token_count - t.token_count;
  END IF;
  t.status := 'complete';
  t.tool_calls := done.tool_calls;
  t.sources := done.sources;
  t.prompt_tokens := done.prompt_tokens;
  t.completion_tokens := done.completion_tokens;
  t.token_count := done.token_count;
  t.model := coalesce(nullif(done.model, ''), t.model);
  t.adapter := coalesce(nullif(done.adapter, ''), t.adapter);
  t.finish_reason := done.finish_reason;
  t.metadata := coalesce(nullif(done.metadata, ''), t.metadata);
  t.preview := CASE t.role WHEN 'user' THEN done.preview END;
  PERFORM check_draft(me, t);
  IF is_watched(c.settings) THEN
    PERFORM check_redacted(t.content, t.is_parts, t.tool_calls, t.tool_results, t.sources, t.metadata, NULL, NULL);
  END IF;
  t.content_hash := turn_hash(t);
  UPDATE turns o SET status = t.status, tool_calls = t.tool_calls, sources = t.sources, prompt_tokens = t.prompt_tokens,
    completion_tokens = t.completion_tokens, token_count = t.token_count, model = t.model, adapter = t.adapter,
    finish_reason = t.finish_reason, metadata = t.metadata, preview = t.preview, content_hash = t.content_hash
  WHERE o.tenant = t.tenant AND o.tid = t.tid;
  IF t.metadata IS NOT NULL THEN
    PERFORM index_metadata(t.tenant, t.cid, t.tid, t.metadata);
  END IF;
  PERFORM index_turn(t, words);
  passages := jsonb_array_length(words);
  DELETE FROM streams s WHERE s.tenant = t.tenant AND s.tid = t.tid;
  c.updated := tick(me, c);
  c := log(me, c, 'commit', t.actor, t.id, NULL, t.content_hash);
  IF t.active = 1 AND t.role = 'user' THEN
    c := refresh_preview(c);
  END IF;
  PERFORM save_appended(c, passages, terms, me.now);
  RETURN NEXT t;
END $$;

-- stream_abort: abort a pending turn
CREATE OR REPLACE FUNCTION palaver_api.stream_abort(who jsonb, conversation text, turn text, tail_n bigint DEFAULT NULL,
  tail text DEFAULT NULL) RETURNS SETOF palaver.turns
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'write');
  c palaver.conversations := open_thread(me, conversation);
  t palaver.turns := kept_turn(c, turn);
BEGIN
  IF t.status <> 'aborted' THEN
    PERFORM require_pending(t);
    IF tail_n IS NOT NULL THEN
      c := extend(me, c, t, tail_n, tail, me.now);
      t := kept_turn(c, turn);
    END IF;
    PERFORM save(abort_turn(me, c, t));
  END IF;
  RETURN NEXT turn_of(c, turn);
END $$;

-- seal_expired: abort the streams of a tenant whose lease has ended
CREATE OR REPLACE FUNCTION palaver_api.seal_expired(who jsonb) RETURNS SETOF text
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'write');
  late record;
  c palaver.conversations;
  t palaver.turns;
BEGIN
  FOR late IN SELECT s.tid, s.cid FROM streams s
      JOIN conversations o ON o.tenant = s.tenant AND o.cid = s.cid AND o.gone IS NULL
        AND (o.expires_at IS NULL OR o.expires_at > me.now)
      WHERE s.tenant = me.tenant AND s.lease_until <= me.now ORDER BY s.cid, s.tid LIMIT 100 LOOP
    SELECT * INTO c FROM conversations o WHERE o.tenant = me.tenant AND o.cid = late.cid AND o.gone IS NULL
      AND (o.expires_at IS NULL OR o.expires_at > me.now) FOR NO KEY UPDATE;
    CONTINUE WHEN NOT FOUND;  -- its time to live has ended: `expire` deletes the stream with it
    PERFORM 1 FROM streams s WHERE s.tenant = me.tenant AND s.tid = late.tid AND s.lease_until <= me.now;
    CONTINUE WHEN NOT FOUND;  -- its writer renewed the lease while this waited for the lock
    SELECT * INTO t FROM turns o WHERE o.tenant = me.tenant AND o.tid = late.tid;
    PERFORM save(abort_turn(me, c, t));
    RETURN NEXT c.id;
  END LOOP;
END $$;

-- waiting: the tenants with open streams or files to delete, and when the next lease ends. Returns no content: it is
-- for the application's worker
CREATE OR REPLACE FUNCTION palaver_api.waiting(who jsonb) RETURNS TABLE (tenant text, lease_end bigint, files boolean)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  PERFORM enter_worker(who);
  RETURN QUERY SELECT coalesce(s.tenant, d.tenant), s.lease_end, d.tenant IS NOT NULL
  FROM (SELECT o.tenant, min(o.lease_until) AS lease_end FROM streams o GROUP BY o.tenant) s
  FULL JOIN (SELECT DISTINCT o.tenant FROM doomed_blobs o) d ON d.tenant = s.tenant;
END $$;

-- waiting_here: the same for one tenant
CREATE OR REPLACE FUNCTION palaver_api.waiting_here(who jsonb) RETURNS TABLE (tenant text, lease_end bigint, files boolean)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE me asker := enter(who, 'read');
BEGIN
  RETURN QUERY SELECT me.tenant, (SELECT min(s.lease_until) FROM streams s WHERE s.tenant = me.tenant),
    EXISTS (SELECT 1 FROM doomed_blobs d WHERE d.tenant = me.tenant);
END $$;
