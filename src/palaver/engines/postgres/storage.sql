-- Attachments in Supabase Storage: a private bucket. The first folder of a path is the id of the user who uploaded the
-- file, the second the conversation. For the SQL editor of a project that has Palaver's schema; safe to run again.

INSERT INTO storage.buckets (id, name, public) VALUES ('chat-attachments', 'chat-attachments', false)
ON CONFLICT (id) DO UPDATE SET public = false;

-- doomed_file: whether this file is listed for deletion, and belonged to a conversation that the caller may see
CREATE OR REPLACE FUNCTION palaver.doomed_file(name text) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
  SELECT EXISTS (SELECT 1 FROM doomed_blobs d JOIN conversations c ON c.tenant = d.tenant AND c.cid = d.cid
      WHERE d.tenant = claimed_tenant() AND d.path = name AND c.id = split_part(name, '/', 2))
$$;

-- listed_file: whether a conversation that the caller may see has this file, or had it until it was forgotten
CREATE OR REPLACE FUNCTION palaver.listed_file(name text) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
  SELECT EXISTS (SELECT 1 FROM conversations c JOIN attachments a ON a.tenant = c.tenant AND a.cid = c.cid
      WHERE c.tenant = claimed_tenant() AND c.id = split_part(name, '/', 2) AND a.path = name)
    OR doomed_file(name)
$$;

REVOKE ALL ON FUNCTION palaver.listed_file(text), palaver.doomed_file(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION palaver.listed_file(text), palaver.doomed_file(text) TO authenticated;

DROP POLICY IF EXISTS palaver_upload ON storage.objects;
CREATE POLICY palaver_upload ON storage.objects FOR INSERT TO authenticated WITH CHECK (
  bucket_id = 'chat-attachments' AND (SELECT palaver.claimed_tenant()) IS NOT NULL
  AND (storage.foldername(name))[1] = (SELECT palaver.claims() ->> 'sub'));

DROP POLICY IF EXISTS palaver_download ON storage.objects;
CREATE POLICY palaver_download ON storage.objects FOR SELECT TO authenticated USING (
  bucket_id = 'chat-attachments'
  AND ((storage.foldername(name))[1] = (SELECT palaver.claims() ->> 'sub') OR palaver.listed_file(name)));

-- A caller who forgets a turn deletes its files, even those that another user uploaded.
DROP POLICY IF EXISTS palaver_remove ON storage.objects;
CREATE POLICY palaver_remove ON storage.objects FOR DELETE TO authenticated USING (
  bucket_id = 'chat-attachments'
  AND ((storage.foldername(name))[1] = (SELECT palaver.claims() ->> 'sub') OR palaver.doomed_file(name)));
