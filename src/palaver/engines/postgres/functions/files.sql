-- Attachments, and the text that is extracted from them.

-- attach: store the row of a file; false when an earlier attempt of this call stored it
CREATE OR REPLACE FUNCTION palaver_api.attach(who jsonb, conversation text, attachment jsonb) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'write');
  c palaver.conversations := open_thread(me, conversation);
  a palaver.attachments := jsonb_populate_record(NULL::palaver.attachments, attachment);
BEGIN
  -- A file belongs to its owner and lies in its conversation's folder. A caller who could store a row with the path of
  -- another file could have that file deleted. The path of a file in the database (see compat/hal.sql) ends in its own id.
  IF (me."user" IS NOT NULL AND a.owner <> me."user") OR split_part(a.path, '/', 2) <> c.id
    OR (asking_role() = 'authenticated' AND split_part(a.path, '/', 1) <> me."user"
      AND a.path <> 'database/' || c.id || '/' || a.id) THEN
    PERFORM fail('PV021', 'admin');
  END IF;
  PERFORM check_sha256(a.sha256), check_count('bytes', a.bytes), check_text('id', a.id, 512),
    check_text('filename', a.filename, 512), check_text('media_type', a.media_type, 512), check_text('path', a.path, 2048);
  IF is_watched(c.settings) THEN
    PERFORM check_texts(ARRAY[a.filename]);
  END IF;
  IF EXISTS (SELECT 1 FROM attachments o WHERE o.tenant = c.tenant AND o.cid = c.cid AND o.id = a.id
             AND o.sha256 = a.sha256) THEN
    RETURN false;
  END IF;
  c.updated := tick(me, c);
  INSERT INTO attachments (tenant, cid, id, owner, filename, media_type, bytes, sha256, path, created)
  VALUES (c.tenant, c.cid, a.id, a.owner, a.filename, a.media_type, a.bytes, a.sha256, a.path, c.updated);
  PERFORM save(log(me, c, 'attach', payload => jsonb_build_object('attachment', a.id)));
  RETURN true;
END $$;

CREATE OR REPLACE FUNCTION palaver_api.attachment(who jsonb, conversation text, id text)
RETURNS TABLE (filename text, media_type text, bytes bigint, sha256 text, path text, owner text, turn text)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'read');
  c palaver.conversations := find(me, conversation);
BEGIN
  RETURN QUERY SELECT a.filename, a.media_type, a.bytes, a.sha256, a.path, a.owner, t.id FROM attachments a
  LEFT JOIN turns t ON t.tenant = a.tenant AND t.tid = a.tid
  WHERE a.tenant = c.tenant AND a.cid = c.cid AND a.id = attachment.id;
  IF NOT FOUND THEN
    PERFORM fail('PV005', attachment.id);
  END IF;
END $$;

-- attachments: list the files of a conversation, newest first
CREATE OR REPLACE FUNCTION palaver_api.attachments(who jsonb, conversation text, before text, most integer)
RETURNS TABLE (id text, filename text, media_type text, bytes bigint, sha256 text, path text, owner text, turn text)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
#variable_conflict use_column
DECLARE
  me asker := enter(who, 'read');
  c palaver.conversations := find(me, conversation);
BEGIN
  RETURN QUERY SELECT a.id, a.filename, a.media_type, a.bytes, a.sha256, a.path, a.owner, t.id FROM attachments a
  LEFT JOIN turns t ON t.tenant = a.tenant AND t.tid = a.tid
  WHERE a.tenant = c.tenant AND a.cid = c.cid AND (attachments.before IS NULL OR a.aid < (
    SELECT b.aid FROM attachments b WHERE b.tenant = c.tenant AND b.cid = c.cid AND b.id = attachments.before))
  ORDER BY a.aid DESC LIMIT most;
END $$;

-- drop_loose_files: delete files that were never attached to a turn; in batches. Returns how many
CREATE OR REPLACE FUNCTION palaver_api.drop_loose_files(who jsonb, before bigint, most integer)
RETURNS TABLE (dropped bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'write');
  c palaver.conversations;
  one record;
