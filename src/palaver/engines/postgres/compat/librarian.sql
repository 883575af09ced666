-- `conversation_messages` (session_id, role, content, metadata, created_at) over Palaver's data. A session is the
-- conversation whose key is its UUID. Run common.sql first; this file can be run again.

DO $$
BEGIN
  IF EXISTS (SELECT 1 FROM pg_class WHERE oid = to_regclass('public.conversation_messages') AND relkind <> 'v') THEN
    RAISE EXCEPTION 'public.conversation_messages is a table: rename it, then import it (docs/how-to/tables.md)';
  END IF;
END $$;

-- The conversation of each session. A table, because a policy keeps the planner from using an index on a cast.
CREATE TABLE IF NOT EXISTS palaver_compat.sessions (
  tenant text NOT NULL,
  cid bigint NOT NULL,
  session_id uuid NOT NULL,
  PRIMARY KEY (tenant, cid),
  FOREIGN KEY (tenant, cid) REFERENCES palaver.conversations
);
CREATE INDEX IF NOT EXISTS sessions_by_id ON palaver_compat.sessions (tenant, session_id);

-- session_of: a key as a UUID; NULL when it is not one
CREATE OR REPLACE FUNCTION palaver_compat.session_of(key text) RETURNS uuid LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN CASE WHEN key ~ '^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$' THEN key::uuid END;

-- know_session: update `sessions` when a conversation is created or deleted, or its key changes
CREATE OR REPLACE FUNCTION palaver_compat.know_session() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, palaver_compat, pg_temp AS $$
BEGIN
  DELETE FROM sessions s WHERE s.tenant = NEW.tenant AND s.cid = NEW.cid AND TG_OP = 'UPDATE';
  INSERT INTO sessions (tenant, cid, session_id)
  SELECT NEW.tenant, NEW.cid, session_of(NEW.key) WHERE session_of(NEW.key) IS NOT NULL AND NEW.gone IS NULL;
  RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER know_session AFTER INSERT OR UPDATE OF key ON palaver.conversations
FOR EACH ROW EXECUTE FUNCTION palaver_compat.know_session();

-- metadata_of: the program's own metadata, with the tool calls, tokens and model of the turn
CREATE OR REPLACE FUNCTION palaver_compat.metadata_of(t palaver.turns) RETURNS jsonb LANGUAGE sql STABLE PARALLEL SAFE
  RETURN jsonb_strip_nulls(jsonb_build_object('tool_calls', (t).tool_calls::jsonb, 'tool_results', (t).tool_results::jsonb,
      'model', (t).model, 'token_count', (t).token_count, 'tokens', CASE WHEN (t).prompt_tokens IS NOT NULL
        OR (t).completion_tokens IS NOT NULL THEN jsonb_build_object('prompt', (t).prompt_tokens, 'completion',
        (t).completion_tokens) END)) || coalesce((t).metadata::jsonb, '{}');

CREATE OR REPLACE VIEW public.conversation_messages WITH (security_invoker = true) AS
SELECT palaver_compat.as_uuid(t.id) AS id, s.session_id, t.role, palaver_compat.text_of(t.content, t.is_parts) AS content,
  palaver_compat.metadata_of(t) AS metadata, palaver_compat.moment(t.created) AS created_at
FROM palaver_compat.sessions s
JOIN palaver.conversations c ON c.tenant = s.tenant AND c.cid = s.cid AND c.gone IS NULL
  AND (c.expires_at IS NULL OR c.expires_at > palaver_compat.micros(now()))
JOIN palaver.turns t ON t.tenant = s.tenant AND t.cid = s.cid AND t.active = 1 AND t.status = 'complete'
WHERE s.tenant = (SELECT (palaver_compat.caller()).tenant) AND (SELECT (palaver_compat.caller()).tenant) IS NOT NULL;
ALTER VIEW public.conversation_messages ALTER COLUMN metadata SET DEFAULT '{}';

-- ---- writing --------------------------------------------------------------------------------------------------------

-- are_ours: whether every item of a list has exactly the keys of Palaver's format, so that it can be stored as such
CREATE OR REPLACE FUNCTION palaver_compat.are_ours(items jsonb, needed text[], allowed text[]) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN CASE WHEN jsonb_typeof(items) = 'array' THEN jsonb_array_length(items) > 0 AND NOT EXISTS (
      SELECT 1 FROM jsonb_array_elements(items) AS i (item) WHERE jsonb_typeof(item) <> 'object' OR NOT item ?& needed
        OR EXISTS (SELECT 1 FROM jsonb_object_keys(CASE jsonb_typeof(item) WHEN 'object' THEN item ELSE '{}' END) AS k (name)
          WHERE k.name <> ALL (allowed))
        OR jsonb_typeof(item -> 'id') <> 'string' OR octet_length(item ->> 'id') NOT BETWEEN 1 AND 512)
    AND (SELECT count(DISTINCT item ->> 'id') FROM jsonb_array_elements(items) AS i (item)) = jsonb_array_length(items)
  ELSE false END;

