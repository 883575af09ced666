-- Proof of derived rows: summaries, working memory, facts, the text of files, requests and their bodies. The log has their
-- hashes; core/derived_rows.py has the form of the events. Functions that change such a row call `touch`; the next event of
-- the conversation, or `save`, then has its hash. No reader uses a row that does not match (`fits`).

-- derived_hash: the hash of a row as it is now; NULL when there is no such row. The fields are those of FIELDS in
-- core/derived_rows.py
CREATE OR REPLACE FUNCTION palaver.derived_hash(tenant text, cid bigint, key text, salt bytea) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  kind text := split_part(key, '/', 1);
  own text := substr(key, length(kind) + 2);  -- the row's id
  told bytea;
BEGIN
  CASE kind
    WHEN 'summary' THEN
      SELECT fields(s.id, s.level::text, s.from_seq::text, s.through_seq::text, s.turns::text, s.tokens::text, s.text,
        s.token_count::text, s.model, s.stale::text, s.created::text) INTO told
      FROM summaries s WHERE s.tenant = derived_hash.tenant AND s.cid = derived_hash.cid
        AND s.level = split_part(key, '/', 2)::integer AND s.from_seq = split_part(key, '/', 3)::bigint;
    WHEN 'notes' THEN
      SELECT fields(w.memory, w.through_seq::text) INTO told
      FROM working_memory w WHERE w.tenant = derived_hash.tenant AND w.cid = derived_hash.cid;
    WHEN 'fact' THEN
      SELECT fields(f.id, f.subject, f.predicate, f.object, f.source_turn,
        trunc(f.confidence * 9007199254740992)::bigint::text, f.valid_from::text, f.invalidated_at::text,
        f.invalidated_by, f."by", f.created::text) || CASE WHEN f.valid_to IS NULL AND f.learnt IS NULL THEN ''::bytea
        ELSE fields(f.valid_to::text, f.learnt::text) END INTO told
      FROM facts f WHERE f.tenant = derived_hash.tenant AND f.cid = derived_hash.cid AND f.id = own;
    WHEN 'file' THEN
      SELECT fields(a.characters::text, a.problem, p.pieces, coalesce(p.words, '')) INTO told
      FROM attachments a CROSS JOIN LATERAL (
        SELECT string_agg(o.part || ':' || char_length(o.text), ',' ORDER BY o.part) AS pieces,
          string_agg(o.text, '' ORDER BY o.part) AS words
        FROM file_passages o WHERE o.tenant = derived_hash.tenant AND o.cid = a.cid AND o.id = a.id AND o.tid = a.tid) AS p
      WHERE a.tenant = derived_hash.tenant AND a.cid = derived_hash.cid AND a.id = own
        AND a.characters IS NOT NULL;
    WHEN 'request' THEN
      SELECT fields(r.id, r.turn, r.purpose, r.at::text, r.model, r.adapter, r.next_seq::text, r.explanation, r.response)
      INTO told FROM requests r
      WHERE r.tenant = derived_hash.tenant AND r.cid = derived_hash.cid AND r.id = own;
    WHEN 'body' THEN
      SELECT fields(r.body) INTO told FROM requests r
      WHERE r.tenant = derived_hash.tenant AND r.cid = derived_hash.cid AND r.id = own AND r.body IS NOT NULL;
    WHEN 'item' THEN
      SELECT fields(i.id, i.kind, i.subject, i.predicate, i.object, trunc(i.confidence * 9007199254740992)::bigint::text,
        i.valid_from::text, i.valid_to::text, i.learnt::text, i.ended_at::text, i.ended_by, i.origin, i.status, i.said_by,
        i."by", i.created::text) INTO told
      FROM items i WHERE i.tenant = derived_hash.tenant AND i.cid = derived_hash.cid AND i.id = own;
    WHEN 'source' THEN
      SELECT fields(s.item, s.conversation, s.turn, s.said::text) INTO told
      FROM item_sources s WHERE s.tenant = derived_hash.tenant AND s.cid = derived_hash.cid
        AND s.item = split_part(key, '/', 2) AND s.turn = split_part(key, '/', 3);
  END CASE;
  RETURN encode(sha256(fields('palaver/derived/1') || field(salt) || fields(key) || told), 'hex');
END $$;

-- covered: whether the log knows every derived row of a conversation; a new one says so in its first event
CREATE OR REPLACE FUNCTION palaver.covered(tenant text, cid bigint) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  RETURN EXISTS (SELECT 1 FROM proofs p WHERE p.tenant = covered.tenant AND p.cid = covered.cid AND p.key = '')
    OR EXISTS (SELECT 1 FROM events e WHERE e.tenant = covered.tenant AND e.cid = covered.cid AND e.n = 1
      AND e.payload::jsonb ->> 'proof' = '1');
