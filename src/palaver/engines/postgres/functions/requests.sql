-- Requests to models. A body quotes turns, and is deleted when one of them is forgotten.

-- was_cut: whether something was deleted since the context was read, here or where the body quotes from. The quoted
-- turns stay locked until the end of the transaction: a later forget then finds the body that quotes them
CREATE OR REPLACE FUNCTION palaver.was_cut(c palaver.conversations, since bigint, quoted jsonb) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE one record;
BEGIN
  FOR one IN SELECT e.kind, e.at FROM events e WHERE e.tenant = c.tenant AND e.cid = c.cid ORDER BY e.n DESC LOOP
    EXIT WHEN one.at < since;
    IF one.kind IN ('forget', 'reset', 'retire') THEN
      RETURN true;
    END IF;
  END LOOP;
  FOR one IN SELECT q ->> 0 AS conversation, q ->> 1 AS turn FROM jsonb_array_elements(quoted) AS q ORDER BY 1, 2 LOOP
    PERFORM 1 FROM turns t JOIN conversations o ON o.tenant = t.tenant AND o.cid = t.cid
    WHERE o.tenant = c.tenant AND o.id = one.conversation AND o.gone IS NULL AND t.seq = stamped_seq(one.turn)
      AND t.id = one.turn AND t.status <> 'forgotten' FOR SHARE OF t;
    IF NOT FOUND THEN
      RETURN true;
    END IF;
  END LOOP;
  RETURN false;
END $$;

-- put_request: store a request; the second time, add its response. A body is not stored when a turn in it was
-- forgotten since. `request` is a row of `requests` with `quoted`, a list of [conversation, turn]; only the newest
-- `bodies` bodies are kept
CREATE OR REPLACE FUNCTION palaver_api.put_request(who jsonb, conversation text, request jsonb,
  bodies integer DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'write');
  c palaver.conversations := open_thread(me, conversation);
  r palaver.requests := jsonb_populate_record(NULL::palaver.requests, request);
  quoted jsonb := coalesce(request -> 'quoted', '[]');
  fitting boolean;
BEGIN
  PERFORM check_time('at', r.at), check_text('id', r.id, 512), check_text('turn', r.turn, 512),
    check_text('purpose', r.purpose, 512), check_text('model', r.model, 512), check_text('adapter', r.adapter, 512),
    check_json('body', r.body, 'object', 100000000), check_json('explanation', r.explanation, 'object', 100000000),
    check_json('response', r.response, 'object', 100000000);
  fitting := fits(c.tenant, c.cid, 'request/' || r.id);
  UPDATE requests o SET turn = coalesce(r.turn, o.turn), response = r.response
  WHERE o.tenant = c.tenant AND o.cid = c.cid AND o.id = r.id;
  IF FOUND THEN
    IF fitting THEN
      PERFORM touch(c.cid, ARRAY['request/' || r.id]), save(c);
    END IF;
    RETURN;
  END IF;
  IF r.body IS NOT NULL AND was_cut(c, r.at, quoted) THEN
    r.body := NULL;
  END IF;
  r.rid := new_number();
  INSERT INTO requests (tenant, rid, cid, id, turn, purpose, at, model, adapter, next_seq, body, explanation, response)
  VALUES (c.tenant, r.rid, c.cid, r.id, r.turn, r.purpose, r.at, r.model, r.adapter, c.next_seq, r.body,
    r.explanation, r.response);
  PERFORM touch(c.cid, ARRAY['request/' || r.id, 'body/' || r.id]), save(c);
  IF r.body IS NULL THEN
    RETURN;
  END IF;
  INSERT INTO request_quotes (tenant, quoted_cid, turn, rid, cid)
  SELECT c.tenant, o.cid, q ->> 1, r.rid, c.cid FROM jsonb_array_elements(quoted) AS q
  JOIN conversations o ON o.tenant = c.tenant AND o.id = q ->> 0 ON CONFLICT DO NOTHING;
  IF bodies IS NOT NULL THEN
    SELECT k.rid INTO r.rid FROM requests k WHERE k.tenant = c.tenant AND k.cid = c.cid AND k.body IS NOT NULL
    ORDER BY k.rid DESC LIMIT 1 OFFSET bodies;
    PERFORM drop_body_proofs(c.tenant, ARRAY(SELECT o.rid FROM requests o
      WHERE o.tenant = c.tenant AND o.cid = c.cid AND o.body IS NOT NULL AND o.rid <= r.rid));
    UPDATE requests o SET body = NULL
    WHERE o.tenant = c.tenant AND o.cid = c.cid AND o.body IS NOT NULL AND o.rid <= r.rid;
  END IF;
END $$;

-- requests: the latest requests, of one turn or before another request, newest first. For the owner or an admin: a
-- prompt may quote conversations that a participant cannot see
CREATE OR REPLACE FUNCTION palaver_api.requests(who jsonb, conversation text, most integer, turn text DEFAULT NULL,
  before text DEFAULT NULL) RETURNS SETOF palaver.requests
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'read');
  c palaver.conversations := find(me, conversation);
  until bigint := (SELECT r.rid FROM requests r WHERE r.tenant = c.tenant AND r.cid = c.cid AND r.id = before);
