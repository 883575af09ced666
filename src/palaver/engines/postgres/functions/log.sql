-- The log of a conversation, and the signatures (seals) over its last events.

-- events: the log of a conversation, filtered; also of a deleted one
CREATE OR REPLACE FUNCTION palaver_api.events(who jsonb, conversation text, after bigint, most integer,
  kinds text[] DEFAULT NULL, actors text[] DEFAULT NULL, turn text DEFAULT NULL, since bigint DEFAULT NULL,
  until bigint DEFAULT NULL) RETURNS SETOF palaver.events
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'read');
  number bigint := (SELECT c.cid FROM conversations c WHERE c.tenant = me.tenant AND c.id = conversation);
BEGIN
  IF number IS NULL THEN
    PERFORM fail('PV001', conversation);
  END IF;
  RETURN QUERY SELECT e.* FROM events e WHERE e.tenant = me.tenant AND e.cid = number AND e.n > after
    AND (events.turn IS NULL OR e.turn = events.turn)
    AND (since IS NULL OR e.at >= since) AND (until IS NULL OR e.at < until)
    AND (kinds IS NULL OR e.kind = ANY (kinds)) AND (actors IS NULL OR e.actor = ANY (actors))
    ORDER BY e.n LIMIT most;
END $$;

-- announce: log an event for readers that follow the log. Only kinds in ANNOUNCED (ports/engine.py); every other
-- event is logged by the change that it is about
CREATE OR REPLACE FUNCTION palaver_api.announce(who jsonb, conversation text, kind text, turn text DEFAULT NULL)
RETURNS TABLE (n bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'write');
  c palaver.conversations;
BEGIN
  IF kind IS DISTINCT FROM 'stop' THEN
    PERFORM fail('PV031', 'kind', 'must be one of stop');
  END IF;
  c := open_thread(me, conversation);
  IF turn IS NOT NULL THEN
    PERFORM kept_turn(c, turn);
  END IF;
  c.updated := tick(me, c);
  c := log(me, c, kind, turn => announce.turn);
  PERFORM save(c);
  n := c.next_n - 1;
  RETURN NEXT;
END $$;

-- archive_log: delete the events through a number, and the requests before a time; the caller has written them to a file.
-- An event keeps the hash of the last deleted one, so that `verify` can continue from there. It is logged at the time of the
-- last event before: archiving does not make a conversation a recent one
CREATE OR REPLACE FUNCTION palaver_api.archive_log(who jsonb, conversation text, through bigint, tip bytea,
  requests_before bigint) RETURNS TABLE (archived_events bigint, archived_requests bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'write');
  c palaver.conversations;
  gone text[];
  rows jsonb;
BEGIN
  PERFORM enter(who, 'admin');  -- both rights
  c := open_thread(me, conversation);
  IF NOT EXISTS (SELECT 1 FROM events e WHERE e.tenant = c.tenant AND e.cid = c.cid AND e.n = through AND e.hash = tip) THEN
    PERFORM fail('PV031', 'through', 'is not the number of the event with this hash');
  END IF;
  gone := ARRAY(SELECT k || r.id FROM requests r, unnest(ARRAY['request/', 'body/']) AS k
    WHERE r.tenant = c.tenant AND r.cid = c.cid AND r.at < requests_before);
  DELETE FROM request_quotes q WHERE q.tenant = c.tenant AND q.cid = c.cid AND q.rid IN (
    SELECT r.rid FROM requests r WHERE r.tenant = c.tenant AND r.cid = c.cid AND r.at < requests_before);
  DELETE FROM requests r WHERE r.tenant = c.tenant AND r.cid = c.cid AND r.at < requests_before;
  GET DIAGNOSTICS archived_requests = ROW_COUNT;
  rows := prove(c.tenant, c.cid, c.next_n, gone);
  IF rows <> '{}' THEN
    c := log(me, c, 'prove', payload => jsonb_build_object('rows', rows));
  END IF;
  c := carry_proofs(me, c, through);
  rows := jsonb_build_object('through', through, 'hash', encode(tip, 'hex'));
  IF covered(c.tenant, c.cid) THEN
    rows := rows || '{"proof": 1}';
    INSERT INTO proofs (tenant, cid, key, n, salt) VALUES (c.tenant, c.cid, '', c.next_n, '')
    ON CONFLICT ON CONSTRAINT proofs_pkey DO UPDATE SET n = excluded.n;
  END IF;
  DELETE FROM events e WHERE e.tenant = c.tenant AND e.cid = c.cid AND e.n <= through;
  GET DIAGNOSTICS archived_events = ROW_COUNT;
  c.updated := c.updated + 1;
  c := log(me, c, 'archive', payload => rows);
  PERFORM save(c);
  RETURN NEXT;
END $$;

-- ---- seals ----------------------------------------------------------------------------------------------------------

-- tips: the last event of every log by conversation, deleted ones included
CREATE OR REPLACE FUNCTION palaver_api.tips(who jsonb, after text, most integer)
RETURNS TABLE (conversation text, n bigint, hash bytea)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE me asker := enter(who, 'read');
BEGIN
  RETURN QUERY SELECT c.id, c.next_n - 1, c.tip_hash FROM conversations c
    WHERE c.tenant = me.tenant AND c.id > after ORDER BY c.id LIMIT most;
END $$;

-- unsealed: the last events that no seal covers yet
CREATE OR REPLACE FUNCTION palaver_api.unsealed(who jsonb, most integer)
RETURNS TABLE (conversation text, n bigint, hash bytea)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE me asker := enter(who, 'admin');
BEGIN
  RETURN QUERY SELECT c.id, c.next_n - 1, c.tip_hash FROM conversations c
    WHERE c.tenant = me.tenant AND NOT EXISTS (
      SELECT 1 FROM seals s WHERE s.tenant = c.tenant AND s.cid = c.cid AND s.n = c.next_n - 1)
    LIMIT most;
END $$;

-- put_seals: store signatures of log ends. `seals` is a list of rows of `seals`, with the conversation's id in place
-- of its number
CREATE OR REPLACE FUNCTION palaver_api.put_seals(who jsonb, seals jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE me asker := enter(who, 'admin');
BEGIN
  INSERT INTO seals (tenant, cid, n, tip, seal, at)
  SELECT me.tenant, c.cid, (s ->> 'n')::bigint, (s ->> 'tip')::bytea, (s ->> 'seal')::bytea, (s ->> 'at')::bigint
  FROM jsonb_array_elements(put_seals.seals) AS s
  JOIN conversations c ON c.tenant = me.tenant AND c.id = s ->> 'conversation'
  ON CONFLICT DO NOTHING;
END $$;

-- seals: the signatures of one log
CREATE OR REPLACE FUNCTION palaver_api.seals(who jsonb, conversation text)
RETURNS TABLE (n bigint, tip bytea, seal bytea, at bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'read');
  number bigint := (SELECT c.cid FROM conversations c WHERE c.tenant = me.tenant AND c.id = conversation);
BEGIN
  RETURN QUERY SELECT s.n, s.tip, s.seal, s.at FROM seals s
    WHERE s.tenant = me.tenant AND s.cid = number ORDER BY s.n;
END $$;