END $$;

-- fits: whether a derived row is what the log says. False for one that was changed or inserted by other means
CREATE OR REPLACE FUNCTION palaver.fits(tenant text, cid bigint, key text) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  salt bytea;
  logged text;
BEGIN
  SELECT p.salt, e.payload::jsonb -> 'rows' ->> fits.key INTO salt, logged FROM proofs p
  LEFT JOIN events e ON e.tenant = fits.tenant AND e.cid = fits.cid AND e.n = p.n
  WHERE p.tenant = fits.tenant AND p.cid = fits.cid AND p.key = fits.key;
  IF NOT FOUND THEN
    RETURN NOT covered(fits.tenant, fits.cid);
  END IF;
  RETURN coalesce(logged = derived_hash(fits.tenant, fits.cid, fits.key, salt), false);
END $$;

-- derived_keys: the keys of all derived rows of a conversation
CREATE OR REPLACE FUNCTION palaver.derived_keys(tenant text, cid bigint) RETURNS SETOF text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  RETURN QUERY SELECT 'notes' FROM working_memory w WHERE w.tenant = derived_keys.tenant AND w.cid = derived_keys.cid;
  RETURN QUERY SELECT 'summary/' || s.level || '/' || s.from_seq FROM summaries s
    WHERE s.tenant = derived_keys.tenant AND s.cid = derived_keys.cid;
  RETURN QUERY SELECT 'fact/' || f.id FROM facts f WHERE f.tenant = derived_keys.tenant AND f.cid = derived_keys.cid;
  RETURN QUERY SELECT 'file/' || a.id FROM attachments a
    WHERE a.tenant = derived_keys.tenant AND a.cid = derived_keys.cid AND a.characters IS NOT NULL;
  RETURN QUERY SELECT 'request/' || r.id FROM requests r WHERE r.tenant = derived_keys.tenant AND r.cid = derived_keys.cid;
  RETURN QUERY SELECT 'body/' || r.id FROM requests r
    WHERE r.tenant = derived_keys.tenant AND r.cid = derived_keys.cid AND r.body IS NOT NULL;
  RETURN QUERY SELECT 'item/' || i.id FROM items i WHERE i.tenant = derived_keys.tenant AND i.cid = derived_keys.cid;
  RETURN QUERY SELECT 'source/' || s.item || '/' || s.turn FROM item_sources s
    WHERE s.tenant = derived_keys.tenant AND s.cid = derived_keys.cid;
END $$;

-- ---- writing --------------------------------------------------------------------------------------------------------

