-- Memory of subjects: items and their sources. An item is proved by the log of the subject's conversation (proof.sql), and
-- is deleted with the last turn that says it, even if another user deletes the turn.

-- may_remember: whether the caller may change the memory of a subject: its owner, an admin, or one whom its metadata names
-- as a writer
CREATE OR REPLACE FUNCTION palaver.may_remember(me palaver.asker, owner text, metadata text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN (me)."user" IS NULL OR (me)."user" = owner OR strpos(',' || (me).rights || ',', ',admin,') > 0
    OR coalesce(metadata::jsonb -> 'writers' ? (me)."user", false);

-- open_memory: the conversation of a subject's memory, for writing
CREATE OR REPLACE FUNCTION palaver.open_memory(me palaver.asker, conversation text) RETURNS palaver.conversations
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE c palaver.conversations := open_thread(me, conversation);
BEGIN
  IF NOT may_remember(me, c.owner, c.metadata) THEN
    PERFORM fail('PV021', 'admin');
  END IF;
  RETURN c;
END $$;

-- items: items of a subject as JSON, newest first, with their sources and the titles of conversations that the caller may
-- see. An item whose successor is gone holds again. Rows that the log contradicts are left out
CREATE OR REPLACE FUNCTION palaver_api.items(who jsonb, conversation text, status text, kind text, include_ended boolean,
  ids text[], most integer)
RETURNS TABLE (item text, sources text)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
#variable_conflict use_variable
DECLARE
  me asker := enter(who, 'read');
  c palaver.conversations := find(me, conversation);
BEGIN
  RETURN QUERY SELECT json_build_array(i.id, i.kind, i.subject, i.predicate, i.object, i.confidence, i.valid_from,
      coalesce(i.valid_to, e.valid_from), i.learnt, CASE WHEN i.ended_by IS NULL OR e.id IS NOT NULL THEN i.ended_at END,
      e.id, i.origin, i.status, i.said_by, i."by", i.created)::text,
    (SELECT json_agg(json_build_array(s.conversation, s.turn, s.said, (SELECT o.title FROM conversations o
        WHERE o.tenant = c.tenant AND o.cid = s.source_cid AND o.gone IS NULL
          AND (o.expires_at IS NULL OR o.expires_at > me.now))) ORDER BY s.said, s.turn)::text
      FROM item_sources s WHERE s.tenant = c.tenant AND s.cid = c.cid AND s.item = i.id
        AND fits(c.tenant, c.cid, 'source/' || s.item || '/' || s.turn))
  FROM items i LEFT JOIN items e ON e.tenant = c.tenant AND e.cid = c.cid AND e.id = i.ended_by
  WHERE i.tenant = c.tenant AND i.cid = c.cid AND (items.status IS NULL OR i.status = items.status)
    AND (items.kind IS NULL OR i.kind = items.kind) AND (items.ids IS NULL OR i.id = ANY (items.ids))
    AND (include_ended OR i.ended_at IS NULL OR (i.ended_by IS NOT NULL AND e.id IS NULL))
    AND fits(c.tenant, c.cid, 'item/' || i.id)
  ORDER BY i.iid DESC LIMIT most;
END $$;

-- item_words: the words of all approved items that have not ended, to rank them. They are checked when they are read
CREATE OR REPLACE FUNCTION palaver_api.item_words(who jsonb, conversation text, most integer)
RETURNS TABLE (id text, kind text, subject text, predicate text, object text)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
#variable_conflict use_column
DECLARE
  me asker := enter(who, 'read');
  c palaver.conversations := find(me, conversation);
BEGIN
  RETURN QUERY SELECT i.id, i.kind, i.subject, i.predicate, i.object
  FROM items i LEFT JOIN items e ON e.tenant = c.tenant AND e.cid = c.cid AND e.id = i.ended_by
  WHERE i.tenant = c.tenant AND i.cid = c.cid AND i.status = 'approved'
    AND (i.ended_at IS NULL OR (i.ended_by IS NOT NULL AND e.id IS NULL))
  ORDER BY i.iid DESC LIMIT most;
END $$;

-- add_source: note that a turn says what an item says, if the turn is still in the view. False when it is not, or is noted
CREATE OR REPLACE FUNCTION palaver.add_source(me palaver.asker, c palaver.conversations, item text, source jsonb)
RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  said_in text := source ->> 'conversation';
  said_turn text := source ->> 'turn';
  place bigint;
BEGIN
  PERFORM check_time('said', (source ->> 'said')::bigint);
  SELECT o.cid INTO place FROM conversations o WHERE o.tenant = me.tenant AND o.id = said_in AND o.gone IS NULL;
  IF NOT EXISTS (SELECT 1 FROM turns t WHERE t.tenant = me.tenant AND t.cid = place AND t.seq = stamped_seq(said_turn)
      AND t.id = said_turn AND t.active = 1 AND t.status = 'complete') THEN
    RETURN false;
  END IF;
  INSERT INTO item_sources (tenant, cid, item, turn, source_cid, conversation, said)
  VALUES (c.tenant, c.cid, add_source.item, said_turn, place, said_in, (source ->> 'said')::bigint)
  ON CONFLICT ON CONSTRAINT item_sources_pkey DO NOTHING;
  IF FOUND THEN
    PERFORM touch(c.cid, ARRAY['source/' || add_source.item || '/' || said_turn]);
    RETURN true;
  END IF;
  RETURN false;
END $$;

-- add_item: store an item with its sources. False when it came with sources and none of them is there any more
CREATE OR REPLACE FUNCTION palaver.add_item(me palaver.asker, c palaver.conversations, given jsonb) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  i palaver.items := jsonb_populate_record(NULL::palaver.items, given - 'sources');
  source jsonb;
  kept integer := 0;
BEGIN
  PERFORM check_share('confidence', i.confidence), check_text('id', i.id, 512), check_text('kind', i.kind, 100),
    check_text('subject', i.subject, 5000), check_text('predicate', nullif(i.predicate, ''), 5000),
    check_text('object', i.object, 5000), check_text('origin', i.origin, 100), check_text('status', i.status, 100),
    check_text('said_by', i.said_by, 512), check_text('by', i."by", 512), check_time('learnt', i.learnt),
    check_time('valid_from', coalesce(i.valid_from, 0)), check_time('valid_to', coalesce(i.valid_to, 0));
  FOR source IN SELECT s.value FROM jsonb_array_elements(given -> 'sources') AS s (value) LOOP
    kept := kept + add_source(me, c, i.id, source)::integer;
  END LOOP;
  IF kept = 0 AND jsonb_array_length(given -> 'sources') > 0 THEN
    RETURN false;
  END IF;
  INSERT INTO items (tenant, cid, id, kind, subject, predicate, object, confidence, valid_from, valid_to, learnt, origin,
    status, said_by, "by", created)
  VALUES (c.tenant, c.cid, i.id, i.kind, i.subject, i.predicate, i.object, i.confidence, i.valid_from, i.valid_to, i.learnt,
    i.origin, i.status, i.said_by, i."by", c.updated);
  PERFORM touch(c.cid, ARRAY['item/' || i.id]);
  RETURN true;
END $$;

-- has_item: whether a subject has an item
CREATE OR REPLACE FUNCTION palaver.has_item(c palaver.conversations, item text) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  RETURN EXISTS (SELECT 1 FROM items i WHERE i.tenant = c.tenant AND i.cid = c.cid AND i.id = has_item.item);
END $$;

-- put_items: change a subject's memory, unless it has changed since it was read. The conversations of the sources are
-- locked first, as their deletion locks them
CREATE OR REPLACE FUNCTION palaver_api.put_items(who jsonb, conversation text, changes jsonb, after bigint DEFAULT NULL)
RETURNS TABLE (stored boolean, added text[])
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'write');
  c palaver.conversations;
  said_in text[] := ARRAY(SELECT DISTINCT s.value ->> 'conversation'
    FROM jsonb_path_query(changes, 'strict $.new[*].sources[*]') AS s (value)
    UNION SELECT s.value ->> 'conversation' FROM jsonb_path_query(changes, 'strict $.sources[*][1]') AS s (value));
  one jsonb;
  changed text[] := '{}';
  sourced integer := 0;
