-- Taking over a copy of a conversation from another store.

-- clear_for_copy: delete everything that a whole copy replaces. A turn that is the same in both keeps its row, and with it
-- its place in the text index and its vectors; one with files is stored again, together with them
CREATE OR REPLACE FUNCTION palaver.clear_for_copy(c palaver.conversations, records jsonb) RETURNS text[]
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  t palaver.turns;
  copy palaver.turns;
  gone text[] := '{}';
  copies jsonb := (SELECT coalesce(jsonb_object_agg(r -> 1 ->> 'seq', r -> 1), '{}')
    FROM jsonb_array_elements(records) AS r WHERE r ->> 0 = 'turn');
BEGIN
  FOR t IN SELECT * FROM turns o WHERE o.tenant = c.tenant AND o.cid = c.cid ORDER BY o.seq LOOP
    copy := jsonb_populate_record(NULL::palaver.turns, copies -> t.seq::text);
    IF t.attachments IS NULL AND t.status <> 'pending' AND ROW(t.id, t.status, t.actor, t.idempotency_key, t.content_hash,
        t.salt) IS NOT DISTINCT FROM ROW(copy.id, copy.status, copy.actor, copy.idempotency_key, copy.content_hash, copy.salt) THEN
      UPDATE turns o SET active = 0 WHERE o.tenant = c.tenant AND o.tid = t.tid AND o.active = 1;
      IF t.active = 1 AND copy.active = 0 THEN
        gone := gone || t.id;
      END IF;
      CONTINUE;
    END IF;
    gone := gone || t.id;
    DELETE FROM streams s WHERE s.tenant = t.tenant AND s.tid = t.tid;
    PERFORM unindex(t);
    DELETE FROM turns o WHERE o.tenant = t.tenant AND o.tid = t.tid;
  END LOOP;
  PERFORM doom(c.tenant, c.cid, NULL);
  DELETE FROM summaries s WHERE s.tenant = c.tenant AND s.cid = c.cid;
  DELETE FROM working_memory w WHERE w.tenant = c.tenant AND w.cid = c.cid;
  DELETE FROM facts f WHERE f.tenant = c.tenant AND f.cid = c.cid;
  DELETE FROM items i WHERE i.tenant = c.tenant AND i.cid = c.cid;
  DELETE FROM item_sources s WHERE s.tenant = c.tenant AND s.cid = c.cid;
  DELETE FROM set_aside a WHERE a.tenant = c.tenant AND a.cid = c.cid;
  DELETE FROM request_quotes q WHERE q.tenant = c.tenant AND q.cid = c.cid;
  DELETE FROM requests r WHERE r.tenant = c.tenant AND r.cid = c.cid;
  DELETE FROM answer_places p WHERE p.tenant = c.tenant AND p.cid = c.cid;
  DELETE FROM proofs p WHERE p.tenant = c.tenant AND p.cid = c.cid;
  DELETE FROM events e WHERE e.tenant = c.tenant AND e.cid = c.cid;
  FOR copy IN SELECT * FROM jsonb_populate_recordset(NULL::palaver.turns, (SELECT jsonb_agg(x.value) FROM jsonb_each(copies) AS x)) LOOP
    UPDATE turns o SET position = copy.position, parent = copy.parent, slot = copy.slot, active = copy.active,
      superseded_by = copy.superseded_by
    WHERE o.tenant = c.tenant AND o.cid = c.cid AND o.seq = copy.seq;
  END LOOP;
  RETURN gone;
END $$;

