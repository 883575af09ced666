-- Whole conversations, row by row: export and restore.

-- event_records, turn_records, attachment_records: the stored rows of a conversation, page by page
CREATE OR REPLACE FUNCTION palaver_api.event_records(who jsonb, conversation text, after bigint, most integer)
RETURNS SETOF palaver.events
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'read');
  c palaver.conversations := find(me, conversation);
BEGIN
  RETURN QUERY SELECT e.* FROM events e WHERE e.tenant = c.tenant AND e.cid = c.cid AND e.n > after
    ORDER BY e.n LIMIT most;
END $$;

CREATE OR REPLACE FUNCTION palaver_api.turn_records(who jsonb, conversation text, after bigint, most integer)
RETURNS SETOF palaver.turns
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'read');
  c palaver.conversations := find(me, conversation);
BEGIN
  RETURN QUERY SELECT t.* FROM turns t WHERE t.tenant = c.tenant AND t.cid = c.cid AND t.seq > after
    ORDER BY t.seq LIMIT most;
END $$;

CREATE OR REPLACE FUNCTION palaver_api.attachment_records(who jsonb, conversation text)
RETURNS TABLE (id text, owner text, filename text, media_type text, bytes bigint, sha256 text, path text,
  created bigint, turn text)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'read');
  c palaver.conversations := find(me, conversation);
BEGIN
  RETURN QUERY SELECT a.id, a.owner, a.filename, a.media_type, a.bytes, a.sha256, a.path, a.created, t.id
    FROM attachments a LEFT JOIN turns t ON t.tenant = a.tenant AND t.tid = a.tid
    WHERE a.tenant = c.tenant AND a.cid = c.cid ORDER BY a.aid;
END $$;

-- working_memory_records, fact_records: the working memory and the facts of a conversation
CREATE OR REPLACE FUNCTION palaver_api.working_memory_records(who jsonb, conversation text) RETURNS TABLE (memory text)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'read');
  c palaver.conversations := find(me, conversation);
BEGIN
  RETURN QUERY SELECT w.memory FROM working_memory w WHERE w.tenant = c.tenant AND w.cid = c.cid;
END $$;

CREATE OR REPLACE FUNCTION palaver_api.fact_records(who jsonb, conversation text)
RETURNS TABLE (id text, subject text, predicate text, object text, source_turn text, confidence double precision,
  valid_from bigint, invalidated_at bigint, invalidated_by text, by text, created bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'read');
  c palaver.conversations := find(me, conversation);
BEGIN
  RETURN QUERY SELECT f.id, f.subject, f.predicate, f.object, f.source_turn, f.confidence, f.valid_from,
    f.invalidated_at, f.invalidated_by, f.by, f.created
    FROM facts f WHERE f.tenant = c.tenant AND f.cid = c.cid ORDER BY f.fid;
END $$;