BEGIN
  PERFORM 1 FROM conversations o WHERE o.tenant = me.tenant AND o.id = ANY (said_in) ORDER BY o.cid FOR SHARE;
  c := open_memory(me, conversation);
  added := '{}';
  stored := after IS NULL OR c.next_n - 1 = after;
  IF NOT stored THEN
    RETURN NEXT;
    RETURN;
  END IF;
  c.updated := tick(me, c);
  FOR one IN SELECT n.value FROM jsonb_array_elements(changes -> 'new') AS n (value) LOOP
    IF add_item(me, c, one) THEN
      added := array_append(added, one ->> 'id');
    END IF;
  END LOOP;
  FOR one IN SELECT n.value FROM jsonb_array_elements(changes -> 'sources') AS n (value) LOOP
    IF has_item(c, one ->> 0) THEN
      sourced := sourced + add_source(me, c, one ->> 0, one -> 1)::integer;
    END IF;
  END LOOP;
  FOR one IN SELECT n.value FROM jsonb_array_elements(changes -> 'ended') AS n (value) LOOP
    CONTINUE WHEN one ->> 2 IS NOT NULL AND one ->> 2 <> ALL (added) AND NOT has_item(c, one ->> 2);
    changed := changed || change_item(c, one ->> 0, (one ->> 1)::bigint, one ->> 2);
  END LOOP;
  FOR one IN SELECT n.value FROM jsonb_array_elements(changes -> 'approved') AS n (value) LOOP
    changed := changed || change_item(c, one #>> '{}', NULL, NULL);
  END LOOP;
  IF cardinality(added) > 0 OR sourced > 0 OR cardinality(changed) > 0 THEN
    c := log(me, c, changes ->> 'event', payload => jsonb_build_object('new', cardinality(added), 'changed',
      cardinality(changed)));
    PERFORM save(c);
  END IF;
  RETURN NEXT;
END $$;

-- change_item: end an item at a time, or approve it without one. Returns its id, if there was anything to change. One that
-- the log contradicts is not proved by this
CREATE OR REPLACE FUNCTION palaver.change_item(c palaver.conversations, item text, ended bigint, successor text)
RETURNS text[]
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE fitted boolean := fits(c.tenant, c.cid, 'item/' || item);
BEGIN
  IF ended IS NULL THEN
    UPDATE items i SET status = 'approved' WHERE i.tenant = c.tenant AND i.cid = c.cid AND i.id = change_item.item
      AND i.status = 'proposed';
  ELSE
    UPDATE items i SET ended_at = ended, ended_by = successor
    WHERE i.tenant = c.tenant AND i.cid = c.cid AND i.id = change_item.item;
  END IF;
  IF NOT FOUND THEN
    RETURN '{}';
  END IF;
  IF fitted THEN
    PERFORM touch(c.cid, ARRAY['item/' || change_item.item]);
  END IF;
  RETURN ARRAY[change_item.item];
END $$;

-- drop_items: delete items, and return the ids of those that were there. Items that they had ended hold again
CREATE OR REPLACE FUNCTION palaver_api.drop_items(who jsonb, conversation text, ids text[]) RETURNS TABLE (dropped text[])
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'write');
  c palaver.conversations := open_memory(me, conversation);
  turns text[];