-- drop_for_copy: delete the derived rows with these keys, and files that come with the copy
CREATE OR REPLACE FUNCTION palaver.drop_for_copy(c palaver.conversations, keys text[], files text[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  name text;
  kind text;
  own text;
BEGIN
  DELETE FROM attachments a WHERE a.tenant = c.tenant AND a.cid = c.cid AND a.id = ANY (files);
  FOREACH name IN ARRAY keys LOOP
    kind := split_part(name, '/', 1);
    own := substr(name, length(kind) + 2);
    CASE kind
      WHEN 'summary' THEN
        DELETE FROM summaries s WHERE s.tenant = c.tenant AND s.cid = c.cid AND s.level = split_part(own, '/', 1)::integer
          AND s.from_seq = split_part(own, '/', 2)::bigint;
      WHEN 'notes' THEN
        DELETE FROM working_memory w WHERE w.tenant = c.tenant AND w.cid = c.cid;
      WHEN 'fact' THEN
        DELETE FROM facts f WHERE f.tenant = c.tenant AND f.cid = c.cid AND f.id = own;
      WHEN 'request' THEN
        DELETE FROM requests r WHERE r.tenant = c.tenant AND r.cid = c.cid AND r.id = own;
      WHEN 'item' THEN
        DELETE FROM items i WHERE i.tenant = c.tenant AND i.cid = c.cid AND i.id = own;
      WHEN 'source' THEN
        DELETE FROM item_sources s WHERE s.tenant = c.tenant AND s.cid = c.cid AND s.item = split_part(own, '/', 1)
          AND s.turn = split_part(own, '/', 2);
      ELSE
        NULL;  -- the text of a file went with its row; a body is not copied
    END CASE;
    DELETE FROM proofs p WHERE p.tenant = c.tenant AND p.cid = c.cid AND p.key = name;
  END LOOP;
END $$;

-- move_sources: turns have other ids now: have the memory of subjects name those that are in the view by them. `moved` is
-- an object from old to new ids
CREATE OR REPLACE FUNCTION palaver.move_sources(me palaver.asker, c palaver.conversations, moved jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  one record;
  memory palaver.conversations;
BEGIN
  FOR one IN SELECT s.cid, s.item, s.turn, m.value AS new FROM item_sources s JOIN jsonb_each_text(moved) AS m ON m.key = s.turn
      WHERE s.tenant = c.tenant AND s.source_cid = c.cid AND EXISTS (SELECT 1 FROM turns t WHERE t.tenant = c.tenant
        AND t.cid = c.cid AND t.seq = stamped_seq(m.value) AND t.id = m.value AND t.active = 1) LOOP
    SELECT * INTO memory FROM conversations o WHERE o.tenant = c.tenant AND o.cid = one.cid FOR NO KEY UPDATE;
    UPDATE item_sources s SET turn = one.new, conversation = c.id
    WHERE s.tenant = c.tenant AND s.cid = one.cid AND s.item = one.item AND s.turn = one.turn;
    PERFORM touch(one.cid, ARRAY['source/' || one.item || '/' || one.turn, 'source/' || one.item || '/' || one.new]);
    PERFORM save(memory);
  END LOOP;
END $$;

-- adopt: store a copy in place of a conversation, whose last event must be `expected_n` with this hash; otherwise false.
-- `whole`: the records are the whole conversation; if not, they continue it, and derived rows with the keys `dropped` go
CREATE OR REPLACE FUNCTION palaver_api.adopt(who jsonb, conversation text, expected_n bigint, expected_hash text,
  records jsonb, whole boolean, dropped text[], moved jsonb, words text, size integer) RETURNS TABLE (stored boolean)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
#variable_conflict use_variable
DECLARE
  me asker := enter(who, 'write');
  c palaver.conversations;
  n palaver.conversations := jsonb_populate_record(NULL::palaver.conversations, records -> 0 -> 1);
  gone text[] := '{}';
BEGIN
  PERFORM enter(who, 'admin');  -- both rights
  c := open_thread(me, conversation);
  stored := c.next_n - 1 = expected_n AND encode(c.tip_hash, 'hex') = expected_hash;
  IF NOT stored THEN
    RETURN NEXT;
    RETURN;
  END IF;
  IF whole THEN
    gone := clear_for_copy(c, records);
  ELSE
    PERFORM drop_for_copy(c, dropped, ARRAY(SELECT r -> 1 ->> 'id' FROM jsonb_array_elements(records) AS r
      WHERE r ->> 0 = 'attachment'));
  END IF;
  n := with_compaction(n);
  UPDATE conversations o SET id = n.id, owner = n.owner, key = n.key, workspace = n.workspace, agent = n.agent,
    model = n.model, title = n.title, preview = n.preview, participants = n.participants,
    members = members_of(n.participants), metadata = n.metadata, settings = n.settings, ttl = n.ttl,
    expires_at = n.expires_at, turn_count = n.turn_count, token_count = n.token_count, next_seq = n.next_seq,
    next_n = n.next_n, tip_position = n.tip_position, tip_slot = n.tip_slot, tip_hash = n.tip_hash, salt = n.salt,
    content_hash = n.content_hash, created = n.created, updated = n.updated, minute = n.minute,
    compact_turns = n.compact_turns, compact_tokens = n.compact_tokens, title_made = coalesce(n.title_made, false)
  WHERE o.tenant = c.tenant AND o.cid = c.cid RETURNING * INTO c;
  PERFORM index_title(c, words, size), index_details(c.tenant, c.cid, c.metadata);
  PERFORM restore_rows(me, c, records);
  PERFORM restored(me, c);
  DELETE FROM doomed_blobs b WHERE b.tenant = c.tenant AND b.path IN (
    SELECT a.path FROM attachments a WHERE a.tenant = c.tenant AND a.cid = c.cid);
  DELETE FROM seals s WHERE s.tenant = c.tenant AND s.cid = c.cid AND NOT EXISTS (SELECT 1 FROM events e
    WHERE e.tenant = c.tenant AND e.cid = c.cid AND e.n = s.n AND e.hash = s.tip);
  PERFORM bump(c), set_config('palaver.touched', '', true), move_sources(me, c, moved);
  PERFORM unquote(c.cid, gone), unlearn(c.cid, gone);
  RETURN NEXT;
END $$;