BEGIN
  dropped := 0;
  FOR one IN SELECT o.id AS conversation, a.id, a.path FROM attachments a
      JOIN conversations o ON o.tenant = a.tenant AND o.cid = a.cid
      WHERE a.tenant = me.tenant AND a.tid IS NULL AND a.created < before AND o.gone IS NULL
        AND (o.expires_at IS NULL OR o.expires_at > me.now) ORDER BY a.cid, a.aid LIMIT most LOOP
    CONTINUE WHEN NOT lock_if_there(me, one.conversation);
    c := open_thread(me, one.conversation);
    DELETE FROM attachments a WHERE a.tenant = c.tenant AND a.cid = c.cid AND a.id = one.id AND a.tid IS NULL;
    CONTINUE WHEN NOT FOUND;  -- attached to a turn while this waited for the lock
    INSERT INTO doomed_blobs (tenant, path, cid) VALUES (c.tenant, one.path, c.cid) ON CONFLICT DO NOTHING;
    c.updated := tick(me, c);
    PERFORM save(log(me, c, 'detach', payload => jsonb_build_object('attachment', one.id)));
    dropped := dropped + 1;
  END LOOP;
  RETURN NEXT;
END $$;

-- orphans: the paths that lie in the folder of a conversation that the caller may see (even a deleted one) but
-- belong to no row
CREATE OR REPLACE FUNCTION palaver_api.orphans(who jsonb, paths text[]) RETURNS TABLE (path text)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
#variable_conflict use_column
DECLARE me asker := enter(who, 'write');
BEGIN
  RETURN QUERY SELECT p.path FROM unnest(paths) AS p (path)
  JOIN conversations c ON c.tenant = me.tenant AND c.id = split_part(p.path, '/', 2)
  WHERE NOT EXISTS (SELECT 1 FROM attachments a WHERE a.tenant = me.tenant AND a.cid = c.cid AND a.path = p.path)
    AND NOT EXISTS (SELECT 1 FROM doomed_blobs d WHERE d.tenant = me.tenant AND d.path = p.path);
END $$;

-- ---- text of files --------------------------------------------------------------------------------------------------

-- unread_files: files of turns whose text has not been extracted. Files of tool turns are excluded: they are full
-- tool outputs
CREATE OR REPLACE FUNCTION palaver_api.unread_files(who jsonb, conversation text, most integer)
RETURNS TABLE (id text, filename text, media_type text, bytes bigint, sha256 text, path text, owner text, turn text)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
#variable_conflict use_column
DECLARE
  me asker := enter(who, 'read');
  c palaver.conversations := find(me, conversation);
BEGIN
  RETURN QUERY SELECT a.id, a.filename, a.media_type, a.bytes, a.sha256, a.path, a.owner, t.id FROM attachments a
  JOIN turns t ON t.tenant = a.tenant AND t.tid = a.tid
  WHERE a.tenant = c.tenant AND a.cid = c.cid AND a.characters IS NULL AND t.role <> 'tool'
  ORDER BY a.aid LIMIT most;
END $$;

-- put_file_text: store the text of a file as a list of [text, number of stems, tsvector] per piece. False when the
-- file is gone or was read already. The conversation is locked first, as for every change of the text index
CREATE OR REPLACE FUNCTION palaver_api.put_file_text(who jsonb, conversation text, file text, length bigint,
  trouble text, pieces jsonb) RETURNS TABLE (stored boolean)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'write');
  c palaver.conversations := open_thread(me, conversation);
  a palaver.attachments;
  first integer;