BEGIN
  WITH gone AS (
    DELETE FROM items i WHERE i.tenant = c.tenant AND i.cid = c.cid AND i.id = ANY (drop_items.ids) RETURNING i.id
  ) SELECT coalesce(array_agg(g.id), '{}') INTO dropped FROM gone g;
  WITH gone AS (
    DELETE FROM item_sources s WHERE s.tenant = c.tenant AND s.cid = c.cid AND s.item = ANY (dropped) RETURNING s.item, s.turn
  ) SELECT array_agg('source/' || g.item || '/' || g.turn) INTO turns FROM gone g;
  IF cardinality(dropped) > 0 THEN
    PERFORM touch(c.cid, turns || ARRAY(SELECT 'item/' || d FROM unnest(dropped) AS d));
    c.updated := tick(me, c);
    c := log(me, c, 'drop_item', payload => jsonb_build_object('items', cardinality(dropped)));
    PERFORM save(c);
  END IF;
  RETURN NEXT;
END $$;

-- items_of_author: the items that a person wrote, or said about the subject
CREATE OR REPLACE FUNCTION palaver_api.items_of_author(who jsonb, conversation text, author text) RETURNS TABLE (id text)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
#variable_conflict use_column
DECLARE
  me asker := enter(who, 'read');
  c palaver.conversations := find(me, conversation);
BEGIN
  RETURN QUERY SELECT i.id FROM items i WHERE i.tenant = c.tenant AND i.cid = c.cid
    AND (i."by" = items_of_author.author OR i.said_by = items_of_author.author);
END $$;

-- unlearn: delete what was learnt from turns of a conversation that are no longer in its view: these turns, or any. Runs as
-- the role that may do only this, because the memories may belong to subjects that the caller cannot see. It is safe to call
-- by anyone: it works in the caller's tenant, returns nothing, and spares every source that is still in the view
CREATE OR REPLACE FUNCTION palaver.unlearn(source_cid bigint, gone text[] DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  here text := (whoami()).tenant;
  lost record;
  unsaid boolean;
BEGIN
  FOR lost IN DELETE FROM item_sources s WHERE s.tenant = here AND s.source_cid = unlearn.source_cid
      AND (gone IS NULL OR s.turn = ANY (gone))
      AND NOT EXISTS (SELECT 1 FROM turns t WHERE t.tenant = here AND t.cid = unlearn.source_cid
        AND t.seq = stamped_seq(s.turn) AND t.id = s.turn AND t.active = 1)
      RETURNING s.cid, s.item, s.turn LOOP
    DELETE FROM proofs p WHERE p.tenant = here AND p.cid = lost.cid AND p.key = 'source/' || lost.item || '/' || lost.turn;
    unsaid := NOT EXISTS (SELECT 1 FROM item_sources s WHERE s.tenant = here AND s.cid = lost.cid AND s.item = lost.item);
    CONTINUE WHEN NOT unsaid;
    DELETE FROM items i WHERE i.tenant = here AND i.cid = lost.cid AND i.id = lost.item AND i.origin <> 'manual';
    IF FOUND THEN
      DELETE FROM proofs p WHERE p.tenant = here AND p.cid = lost.cid AND p.key = 'item/' || lost.item;
    END IF;
  END LOOP;
END $$;
GRANT CREATE ON SCHEMA palaver TO palaver_eraser;
ALTER FUNCTION palaver.unlearn(bigint, text[]) OWNER TO palaver_eraser;
REVOKE CREATE ON SCHEMA palaver FROM palaver_eraser;