-- with_metadata: move known keys of a message's metadata into the columns of the turn; others stay as they are
CREATE OR REPLACE FUNCTION palaver_compat.with_metadata(t palaver.turns, told jsonb) RETURNS palaver.turns
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, palaver_compat, pg_temp AS $$
BEGIN
  IF jsonb_typeof(told) <> 'object' THEN
    PERFORM palaver.fail('PV031', 'metadata', 'must be an object');
  END IF;
  IF t.role = 'assistant' AND are_ours(told -> 'tool_calls', '{id,name}', '{id,name,arguments}') THEN
    t.tool_calls := canonical((SELECT jsonb_agg('{"arguments": {}}' || call ORDER BY n)
      FROM jsonb_array_elements(told -> 'tool_calls') WITH ORDINALITY AS c (call, n)));
    told := told - 'tool_calls';
  END IF;
  IF t.role = 'tool' AND are_ours(told -> 'tool_results', '{id,content}', '{id,content,is_error}') THEN
    t.tool_results := canonical(told -> 'tool_results');
    told := told - 'tool_results';
  END IF;
  IF jsonb_typeof(told -> 'model') = 'string' AND octet_length(told ->> 'model') BETWEEN 1 AND 512 THEN
    t.model := told ->> 'model';
    told := told - 'model';
  END IF;
  IF jsonb_typeof(told -> 'tokens') = 'object' THEN
    IF NOT EXISTS (SELECT 1 FROM jsonb_each_text(told -> 'tokens') AS e
        WHERE e.key NOT IN ('prompt', 'completion') OR e.value IS NULL OR e.value !~ '^\d{1,15}$') THEN
      t.prompt_tokens := (told -> 'tokens' ->> 'prompt')::bigint;
      t.completion_tokens := (told -> 'tokens' ->> 'completion')::bigint;
      told := told - 'tokens';
    END IF;
  END IF;
  t.metadata := nullif(canonical(told), '{}');
  RETURN t;
END $$;

-- librarian_draft: a row as a draft of a turn
CREATE OR REPLACE FUNCTION palaver_compat.librarian_draft(message public.conversation_messages) RETURNS palaver.turns
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, palaver_compat, pg_temp AS $$
DECLARE t palaver.turns;
BEGIN
  PERFORM need('session_id', message.session_id::text), need('role', message.role), need('content', message.content);
  t.role := CASE message.role WHEN 'human' THEN 'user' WHEN 'ai' THEN 'assistant' ELSE message.role END;
  t.content := message.content;
  t.created := micros(message.created_at);
  RETURN with_metadata(t, coalesce(message.metadata, '{}'));
END $$;

-- librarian_thread: the conversation that a row belongs to
CREATE OR REPLACE FUNCTION palaver_compat.librarian_thread(message public.conversation_messages) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, palaver_compat, pg_temp AS $$
  SELECT c.id FROM sessions s JOIN palaver.conversations c ON c.tenant = s.tenant AND c.cid = s.cid
  JOIN palaver.turns t ON t.tenant = s.tenant AND t.cid = s.cid AND t.id = as_id(message.id)
    AND t.seq = palaver.stamped_seq(as_id(message.id))
  WHERE s.tenant = (palaver_compat.caller()).tenant AND s.session_id = message.session_id
$$;

CREATE OR REPLACE FUNCTION palaver_compat.librarian_write() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, palaver_compat, pg_temp AS $$
DECLARE
  draft palaver.turns;
  t palaver.turns;
BEGIN
  IF TG_OP = 'DELETE' THEN
    PERFORM forget(librarian_thread(OLD), as_id(OLD.id), true);
    RETURN OLD;
  END IF;
  draft := librarian_draft(NEW);
  IF TG_OP = 'INSERT' THEN
    t := append(open_thread(NEW.session_id::text), draft);
  ELSIF (OLD.id, OLD.session_id, OLD.created_at) IS DISTINCT FROM (NEW.id, NEW.session_id, NEW.created_at) THEN
    PERFORM palaver.fail('PV031', 'message', 'keeps its id, its session and its time');
  ELSE
    t := append(librarian_thread(OLD), draft, as_id(OLD.id));
  END IF;
  NEW.id := as_uuid(t.id);
  NEW.role := t.role;
  NEW.metadata := metadata_of(t);
  NEW.created_at := moment(t.created);
  RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER librarian_write INSTEAD OF INSERT OR UPDATE OR DELETE ON public.conversation_messages
FOR EACH ROW EXECUTE FUNCTION palaver_compat.librarian_write();

-- Existing conversations. Policies apply to the owner of a table too, so they are suspended here.
ALTER TABLE palaver.conversations NO FORCE ROW LEVEL SECURITY;
ALTER TABLE palaver_compat.sessions NO FORCE ROW LEVEL SECURITY;
INSERT INTO palaver_compat.sessions (tenant, cid, session_id)
SELECT c.tenant, c.cid, palaver_compat.session_of(c.key) FROM palaver.conversations c
WHERE c.gone IS NULL AND palaver_compat.session_of(c.key) IS NOT NULL ON CONFLICT DO NOTHING;
ALTER TABLE palaver.conversations FORCE ROW LEVEL SECURITY;

SELECT palaver_compat.protect('sessions');
SELECT palaver_compat.publish('conversation_messages'), palaver_compat.open_functions();
