-- Attachments, and the files of those that are deleted.

CREATE OR REPLACE FUNCTION palaver_api.attach(who jsonb, conversation text, attachment jsonb) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'write');
  c palaver.conversations := open_thread(me, conversation);
  a palaver.attachments := jsonb_populate_record(NULL::palaver.attachments, attachment);
BEGIN
  -- A file is somebody's own and lies in its conversation's folder: whoever could name another's could have it deleted.
  IF (me."user" IS NOT NULL AND a.owner <> me."user") OR split_part(a.path, '/', 2) <> c.id
    OR (asking_role() = 'authenticated' AND split_part(a.path, '/', 1) <> me."user") THEN
    PERFORM fail('PV021', 'admin');
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
  me asker := enter(who);
  c palaver.conversations := find(me, conversation);
BEGIN
  RETURN QUERY SELECT a.filename, a.media_type, a.bytes, a.sha256, a.path, a.owner, t.id FROM attachments a
  LEFT JOIN turns t ON t.tenant = a.tenant AND t.tid = a.tid
  WHERE a.tenant = c.tenant AND a.cid = c.cid AND a.id = attachment.id;
  IF NOT FOUND THEN
    PERFORM fail('PV005', attachment.id);
  END IF;
END $$;

-- doomed_blobs: files to remove
CREATE OR REPLACE FUNCTION palaver_api.doomed_blobs(who jsonb, most integer) RETURNS SETOF text
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE me asker := enter(who, 'write');
BEGIN
  RETURN QUERY SELECT b.path FROM doomed_blobs b WHERE b.tenant = me.tenant ORDER BY b.path LIMIT most;
END $$;

-- blobs_deleted: files that are removed
CREATE OR REPLACE FUNCTION palaver_api.blobs_deleted(who jsonb, paths text[]) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE me asker := enter(who, 'write');
BEGIN
  DELETE FROM doomed_blobs b WHERE b.tenant = me.tenant AND b.path = ANY (paths);
  RETURN true;
END $$;