BEGIN
  PERFORM require_owner(me, c.owner);
  RETURN QUERY SELECT r.* FROM requests r WHERE r.tenant = c.tenant AND r.cid = c.cid
    AND (requests.turn IS NULL OR r.turn = requests.turn) AND (before IS NULL OR r.rid < until)
    ORDER BY r.rid DESC LIMIT most;
END $$;

-- count_calls: how many calls of models background work has made since a time, and whether the conversation is in use:
-- whether it has a request that is not an extraction. Reads only the requests since then
CREATE OR REPLACE FUNCTION palaver_api.count_calls(who jsonb, conversation text, since bigint)
RETURNS TABLE (calls bigint, in_use boolean)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'read');
  c palaver.conversations := find(me, conversation);
  one record;
BEGIN
  calls := 0;
  in_use := EXISTS (SELECT 1 FROM requests r WHERE r.tenant = c.tenant AND r.cid = c.cid AND r.purpose <> 'extract');
  FOR one IN SELECT r.purpose, r.at FROM requests r WHERE r.tenant = c.tenant AND r.cid = c.cid
    ORDER BY r.rid DESC LOOP
    EXIT WHEN one.at < since;
    calls := calls + (one.purpose <> 'generate')::integer;
  END LOOP;
  RETURN NEXT;
END $$;

-- ---- deleting -------------------------------------------------------------------------------------------------------

-- drop_body_proofs: delete the salts of the hashes of bodies that are deleted
CREATE OR REPLACE FUNCTION palaver.drop_body_proofs(tenant text, rids bigint[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  DELETE FROM proofs p USING requests r WHERE p.tenant = drop_body_proofs.tenant AND r.tenant = drop_body_proofs.tenant
    AND r.rid = ANY (rids) AND p.cid = r.cid AND p.key = 'body/' || r.id;
END $$;

-- unquote: delete the bodies that quote forgotten turns of a conversation: these turns, or any. Runs as the role
-- that may do only this, because the bodies may belong to conversations that the caller cannot see. It is safe to
-- call by anyone: it works in the caller's tenant, returns nothing, and spares every body whose turns still exist
CREATE OR REPLACE FUNCTION palaver.unquote(quoted_cid bigint, gone text[] DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  here text := (whoami()).tenant;
  emptied bigint[];
BEGIN
  WITH dropped AS (
    DELETE FROM request_quotes q WHERE q.tenant = here AND q.quoted_cid = unquote.quoted_cid
      AND (gone IS NULL OR q.turn = ANY (gone))
      AND NOT EXISTS (SELECT 1 FROM turns t WHERE t.tenant = here AND t.cid = q.quoted_cid
        AND t.seq = stamped_seq(q.turn) AND t.id = q.turn AND t.status <> 'forgotten')
    RETURNING q.rid
  ) SELECT array_agg(DISTINCT d.rid) INTO emptied FROM dropped d;
  IF emptied IS NOT NULL THEN  -- locked in order, so that transactions cannot deadlock
    PERFORM 1 FROM requests r WHERE r.tenant = here AND r.rid = ANY (emptied) ORDER BY r.rid FOR NO KEY UPDATE;
    PERFORM drop_body_proofs(here, emptied);
    UPDATE requests r SET body = NULL WHERE r.tenant = here AND r.rid = ANY (emptied);
  END IF;
END $$;
GRANT CREATE ON SCHEMA palaver TO palaver_eraser;
ALTER FUNCTION palaver.unquote(bigint, text[]) OWNER TO palaver_eraser;
REVOKE CREATE ON SCHEMA palaver FROM palaver_eraser;

-- drop_bodies: when turns from `seq` on are gone, delete every body that may contain them or what was derived from
-- them
CREATE OR REPLACE FUNCTION palaver.drop_bodies(c palaver.conversations, seq bigint, gone text[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  PERFORM drop_body_proofs(c.tenant, ARRAY(SELECT r.rid FROM requests r
    WHERE r.tenant = c.tenant AND r.cid = c.cid AND r.next_seq > drop_bodies.seq AND r.body IS NOT NULL));
  UPDATE requests r SET body = NULL
  WHERE r.tenant = c.tenant AND r.cid = c.cid AND r.next_seq > drop_bodies.seq AND r.body IS NOT NULL;
  PERFORM unquote(c.cid, gone), unlearn(c.cid, gone);
END $$;

-- ---- counting -------------------------------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION palaver_api.counter_bound(who jsonb, model text)
RETURNS TABLE (ratio double precision, samples bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE me asker := enter(who, 'read');
BEGIN
  RETURN QUERY SELECT b.ratio, b.samples FROM counter_bounds b
    WHERE b.tenant = me.tenant AND b.model = counter_bound.model;
END $$;

CREATE OR REPLACE FUNCTION palaver_api.put_counter_bound(who jsonb, model text, ratio double precision, samples bigint)
RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE me asker := enter(who, 'write');
BEGIN
  PERFORM check_text('model', put_counter_bound.model, 512), check_count('samples', put_counter_bound.samples);
  INSERT INTO counter_bounds (tenant, model, ratio, samples, updated)
  VALUES (me.tenant, put_counter_bound.model, put_counter_bound.ratio, put_counter_bound.samples, me.now)
  ON CONFLICT ON CONSTRAINT counter_bounds_pkey DO UPDATE
    SET ratio = excluded.ratio, samples = excluded.samples, updated = excluded.updated;
END $$;
