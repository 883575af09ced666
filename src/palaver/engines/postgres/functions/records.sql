-- The log, whole conversations row by row, and the counts.

-- events: the log, filtered; also after the conversation's end
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

-- event_records, turn_records, attachment_records: what is stored of a conversation, a page at a time
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

-- working_memory_records, fact_records: what was noted and learnt of it
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

-- restore: a conversation, exactly as it was exported; nothing when it is here already, the same to the last event.
-- `records` are [kind, row]; the rows of turns have their `words`
CREATE OR REPLACE FUNCTION palaver_api.restore(who jsonb, records jsonb, words text DEFAULT NULL, size integer DEFAULT 0)
RETURNS SETOF palaver.conversations
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'write');
  c palaver.conversations := jsonb_populate_record(NULL::palaver.conversations, records -> 0 -> 1);
  known palaver.conversations;
  one record;
  t palaver.turns;
BEGIN
  IF strpos(',' || me.rights || ',', ',admin,') = 0 THEN
    PERFORM fail('PV021', 'admin');
  END IF;
  SELECT * INTO known FROM conversations o WHERE o.tenant = me.tenant AND o.id = c.id;
  IF FOUND THEN
    IF known.gone IS NOT NULL THEN
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
    content_hash, created, updated, minute, compact_turns, compact_tokens)
  VALUES (me.tenant, c.id, c.owner, c.key, c.workspace, c.agent, c.model, c.title, c.preview, c.participants,
    members_of(c.participants), c.metadata, c.settings, c.ttl, c.expires_at, c.turn_count, c.token_count, c.next_seq,
    c.next_n, c.tip_position, c.tip_slot, c.tip_hash, c.salt, c.content_hash, c.created, c.updated, c.minute,
    c.compact_turns, c.compact_tokens)
  RETURNING * INTO c;
  PERFORM index_title(c, words, size);
  INSERT INTO events SELECT e.* FROM jsonb_array_elements(records) AS r,
    jsonb_populate_record(NULL::palaver.events, (r -> 1) || jsonb_build_object('tenant', c.tenant, 'cid', c.cid)) AS e
    WHERE r ->> 0 = 'event';
  FOR one IN SELECT r -> 1 AS row FROM jsonb_array_elements(records) AS r WHERE r ->> 0 = 'turn' LOOP
    t := jsonb_populate_record(NULL::palaver.turns, one.row);
    t.tenant := c.tenant;
    t.cid := c.cid;
    t.tid := nextval('palaver.turn_numbers');
    IF t.status <> 'forgotten' THEN
      PERFORM check_turn(t);
    END IF;
    INSERT INTO turns VALUES (t.*);
    IF t.status = 'pending' THEN
      INSERT INTO streams (tenant, tid, cid, lease_until, length)
      VALUES (t.tenant, t.tid, t.cid, me.now, char_length(t.content));
    ELSIF t.status = 'complete' THEN
      PERFORM index_turn(t, one.row -> 'words');
    END IF;
  END LOOP;
  INSERT INTO attachments (tenant, cid, id, tid, owner, filename, media_type, bytes, sha256, path, created)
  SELECT c.tenant, c.cid, a.id, o.tid, a.owner, a.filename, a.media_type, a.bytes, a.sha256, a.path, a.created
  FROM jsonb_array_elements(records) WITH ORDINALITY AS r (value, n)
    CROSS JOIN jsonb_populate_record(NULL::palaver.attachments, r.value -> 1) AS a
    LEFT JOIN turns o ON o.tenant = c.tenant AND o.cid = c.cid AND o.seq = stamped_seq(r.value -> 1 ->> 'turn')
  WHERE r.value ->> 0 = 'attachment' ORDER BY r.n;
  IF FOUND THEN
    PERFORM put_job(c.tenant, c.cid, 'files', NULL, me.now);
  END IF;
  INSERT INTO working_memory (tenant, cid, memory, through_seq, updated)
  SELECT c.tenant, c.cid, r -> 1 ->> 'memory',
    coalesce(((r -> 1 ->> 'memory')::jsonb ->> 'through_seq')::bigint, -1), me.now
  FROM jsonb_array_elements(records) AS r WHERE r ->> 0 = 'working_memory';
  INSERT INTO facts (tenant, cid, id, subject, predicate, object, source_turn, confidence, valid_from, invalidated_at,
    invalidated_by, by, created)
  SELECT c.tenant, c.cid, f.id, f.subject, f.predicate, f.object, f.source_turn, f.confidence, f.valid_from,
    f.invalidated_at, f.invalidated_by, f.by, f.created
  FROM jsonb_array_elements(records) WITH ORDINALITY AS r (value, n)
    CROSS JOIN jsonb_populate_record(NULL::palaver.facts, r.value -> 1) AS f
  WHERE r.value ->> 0 = 'fact' ORDER BY r.n;
  IF FOUND THEN
    PERFORM put_job(c.tenant, c.cid, 'embed', NULL, me.now);
  END IF;
  PERFORM save_appended(c, count(*), coalesce(sum(p.size), 0)::bigint, me.now) FROM passages p
    WHERE p.tenant = c.tenant AND p.cid = c.cid AND p.tid IS NOT NULL;
  RETURN NEXT find(me, c.id);
END $$;

-- stats: counts inside what somebody may see, and what waits in the tenant
CREATE OR REPLACE FUNCTION palaver_api.stats(who jsonb) RETURNS TABLE (conversations bigint, turns bigint, tokens bigint,
  events bigint, attachments bigint, attachment_bytes bigint, open_streams bigint, files_to_delete bigint, outbox jsonb,
  server text, bytes bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE me asker := enter(who, 'read');
BEGIN
  RETURN QUERY WITH seen AS (
    SELECT c.* FROM palaver.conversations c WHERE c.tenant = me.tenant AND c.gone IS NULL
      AND (c.expires_at IS NULL OR c.expires_at > me.now)
  ), files AS (
    SELECT count(*) AS files, coalesce(sum(a.bytes), 0)::bigint AS size FROM palaver.attachments a
    WHERE a.tenant = me.tenant AND a.cid IN (SELECT s.cid FROM seen s)
  ), kinds AS (
    SELECT j.kind, j.dead, count(*) AS jobs, max(j.attempts) AS attempts, max(j.error) AS error
    FROM palaver.jobs j WHERE j.tenant = me.tenant GROUP BY j.kind, j.dead
  )
  SELECT count(*), coalesce(sum(s.turn_count), 0)::bigint, coalesce(sum(s.token_count), 0)::bigint,
    coalesce(sum(s.next_n - 1), 0)::bigint, (SELECT f.files FROM files f), (SELECT f.size FROM files f),
    (SELECT count(*) FROM streams o WHERE o.tenant = me.tenant AND o.cid IN (SELECT s2.cid FROM seen s2)),
    (SELECT count(*) FROM doomed_blobs b WHERE b.tenant = me.tenant),
    (SELECT coalesce(jsonb_agg(to_jsonb(k)), '[]') FROM kinds k),
    current_setting('server_version'), pg_database_size(current_database())
  FROM seen s;
END $$;