-- touch: note that derived rows were written or deleted. The note lives as long as the transaction
CREATE OR REPLACE FUNCTION palaver.touch(cid bigint, keys text[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  IF cardinality(keys) > 0 THEN
    PERFORM set_config('palaver.touched', (coalesce(nullif(current_setting('palaver.touched', true), ''), '{}')::text[]
      || ARRAY(SELECT touch.cid || ' ' || k FROM unnest(keys) AS k))::text, true);
  END IF;
END $$;

-- prove: hash derived rows as they are now, each with a new salt, for the event `n`, and return that event's `rows`
CREATE OR REPLACE FUNCTION palaver.prove(tenant text, cid bigint, n bigint, keys text[]) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  one text;
  fresh bytea;
  hash text;
  rows jsonb := '{}';
BEGIN
  FOR one IN SELECT DISTINCT k FROM unnest(keys) AS k ORDER BY k LOOP
    fresh := uuid_send(gen_random_uuid());
    hash := derived_hash(tenant, cid, one, fresh);
    IF hash IS NULL THEN
      DELETE FROM proofs p WHERE p.tenant = prove.tenant AND p.cid = prove.cid AND p.key = one;
      CONTINUE WHEN NOT FOUND;
    ELSE
      INSERT INTO proofs (tenant, cid, key, n, salt) VALUES (prove.tenant, prove.cid, one, prove.n, fresh)
      ON CONFLICT ON CONSTRAINT proofs_pkey DO UPDATE SET n = excluded.n, salt = excluded.salt;
    END IF;
    rows := rows || jsonb_build_object(one, hash);
  END LOOP;
  RETURN rows;
END $$;

-- prove_touched: do so for the rows that this transaction touched; NULL when the log has nothing to say of them. A
-- conversation from an earlier version is brought in by a job
CREATE OR REPLACE FUNCTION palaver.prove_touched(c palaver.conversations) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  mark text := c.cid || ' ';
  rows jsonb := prove(c.tenant, c.cid, c.next_n, ARRAY(SELECT substr(t, length(mark) + 1)
    FROM unnest(current_setting('palaver.touched')::text[]) AS t WHERE starts_with(t, mark)));
BEGIN
  PERFORM set_config('palaver.touched', '', true);
  IF rows = '{}' THEN
    RETURN NULL;
  ELSIF NOT covered(c.tenant, c.cid) THEN
    PERFORM put_job(c.tenant, c.cid, 'prove', NULL, c.updated);
  END IF;
  RETURN jsonb_build_object('rows', rows);
END $$;

-- prove_rows: bring rows from before proofs into the log, up to a number. True when there are more
CREATE OR REPLACE FUNCTION palaver_api.prove_rows(who jsonb, conversation text, most integer) RETURNS TABLE (more boolean)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'write');
  c palaver.conversations := open_thread(me, conversation);
  keys text[];
  rows jsonb;
BEGIN
  more := false;
  IF NOT covered(c.tenant, c.cid) THEN
    keys := ARRAY(SELECT k FROM derived_keys(c.tenant, c.cid) AS k WHERE k NOT IN (
      SELECT p.key FROM proofs p WHERE p.tenant = c.tenant AND p.cid = c.cid) LIMIT most);
    more := cardinality(keys) >= most;
    rows := jsonb_build_object('rows', prove(c.tenant, c.cid, c.next_n, keys));
    IF NOT more THEN
      rows := rows || '{"proof": 1}';
      INSERT INTO proofs (tenant, cid, key, n, salt) VALUES (c.tenant, c.cid, '', c.next_n, '');
    END IF;
    PERFORM save(log(me, c, 'prove', payload => rows));
  END IF;
  RETURN NEXT;
END $$;

-- carry_proofs: log again what the events up to a number, which are to be archived, say of rows that exist
CREATE OR REPLACE FUNCTION palaver.carry_proofs(me palaver.asker, c palaver.conversations, through bigint)
RETURNS palaver.conversations
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  one record;
  rows jsonb := '{}';
  held integer := 0;
BEGIN
  FOR one IN SELECT p.key, e.payload::jsonb -> 'rows' ->> p.key AS hash FROM proofs p
      JOIN events e ON e.tenant = c.tenant AND e.cid = c.cid AND e.n = p.n
      WHERE p.tenant = c.tenant AND p.cid = c.cid AND p.n <= through AND p.key <> '' ORDER BY p.key LOOP
    CONTINUE WHEN one.hash IS NULL;
    rows := rows || jsonb_build_object(one.key, one.hash);
    held := held + 1;
    UPDATE proofs p SET n = c.next_n WHERE p.tenant = c.tenant AND p.cid = c.cid AND p.key = one.key;
    IF held = 200 THEN
      c := log(me, c, 'prove', payload => jsonb_build_object('rows', rows));
      rows := '{}';
      held := 0;
    END IF;
  END LOOP;
  IF held > 0 THEN
    c := log(me, c, 'prove', payload => jsonb_build_object('rows', rows));
  END IF;
  RETURN c;
END $$;

-- ---- reading --------------------------------------------------------------------------------------------------------

-- mismatched_rows: the keys of derived rows that are not what the log says
CREATE OR REPLACE FUNCTION palaver_api.mismatched_rows(who jsonb, conversation text) RETURNS TABLE (key text)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'read');
  c palaver.conversations := find(me, conversation);
BEGIN
  RETURN QUERY SELECT k FROM derived_keys(c.tenant, c.cid) AS k WHERE NOT fits(c.tenant, c.cid, k);
END $$;

-- derived_records: one kind of derived rows as they are stored, each with the salt of its hash and the number of its event,
-- as JSON; page by page, in the order of their numbers
CREATE OR REPLACE FUNCTION palaver_api.derived_records(who jsonb, conversation text, kind text, after bigint, most integer)
RETURNS TABLE (place bigint, stored text)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
#variable_conflict use_column
DECLARE
  me asker := enter(who, 'read');
  c palaver.conversations := find(me, conversation);