BEGIN
  UPDATE attachments o SET characters = length, problem = trouble
  WHERE o.tenant = c.tenant AND o.cid = c.cid AND o.id = file AND o.tid IS NOT NULL AND o.characters IS NULL
  RETURNING * INTO a;
  stored := FOUND;
  RETURN NEXT;
  IF NOT stored THEN
    RETURN;
  END IF;
  first := 100000 * (1 + (SELECT count(*) FROM attachments o
    WHERE o.tenant = a.tenant AND o.cid = a.cid AND o.tid = a.tid AND o.aid < a.aid));
  INSERT INTO file_passages (tenant, tid, part, cid, id, text)
  SELECT a.tenant, a.tid, first + p.n - 1, a.cid, a.id, p.piece ->> 0
  FROM jsonb_array_elements(pieces) WITH ORDINALITY AS p (piece, n) ON CONFLICT DO NOTHING;
  INSERT INTO passages (tenant, cid, tid, part, size, terms)
  SELECT a.tenant, a.cid, a.tid, first + p.n - 1, (p.piece ->> 1)::integer, (p.piece ->> 2)::tsvector
  FROM jsonb_array_elements(pieces) WITH ORDINALITY AS p (piece, n) WHERE (p.piece ->> 1)::integer > 0
  ON CONFLICT DO NOTHING;
  UPDATE conversations o SET passage_count = o.passage_count + n.passages, passage_terms = o.passage_terms + n.terms,
    to_embed = true
  FROM (SELECT count(*) AS passages, coalesce(sum((p.piece ->> 1)::bigint), 0) AS terms
    FROM jsonb_array_elements(pieces) AS p (piece) WHERE (p.piece ->> 1)::integer > 0) AS n
  WHERE o.tenant = c.tenant AND o.cid = c.cid AND n.passages > 0;
  IF FOUND THEN
    PERFORM put_job(c.tenant, c.cid, 'embed', NULL, me.now);
  END IF;
  PERFORM touch(c.cid, ARRAY['file/' || a.id]), save(c);
END $$;

-- file_text: the extracted text of a file; `length` is NULL while it is not extracted, or when it is not what the log says
CREATE OR REPLACE FUNCTION palaver_api.file_text(who jsonb, conversation text, file text)
RETURNS TABLE (length bigint, trouble text, words text)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'read');
  c palaver.conversations := find(me, conversation);
BEGIN
  RETURN QUERY SELECT CASE WHEN fits(c.tenant, c.cid, 'file/' || file) THEN a.characters END, a.problem,
    (SELECT string_agg(f.text, '' ORDER BY f.part) FROM file_passages f
    WHERE f.tenant = c.tenant AND f.cid = c.cid AND f.id = file)
  FROM attachments a WHERE a.tenant = c.tenant AND a.cid = c.cid AND a.id = file;
  IF NOT FOUND THEN
    PERFORM fail('PV005', file);
  END IF;
END $$;

-- file_quotes: for each turn, the piece of its files that contains the most stems
CREATE OR REPLACE FUNCTION palaver_api.file_quotes(who jsonb, tids bigint[], stems text[])
RETURNS TABLE (tid bigint, attachment text, filename text, quote text)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp
  SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
DECLARE me asker := enter(who, 'read');
BEGIN
  RETURN QUERY SELECT b.tid, b.id, b.filename, b.text FROM (SELECT DISTINCT ON (f.tid) f.tid, a.id, a.filename, f.text, f.cid FROM file_passages f
  JOIN passages p ON p.tenant = me.tenant AND p.cid = f.cid AND p.tid = f.tid AND p.part = f.part
  JOIN attachments a ON a.tenant = me.tenant AND a.cid = f.cid AND a.id = f.id
  JOIN conversations c ON c.tenant = me.tenant AND c.cid = f.cid AND c.gone IS NULL
    AND (c.expires_at IS NULL OR c.expires_at > me.now)
  CROSS JOIN LATERAL (SELECT count(*) AS held FROM unnest(tsvector_to_array(p.terms)) AS w (stem)
    WHERE w.stem = ANY (stems)) AS n
  WHERE f.tenant = me.tenant AND f.tid = ANY (tids) AND n.held > 0
  ORDER BY f.tid, n.held DESC, f.part) AS b WHERE fits(me.tenant, b.cid, 'file/' || b.id);
END $$;