-- restore_proof: store the salt of an exported row's hash and the number of its event; files of earlier versions have none
CREATE OR REPLACE FUNCTION palaver.restore_proof(tenant text, cid bigint, key text, exported jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  IF exported ->> 'salt' IS NOT NULL THEN
    INSERT INTO proofs (tenant, cid, key, n, salt) VALUES (restore_proof.tenant, restore_proof.cid, restore_proof.key,
      (exported ->> 'proof')::bigint, (exported ->> 'salt')::bytea)
    ON CONFLICT ON CONSTRAINT proofs_pkey DO UPDATE SET n = excluded.n, salt = excluded.salt;
  END IF;
END $$;

-- restore_rows: store the rows of an exported conversation, but for its own. `records` are [kind, row]; the rows of turns
-- have their `words`, those of files' texts their `passages`. A turn that is stored already stays as it is
CREATE OR REPLACE FUNCTION palaver.restore_rows(me palaver.asker, c palaver.conversations, records jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  one record;
  e palaver.events;
  t palaver.turns;
  a palaver.attachments;
  covered_by bigint;
BEGIN
  FOR e IN SELECT * FROM jsonb_populate_recordset(NULL::palaver.events,
      (SELECT jsonb_agg(r -> 1) FROM jsonb_array_elements(records) AS r WHERE r ->> 0 = 'event')) LOOP
    INSERT INTO events (tenant, cid, n, kind, turn, actor, at, payload, content_hash, hash)
    VALUES (c.tenant, c.cid, e.n, e.kind, e.turn, e.actor, e.at, e.payload, e.content_hash, e.hash);
    IF e.payload::jsonb ->> 'proof' = '1' THEN
      covered_by := e.n;
    END IF;
  END LOOP;
  IF covered_by IS NOT NULL THEN
    INSERT INTO proofs (tenant, cid, key, n, salt) VALUES (c.tenant, c.cid, '', covered_by, '')
    ON CONFLICT ON CONSTRAINT proofs_pkey DO UPDATE SET n = excluded.n;
  END IF;
  FOR one IN SELECT r -> 1 AS row FROM jsonb_array_elements(records) AS r WHERE r ->> 0 = 'turn' LOOP
    t := jsonb_populate_record(NULL::palaver.turns, one.row);
    CONTINUE WHEN EXISTS (SELECT 1 FROM turns o WHERE o.tenant = c.tenant AND o.cid = c.cid AND o.seq = t.seq);
    t.tenant := c.tenant;
    t.cid := c.cid;
    t.tid := new_tid();
    IF t.status <> 'forgotten' THEN
      PERFORM check_turn(t);
    END IF;
    PERFORM insert_turn(t);
    IF t.status = 'pending' THEN
      INSERT INTO streams (tenant, tid, cid, lease_until, length)
      VALUES (t.tenant, t.tid, t.cid, me.now, char_length(t.content));
    ELSIF t.status = 'complete' THEN
      PERFORM index_turn(t, one.row -> 'words');
    END IF;
  END LOOP;
  FOR one IN SELECT r.value -> 1 AS row FROM jsonb_array_elements(records) WITH ORDINALITY AS r (value, n)
      WHERE r.value ->> 0 = 'attachment' ORDER BY r.n LOOP
    a := jsonb_populate_record(NULL::palaver.attachments, one.row);
    a.tid := (SELECT o.tid FROM turns o WHERE o.tenant = c.tenant AND o.cid = c.cid
      AND o.seq = stamped_seq(one.row ->> 'turn'));
    INSERT INTO attachments (tenant, cid, id, tid, owner, filename, media_type, bytes, sha256, path, created)
    VALUES (c.tenant, c.cid, a.id, a.tid, a.owner, a.filename, a.media_type, a.bytes, a.sha256, a.path, a.created);
  END LOOP;
  IF a.id IS NOT NULL THEN
    PERFORM put_job(c.tenant, c.cid, 'files', NULL, me.now);
  END IF;
  PERFORM restore_memory(me, c, records), restore_derived(me, c, records);
END $$;

-- restore_memory: store exported notes and facts
CREATE OR REPLACE FUNCTION palaver.restore_memory(me palaver.asker, c palaver.conversations, records jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  one record;
  f palaver.facts;
  fact_count bigint;
  memory_count bigint;
BEGIN
  FOR one IN SELECT r -> 1 ->> 'memory' AS memory, r -> 1 AS row FROM jsonb_array_elements(records) AS r
      WHERE r ->> 0 = 'working_memory' LOOP
    INSERT INTO working_memory (tenant, cid, memory, through_seq, updated)
    VALUES (c.tenant, c.cid, one.memory, coalesce((one.row ->> 'through_seq')::bigint,
      (one.memory::jsonb ->> 'through_seq')::bigint, -1), me.now);
    PERFORM restore_proof(c.tenant, c.cid, 'notes', one.row);
  END LOOP;
  FOR one IN SELECT r.value -> 1 AS row FROM jsonb_array_elements(records) WITH ORDINALITY AS r (value, n)
      WHERE r.value ->> 0 = 'fact' ORDER BY r.n LOOP
    f := jsonb_populate_record(NULL::palaver.facts, one.row);
    INSERT INTO facts (tenant, cid, id, subject, predicate, object, source_turn, confidence, valid_from, invalidated_at,
      invalidated_by, by, created, valid_to, learnt)
    VALUES (c.tenant, c.cid, f.id, f.subject, f.predicate, f.object, f.source_turn, f.confidence, f.valid_from,
      f.invalidated_at, f.invalidated_by, f."by", f.created, f.valid_to, f.learnt);  -- a word of PL/pgSQL, hence the quotes
    PERFORM restore_proof(c.tenant, c.cid, 'fact/' || f.id, one.row);
  END LOOP;
  IF f.id IS NOT NULL THEN
    PERFORM put_job(c.tenant, c.cid, 'embed', NULL, me.now);
  END IF;
  SELECT count(*) INTO fact_count FROM facts n WHERE n.tenant = c.tenant AND n.cid = c.cid;
  SELECT count(*) INTO memory_count FROM working_memory w WHERE w.tenant = c.tenant AND w.cid = c.cid;
  INSERT INTO derived_counts (tenant, cid, facts, memories) VALUES (c.tenant, c.cid, fact_count, memory_count)
  ON CONFLICT ON CONSTRAINT derived_counts_pkey DO UPDATE SET facts = excluded.facts, memories = excluded.memories;
END $$;

-- restore_derived: store the rows that only a copy from another store has: summaries, requests without their bodies, the
-- text of files, and the memory of a subject. A source whose turn is not here, or was forgotten here, is left out, and so is
-- an item without any source
CREATE OR REPLACE FUNCTION palaver.restore_derived(me palaver.asker, c palaver.conversations, records jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  one record;
  s palaver.summaries;
  r palaver.requests;
  i palaver.items;
  said_cid bigint;
  items_came boolean := false;
BEGIN
  FOR one IN SELECT x.value ->> 0 AS kind, x.value -> 1 AS row FROM jsonb_array_elements(records) WITH ORDINALITY AS x (value, n)
      WHERE x.value ->> 0 IN ('summary', 'request', 'file_text', 'item', 'source') ORDER BY x.n LOOP
    IF one.kind = 'summary' THEN
      s := jsonb_populate_record(NULL::palaver.summaries, one.row);
      INSERT INTO summaries (tenant, cid, level, from_seq, through_seq, id, turns, tokens, text, token_count, model, stale,
        created)
      VALUES (c.tenant, c.cid, s.level, s.from_seq, s.through_seq, s.id, s.turns, s.tokens, s.text, s.token_count, s.model,
        s.stale, s.created);
      PERFORM restore_proof(c.tenant, c.cid, 'summary/' || s.level || '/' || s.from_seq, one.row);
    ELSIF one.kind = 'request' THEN
      r := jsonb_populate_record(NULL::palaver.requests, one.row);
      INSERT INTO requests (tenant, rid, cid, id, turn, purpose, at, model, adapter, next_seq, explanation, response)
      VALUES (c.tenant, new_number(), c.cid, r.id, r.turn, r.purpose, r.at, r.model, r.adapter, r.next_seq, r.explanation,
        r.response);
      PERFORM restore_proof(c.tenant, c.cid, 'request/' || r.id, one.row);
    ELSIF one.kind = 'file_text' THEN
      PERFORM restore_file_text(c, one.row);
    ELSIF one.kind = 'item' THEN
      items_came := true;
      i := jsonb_populate_record(NULL::palaver.items, one.row);
      INSERT INTO items (tenant, cid, id, kind, subject, predicate, object, confidence, valid_from, valid_to, learnt,
        ended_at, ended_by, origin, status, said_by, "by", created)
      VALUES (c.tenant, c.cid, i.id, i.kind, i.subject, i.predicate, i.object, i.confidence, i.valid_from, i.valid_to,
        i.learnt, i.ended_at, i.ended_by, i.origin, i.status, i.said_by, i."by", i.created);
      PERFORM restore_proof(c.tenant, c.cid, 'item/' || i.id, one.row);
    ELSE
      SELECT o.cid INTO said_cid FROM conversations o JOIN turns t ON t.tenant = o.tenant AND t.cid = o.cid
      WHERE o.tenant = c.tenant AND o.id = one.row ->> 'conversation' AND o.gone IS NULL AND t.tenant = c.tenant
        AND t.seq = stamped_seq(one.row ->> 'turn') AND t.id = one.row ->> 'turn' AND t.active = 1
        AND t.status = 'complete';
      CONTINUE WHEN said_cid IS NULL;
      INSERT INTO item_sources (tenant, cid, item, turn, source_cid, conversation, said)
      VALUES (c.tenant, c.cid, one.row ->> 'item', one.row ->> 'turn', said_cid, one.row ->> 'conversation',
        (one.row ->> 'said')::bigint);
      PERFORM restore_proof(c.tenant, c.cid, 'source/' || (one.row ->> 'item') || '/' || (one.row ->> 'turn'), one.row);
    END IF;
  END LOOP;
  IF items_came THEN
    FOR one IN SELECT o.id FROM items o WHERE o.tenant = c.tenant AND o.cid = c.cid AND o.origin <> 'manual' AND NOT EXISTS (
        SELECT 1 FROM item_sources n WHERE n.tenant = c.tenant AND n.cid = c.cid AND n.item = o.id) LOOP
      DELETE FROM items o WHERE o.tenant = c.tenant AND o.cid = c.cid AND o.id = one.id;
      DELETE FROM proofs p WHERE p.tenant = c.tenant AND p.cid = c.cid AND p.key = 'item/' || one.id;
    END LOOP;
  END IF;
END $$;

-- restore_file_text: store the text of a file in the passages that it had, each a list of [text, number of stems, tsvector]
CREATE OR REPLACE FUNCTION palaver.restore_file_text(c palaver.conversations, stored jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  a palaver.attachments;
  first integer := (stored ->> 'first')::integer;
  piece record;
BEGIN
  UPDATE attachments o SET characters = (stored ->> 'characters')::bigint, problem = stored ->> 'problem'
  WHERE o.tenant = c.tenant AND o.cid = c.cid AND o.id = stored ->> 'id' AND o.tid IS NOT NULL RETURNING * INTO a;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  FOR piece IN SELECT p.value ->> 0 AS text, (p.value ->> 1)::integer AS size, p.value ->> 2 AS terms, first + p.n - 1 AS part
      FROM jsonb_array_elements(stored -> 'passages') WITH ORDINALITY AS p (value, n) LOOP
    INSERT INTO file_passages (tenant, tid, part, cid, id, text)
    VALUES (a.tenant, a.tid, piece.part, a.cid, a.id, piece.text);
    IF piece.size > 0 THEN
      INSERT INTO passages (tenant, cid, tid, part, size, terms)
      VALUES (a.tenant, a.cid, a.tid, piece.part, piece.size, piece.terms::tsvector);
    END IF;
  END LOOP;
  PERFORM restore_proof(c.tenant, c.cid, 'file/' || a.id, stored);
END $$;

-- restored: count what was stored of a conversation, and enqueue the work on it
CREATE OR REPLACE FUNCTION palaver.restored(me palaver.asker, c palaver.conversations) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  passages bigint;
  terms bigint;
BEGIN
  SELECT count(*), coalesce(sum(p.size), 0) INTO passages, terms FROM passages p
  WHERE p.tenant = c.tenant AND p.cid = c.cid AND p.tid IS NOT NULL;
  UPDATE conversations o SET passage_count = 0, passage_terms = 0, summarized_position = (
    SELECT coalesce(max(s.through_seq), 0) FROM summaries s WHERE s.tenant = c.tenant AND s.cid = c.cid AND s.level = 0)
  WHERE o.tenant = c.tenant AND o.cid = c.cid;
  PERFORM recount(c), save_appended(c, passages, terms, me.now);
END $$;

-- restore: store an exported conversation unchanged; nothing when the same one is stored already
CREATE OR REPLACE FUNCTION palaver_api.restore(who jsonb, records jsonb, words text DEFAULT NULL, size integer DEFAULT 0)
RETURNS SETOF palaver.conversations
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'write');
  c palaver.conversations := jsonb_populate_record(NULL::palaver.conversations, records -> 0 -> 1);
  known palaver.conversations;
BEGIN
  PERFORM enter(who, 'admin');  -- both rights
  SELECT * INTO known FROM conversations o WHERE o.tenant = me.tenant AND o.id = c.id;
  IF FOUND THEN
    IF known.gone IS NOT NULL OR known.expires_at <= 1 THEN
      PERFORM fail('PV002', c.id);
    ELSIF known.next_n <> c.next_n OR known.tip_hash <> c.tip_hash THEN
      PERFORM fail('PV016', c.id);
    END IF;
    RETURN;
  END IF;
  IF c.gone IS NOT NULL THEN
    PERFORM fail('PV002', c.id);
  ELSIF c.key IS NOT NULL AND EXISTS (SELECT 1 FROM conversations o WHERE o.tenant = me.tenant AND o.owner = c.owner
      AND o.key = c.key AND o.gone IS NULL) THEN
    PERFORM fail('PV031', 'key', 'another conversation of this owner has the same key');
  END IF;
  c := with_compaction(c);
  INSERT INTO conversations (tenant, id, owner, key, workspace, agent, model, title, preview, participants, members,
    metadata, settings, ttl, expires_at, turn_count, token_count, next_seq, next_n, tip_position, tip_slot, tip_hash, salt,
    content_hash, created, updated, minute, compact_turns, compact_tokens, title_made)
  VALUES (me.tenant, c.id, c.owner, c.key, c.workspace, c.agent, c.model, c.title, c.preview, c.participants,
    members_of(c.participants), c.metadata, c.settings, c.ttl, c.expires_at, c.turn_count, c.token_count, c.next_seq,
    c.next_n, c.tip_position, c.tip_slot, c.tip_hash, c.salt, c.content_hash, c.created, c.updated, c.minute,
    c.compact_turns, c.compact_tokens, coalesce(c.title_made, false))
  RETURNING * INTO c;
  PERFORM index_title(c, words, size);
  IF c.metadata IS NOT NULL THEN
    PERFORM index_details(c.tenant, c.cid, c.metadata);
  END IF;
  PERFORM restore_rows(me, c, records);
  PERFORM restored(me, c);
  RETURN NEXT find(me, c.id);
END $$;

-- whole: all rows of a conversation from one moment; writers wait for the lock
CREATE OR REPLACE FUNCTION palaver_api.whole(who jsonb, conversation text)
RETURNS TABLE (conversation_row jsonb, event_rows jsonb, turn_rows jsonb, attachment_rows jsonb,
  working_memory_rows jsonb, fact_rows jsonb)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'read');
  c palaver.conversations := find(me, conversation);
BEGIN
  SELECT * INTO c FROM conversations o WHERE o.tenant = c.tenant AND o.cid = c.cid FOR SHARE;
  c := find(me, conversation);  -- it may have been deleted while this waited for the lock
  RETURN QUERY SELECT to_jsonb(c),
    (SELECT jsonb_agg(e ORDER BY e.n) FROM events e WHERE e.tenant = c.tenant AND e.cid = c.cid),
    (SELECT jsonb_agg(t ORDER BY t.seq) FROM turns t WHERE t.tenant = c.tenant AND t.cid = c.cid),
    (SELECT jsonb_agg(a) FROM palaver_api.attachment_records(who, conversation) a),
    (SELECT jsonb_agg(jsonb_build_object('memory', w.memory))
      FROM palaver_api.working_memory_records(who, conversation) AS w (memory)),
    (SELECT jsonb_agg(f) FROM palaver_api.fact_records(who, conversation) f);
END $$;

-- whole_with_derived: the same with the derived rows, each as [kind, place, row as JSON] (`derived_records`)
CREATE OR REPLACE FUNCTION palaver_api.whole_with_derived(who jsonb, conversation text)
RETURNS TABLE (conversation_row jsonb, event_rows jsonb, turn_rows jsonb, attachment_rows jsonb, derived_rows jsonb)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'read');
  kind text;
  found jsonb;
BEGIN
  SELECT w.conversation_row, w.event_rows, w.turn_rows, w.attachment_rows
  INTO conversation_row, event_rows, turn_rows, attachment_rows FROM palaver_api.whole(who, conversation) AS w;
  derived_rows := '[]';
  FOREACH kind IN ARRAY ARRAY['working_memory', 'fact', 'summary', 'file_text', 'request', 'item', 'source'] LOOP
    SELECT jsonb_agg(jsonb_build_array(kind, d.place, d.stored) ORDER BY d.place) INTO found
    FROM palaver_api.derived_records(who, conversation, kind, -1, 2147483647) AS d;
    derived_rows := derived_rows || coalesce(found, '[]');
  END LOOP;
  RETURN NEXT;
END $$;