BEGIN
  CASE kind
    WHEN 'working_memory' THEN
      RETURN QUERY SELECT 1::bigint, (jsonb_build_object('memory', w.memory, 'through_seq', w.through_seq)
          || proof_json(c.tenant, c.cid, 'notes', ''))::text
        FROM working_memory w WHERE w.tenant = c.tenant AND w.cid = c.cid AND after < 1;
    WHEN 'fact' THEN
      RETURN QUERY SELECT f.fid, (jsonb_build_object('id', f.id, 'subject', f.subject, 'predicate', f.predicate, 'object',
          f.object, 'source_turn', f.source_turn, 'confidence', f.confidence, 'valid_from', f.valid_from, 'invalidated_at',
          f.invalidated_at, 'invalidated_by', f.invalidated_by, 'by', f."by", 'created', f.created, 'valid_to', f.valid_to,
          'learnt', f.learnt)
          || proof_json(c.tenant, c.cid, 'fact/' || f.id, ''))::text
        FROM facts f WHERE f.tenant = c.tenant AND f.cid = c.cid AND f.fid > after ORDER BY f.fid LIMIT most;
    WHEN 'summary' THEN
      RETURN QUERY SELECT s.level * 1000000000000 + s.from_seq, (to_jsonb(s) - '{tenant,cid}'::text[]
          || proof_json(c.tenant, c.cid, 'summary/' || s.level || '/' || s.from_seq, ''))::text
        FROM summaries s WHERE s.tenant = c.tenant AND s.cid = c.cid AND s.level * 1000000000000 + s.from_seq > after
        ORDER BY 1 LIMIT most;
    WHEN 'file_text' THEN
      RETURN QUERY SELECT a.aid, (jsonb_build_object('id', a.id, 'characters', a.characters, 'problem', a.problem, 'pieces',
          p.pieces, 'text', coalesce(p.words, '')) || proof_json(c.tenant, c.cid, 'file/' || a.id, ''))::text
        FROM attachments a CROSS JOIN LATERAL (
          SELECT string_agg(o.part || ':' || char_length(o.text), ',' ORDER BY o.part) AS pieces,
            string_agg(o.text, '' ORDER BY o.part) AS words
          FROM file_passages o WHERE o.tenant = c.tenant AND o.cid = a.cid AND o.id = a.id AND o.tid = a.tid) AS p
        WHERE a.tenant = c.tenant AND a.cid = c.cid AND a.aid > after AND (a.characters IS NOT NULL OR EXISTS (
          SELECT 1 FROM file_passages o WHERE o.tenant = c.tenant AND o.cid = c.cid AND o.id = a.id))
        ORDER BY a.aid LIMIT most;
    WHEN 'item' THEN
      RETURN QUERY SELECT i.iid, (to_jsonb(i) - '{tenant,cid,iid}'::text[]
          || proof_json(c.tenant, c.cid, 'item/' || i.id, ''))::text
        FROM items i WHERE i.tenant = c.tenant AND i.cid = c.cid AND i.iid > after ORDER BY i.iid LIMIT most;
    WHEN 'source' THEN
      RETURN QUERY SELECT n.place, (jsonb_build_object('item', n.item, 'conversation', n.conversation, 'turn', n.turn, 'said',
          n.said) || proof_json(c.tenant, c.cid, 'source/' || n.item || '/' || n.turn, ''))::text
        FROM (SELECT row_number() OVER (ORDER BY s.item, s.turn) AS place, s.item, s.conversation, s.turn, s.said
          FROM item_sources s WHERE s.tenant = c.tenant AND s.cid = c.cid) AS n
        WHERE n.place > after ORDER BY n.place LIMIT most;
    WHEN 'request' THEN
      RETURN QUERY SELECT r.rid, (to_jsonb(r) - '{tenant,cid,rid}'::text[]
          || proof_json(c.tenant, c.cid, 'request/' || r.id, '') || proof_json(c.tenant, c.cid, 'body/' || r.id, 'body_'))::text
        FROM requests r WHERE r.tenant = c.tenant AND r.cid = c.cid AND r.rid > after ORDER BY r.rid LIMIT most;
    ELSE
      PERFORM fail('PV031', 'kind', 'must be working_memory, fact, summary, file_text, request, item or source');
  END CASE;
END $$;

-- proof_json: the salt of a row's hash and the number of its event, under names that begin with `head`
CREATE OR REPLACE FUNCTION palaver.proof_json(tenant text, cid bigint, key text, head text) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  RETURN coalesce((SELECT jsonb_build_object(head || 'salt', encode(p.salt, 'hex'), head || 'proof', p.n) FROM proofs p
      WHERE p.tenant = proof_json.tenant AND p.cid = proof_json.cid AND p.key = proof_json.key),
    jsonb_build_object(head || 'salt', NULL, head || 'proof', NULL));
END $$;
