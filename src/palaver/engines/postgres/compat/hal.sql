-- HAL's three tables over Palaver's data: messages, summaries, working memory. A conversation of HAL is the one with the
-- key project_id/agent. Run common.sql first; this file can be run again.
--
-- Messages are a view. Summaries and working memory are tables, because `upsert(on_conflict="project_id,agent")` needs a
-- unique key on just these columns; triggers synchronise them with Palaver's tables, both ways.

DO $$
DECLARE name text;
BEGIN
  FOREACH name IN ARRAY ARRAY['messages', 'summaries', 'working_memory'] LOOP
    IF EXISTS (SELECT 1 FROM pg_class WHERE oid = to_regclass('public.hal_conversation_' || name) AND relkind <> 'v') THEN
      RAISE EXCEPTION 'public.hal_conversation_% is a table: rename it, then import it (docs/how-to/tables.md)', name;
    END IF;
  END LOOP;
END $$;

-- ---- conversations --------------------------------------------------------------------------------------------------

-- A table, because a policy keeps the planner from searching inside a key.
CREATE TABLE IF NOT EXISTS palaver_compat.threads (
  tenant text NOT NULL,
  cid bigint NOT NULL,
  project_id text NOT NULL,
  agent text NOT NULL,
  PRIMARY KEY (tenant, cid),
  FOREIGN KEY (tenant, cid) REFERENCES palaver.conversations
);
CREATE INDEX IF NOT EXISTS threads_by_name ON palaver_compat.threads (tenant, project_id, agent);

-- named: the project and the agent of a key, which stand before and after its last slash
CREATE OR REPLACE FUNCTION palaver_compat.named(key text) RETURNS text[] LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN regexp_match(key, '^(.+)/([^/]+)$');

-- know_thread: update `threads` when a conversation is created or deleted, or its key changes
CREATE OR REPLACE FUNCTION palaver_compat.know_thread() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, palaver_compat, pg_temp AS $$
DECLARE name text[] := named(NEW.key);
BEGIN
  IF TG_OP = 'UPDATE' THEN
    DELETE FROM threads h WHERE h.tenant = NEW.tenant AND h.cid = NEW.cid;
    DELETE FROM summaries s WHERE s.tenant = NEW.tenant AND s.cid = NEW.cid AND NEW.gone IS NOT NULL;
    DELETE FROM working_memory w WHERE w.tenant = NEW.tenant AND w.cid = NEW.cid AND NEW.gone IS NOT NULL;
  END IF;
  INSERT INTO threads (tenant, cid, project_id, agent)
  SELECT NEW.tenant, NEW.cid, name[1], name[2] WHERE name IS NOT NULL AND NEW.gone IS NULL;
  RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER know_thread AFTER INSERT OR UPDATE OF key ON palaver.conversations
FOR EACH ROW EXECUTE FUNCTION palaver_compat.know_thread();

-- hal_thread: the conversation of a project and an agent; created when there is none. The key does not show where a name
-- with a slash begins, so the names of a new conversation are stored, and other names with the same key are refused.
CREATE OR REPLACE FUNCTION palaver_compat.hal_thread(project text, agent text) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, palaver_compat, pg_temp AS $$
DECLARE
  me palaver.asker;
  found_id text;
  c record;
BEGIN
  PERFORM need('project_id', project), need('agent', agent);
  found_id := open_thread(project || '/' || agent, agent);
  me := caller();
  SELECT o.cid, o.next_seq, h.project_id, h.agent, h.cid IS NULL AS unnamed INTO c FROM palaver.conversations o
  LEFT JOIN threads h ON h.tenant = me.tenant AND h.cid = o.cid WHERE o.tenant = me.tenant AND o.id = found_id;
  IF (c.project_id, c.agent) IS NOT DISTINCT FROM (project, hal_thread.agent) THEN
    RETURN found_id;
  ELSIF c.next_seq > 0 AND NOT c.unnamed THEN
    PERFORM palaver.fail('PV031', 'agent', 'has the same conversation as another project_id and agent, because one of '
      'them has a slash: project_id/agent must be unique');
  END IF;
  INSERT INTO threads (tenant, cid, project_id, agent) VALUES (me.tenant, c.cid, project, hal_thread.agent)
  ON CONFLICT (tenant, cid) DO UPDATE SET project_id = excluded.project_id, agent = excluded.agent;
  RETURN found_id;
END $$;

-- ---- images: their bytes are stored in the database, where SQL can read them -----------------------------------------

CREATE TABLE IF NOT EXISTS palaver_compat.files (
  tenant text NOT NULL,
  cid bigint NOT NULL,
  path text NOT NULL,
  data bytea NOT NULL,
  PRIMARY KEY (tenant, path),
  FOREIGN KEY (tenant, cid) REFERENCES palaver.conversations
);
CREATE INDEX IF NOT EXISTS files_of ON palaver_compat.files (tenant, cid);
ALTER TABLE palaver_compat.files ALTER COLUMN data SET STORAGE EXTERNAL;  -- images are compressed already

-- drop_file: delete the bytes with the attachment, in the same transaction
CREATE OR REPLACE FUNCTION palaver_compat.drop_file() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, palaver_compat, pg_temp AS $$
BEGIN
  DELETE FROM files f WHERE f.tenant = OLD.tenant AND f.path = OLD.path;
  IF FOUND THEN
    DELETE FROM palaver.doomed_blobs b WHERE b.tenant = OLD.tenant AND b.path = OLD.path;
  END IF;
  RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER drop_file AFTER DELETE ON palaver.attachments
FOR EACH ROW EXECUTE FUNCTION palaver_compat.drop_file();

-- kept_file: the bytes of a path
CREATE OR REPLACE FUNCTION palaver_api.kept_file(who jsonb, path text) RETURNS TABLE (data bytea)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
#variable_conflict use_column
DECLARE me asker := enter(who, 'read');
BEGIN
  IF to_regclass('palaver_compat.files') IS NULL THEN
    RETURN;  -- the older system's tables were removed, and this function stayed
  END IF;
  RETURN QUERY SELECT f.data FROM palaver_compat.files f WHERE f.tenant = me.tenant AND f.path = kept_file.path;
END $$;

-- keep_image: store a data URL as an attachment; NULL when it is something else, such as the URL of a picture
CREATE OR REPLACE FUNCTION palaver_compat.keep_image(c palaver.conversations, image jsonb) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, palaver_compat, pg_temp AS $$
DECLARE
  found text[] := regexp_match(left(image ->> 'dataUrl', 300), '^data:([^;,]{1,200});base64,');
  id text := new_id();
  path text;
  bytes bytea;
  kept jsonb;
BEGIN
  IF found IS NULL THEN
    RETURN NULL;
  END IF;
  BEGIN
    bytes := decode(substr(image ->> 'dataUrl', strpos(image ->> 'dataUrl', ',') + 1), 'base64');
  EXCEPTION WHEN invalid_parameter_value THEN
    PERFORM palaver.fail('PV031', 'images', 'hold a data URL that is not base64');
  END;
  IF length(bytes) > 50000000 THEN
    PERFORM palaver.fail('PV032', 'images', length(bytes)::text, '50000000', 'bytes');
  END IF;
  path := 'database/' || c.id || '/' || id;
  kept := jsonb_build_object('id', id, 'filename', coalesce(nullif(left(image ->> 'filename', 120), ''), 'image'),
    'media_type', coalesce(nullif(left(image ->> 'mimeType', 120), ''), found[1]), 'bytes', length(bytes),
    'sha256', encode(sha256(bytes), 'hex'));
  PERFORM palaver_api.attach(who(), c.id, kept || jsonb_build_object('path', path,
    'owner', coalesce((palaver_compat.caller())."user", c.owner)));
  INSERT INTO files (tenant, cid, path, data) VALUES (c.tenant, c.cid, path, bytes);
  RETURN kept;
END $$;

-- with_images: a draft with its images: data URLs become attachments, others stay as they are
CREATE OR REPLACE FUNCTION palaver_compat.with_images(t palaver.turns, conversation text, images jsonb)
RETURNS palaver.turns
LANGUAGE plpgsql SET search_path = pg_catalog, palaver_compat, pg_temp AS $$
DECLARE
  role text := current_setting('role');
  me palaver.asker;
  c palaver.conversations;
  image jsonb;
  kept jsonb;
  attachments jsonb := '[]';
  others jsonb := '[]';
BEGIN
  IF images IS NULL OR images = 'null' OR images = '[]' THEN
    RETURN t;
  ELSIF jsonb_typeof(images) <> 'array' OR jsonb_array_length(images) > 100 THEN
    PERFORM palaver.fail('PV031', 'images', 'must be a list of at most 100');
  END IF;
  me := palaver.enter(who(), 'write');
  c := palaver.find(me, conversation);
  FOR image IN SELECT value FROM jsonb_array_elements(images) LOOP
    kept := keep_image(c, CASE jsonb_typeof(image) WHEN 'string' THEN jsonb_build_object('dataUrl', image) ELSE image END);
    IF kept IS NULL THEN
      others := others || jsonb_build_array(image);
    ELSE
      attachments := attachments || kept;
    END IF;
  END LOOP;
  t.attachments := nullif(canonical(attachments), '[]');
  t.metadata := CASE WHEN others <> '[]' THEN canonical(jsonb_build_object('images', others)) END;
  PERFORM set_config('role', role, true);
  RETURN t;
END $$;

-- images_of: the images of a turn in HAL's format. A file that is not in the database has no data URL here
CREATE OR REPLACE FUNCTION palaver_compat.images_of(t palaver.turns) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, palaver_compat, pg_temp AS $$
DECLARE found jsonb := coalesce(t.metadata::jsonb -> 'images', '[]');
BEGIN
  IF t.attachments IS NOT NULL THEN
    found := (SELECT jsonb_agg(jsonb_strip_nulls(jsonb_build_object('dataUrl', 'data:' || a.media_type || ';base64,'
        || translate(encode(f.data, 'base64'), E'\n', ''), 'filename', a.filename, 'mimeType', a.media_type)) ORDER BY a.aid)
      FROM palaver.attachments a LEFT JOIN files f ON f.tenant = a.tenant AND f.path = a.path
      WHERE a.tenant = t.tenant AND a.tid = t.tid) || found;
  END IF;
  RETURN nullif(found, '[]');
END $$;

-- ---- messages -------------------------------------------------------------------------------------------------------

-- `sequence` is the position in the active branch: it orders the rows, and summaries refer to it.
CREATE OR REPLACE VIEW public.hal_conversation_messages WITH (security_invoker = true) AS
SELECT palaver_compat.as_uuid(t.id) AS id, h.project_id, h.agent, t.role,
  palaver_compat.text_of(t.content, t.is_parts) AS content, palaver_compat.moment(t.created) AS created_at,
  t.position::integer AS sequence, palaver_compat.images_of(t) AS images
FROM palaver_compat.threads h
JOIN palaver.conversations c ON c.tenant = h.tenant AND c.cid = h.cid AND c.gone IS NULL
  AND (c.expires_at IS NULL OR c.expires_at > palaver_compat.micros(now()))
JOIN palaver.turns t ON t.tenant = h.tenant AND t.cid = h.cid AND t.active = 1 AND t.status = 'complete'
WHERE h.tenant = (SELECT (palaver_compat.caller()).tenant) AND (SELECT (palaver_compat.caller()).tenant) IS NOT NULL;

-- thread_of: the conversation that a row belongs to
CREATE OR REPLACE FUNCTION palaver_compat.thread_of(message public.hal_conversation_messages) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, palaver_compat, pg_temp AS $$
  SELECT c.id FROM threads h JOIN palaver.conversations c ON c.tenant = h.tenant AND c.cid = h.cid
  JOIN palaver.turns t ON t.tenant = h.tenant AND t.cid = h.cid AND t.id = as_id(message.id)
    AND t.seq = palaver.stamped_seq(as_id(message.id))
  WHERE h.tenant = (palaver_compat.caller()).tenant AND h.project_id = message.project_id AND h.agent = message.agent
$$;

-- hal_write: an insert appends, at the next free position whatever its `sequence` is; an update stores a new version at
-- the same position; a delete forgets
CREATE OR REPLACE FUNCTION palaver_compat.hal_write() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, palaver_compat, pg_temp AS $$
DECLARE
  conversation text;
  t palaver.turns;
BEGIN
  IF TG_OP = 'DELETE' THEN
    PERFORM forget(thread_of(OLD), as_id(OLD.id), false);
    RETURN OLD;
  ELSIF TG_OP = 'UPDATE' AND (OLD.id, OLD.project_id, OLD.agent, OLD.sequence, OLD.created_at)
      IS DISTINCT FROM (NEW.id, NEW.project_id, NEW.agent, NEW.sequence, NEW.created_at) THEN
    PERFORM palaver.fail('PV031', 'message', 'keeps its id, its conversation, its sequence and its time');
  END IF;
  PERFORM need('role', NEW.role), need('content', NEW.content);
  conversation := CASE TG_OP WHEN 'INSERT' THEN hal_thread(NEW.project_id, NEW.agent) ELSE thread_of(OLD) END;
  t.role := NEW.role;
  t.content := NEW.content;
  t.created := micros(NEW.created_at);
  t := with_images(t, conversation, NEW.images);
  t := append(conversation, t, CASE TG_OP WHEN 'UPDATE' THEN as_id(OLD.id) END);
  NEW.id := as_uuid(t.id);
  NEW.created_at := moment(t.created);
  NEW.sequence := t.position;
  NEW.images := images_of(t);
  RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER hal_write INSTEAD OF INSERT OR UPDATE OR DELETE ON public.hal_conversation_messages
FOR EACH ROW EXECUTE FUNCTION palaver_compat.hal_write();

-- ---- summaries and working memory: tables ---------------------------------------------------------------------------
-- An upsert finds its row by (project_id, agent) alone, and two callers who cannot see each other may use the same names.
-- So the row that was written last under a name is in the table itself, and the others are moved to a table that inherits
-- from it: every caller reads both, and sees only the own row.

CREATE TABLE IF NOT EXISTS palaver_compat.summaries (
  tenant text NOT NULL,
  cid bigint NOT NULL,
  project_id text NOT NULL,
  agent text NOT NULL,
  summary_text text NOT NULL,
  through_sequence integer NOT NULL,           -- exclusive, as in Palaver
  updated_at timestamptz NOT NULL DEFAULT now(),
  UNIQUE (project_id, agent),
  UNIQUE (tenant, cid)
);
CREATE TABLE IF NOT EXISTS palaver_compat.summaries_aside (PRIMARY KEY (tenant, cid)) INHERITS (palaver_compat.summaries);

CREATE TABLE IF NOT EXISTS palaver_compat.working_memory (
  tenant text NOT NULL,
  cid bigint NOT NULL,
  project_id text NOT NULL,
  agent text NOT NULL,
  summary text NOT NULL DEFAULT '',
  goals text[] DEFAULT '{}',
  requirements text[] DEFAULT '{}',
  constraints text[] DEFAULT '{}',
  decisions text[] DEFAULT '{}',
  assumptions text[] DEFAULT '{}',
  open_questions text[] DEFAULT '{}',
  glossary jsonb DEFAULT '{}',
  stakeholders text[] DEFAULT '{}',
  last_updated_at timestamptz NOT NULL DEFAULT now(),
  through_sequence integer NOT NULL DEFAULT 0,  -- inclusive, as in Palaver
  UNIQUE (project_id, agent),
  UNIQUE (tenant, cid)
);
CREATE TABLE IF NOT EXISTS palaver_compat.working_memory_aside (PRIMARY KEY (tenant, cid))
  INHERITS (palaver_compat.working_memory);

-- The views for programs: the same rows without Palaver's columns.
CREATE OR REPLACE VIEW public.hal_conversation_summaries WITH (security_invoker = true) AS
SELECT project_id, agent, summary_text, through_sequence, updated_at FROM palaver_compat.summaries
WHERE tenant = (SELECT (palaver_compat.caller()).tenant) AND (SELECT (palaver_compat.caller()).tenant) IS NOT NULL;
CREATE OR REPLACE VIEW public.hal_conversation_working_memory WITH (security_invoker = true) AS
SELECT project_id, agent, summary, goals, requirements, constraints, decisions, assumptions, open_questions, glossary,
  stakeholders, last_updated_at, through_sequence FROM palaver_compat.working_memory
WHERE tenant = (SELECT (palaver_compat.caller()).tenant) AND (SELECT (palaver_compat.caller()).tenant) IS NOT NULL;

-- step_aside: make room for a row under its name. Runs as a role that may move rows of every tenant, and returns nothing.
-- Only the triggers can call it; when the writer may not have the row, the statement fails after it and undoes the move
CREATE OR REPLACE FUNCTION palaver_compat.step_aside() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, palaver_compat, pg_temp AS $$
BEGIN
  PERFORM pg_advisory_xact_lock(hashtextextended(NEW.project_id || '/' || NEW.agent, TG_RELID::bigint));
  IF TG_TABLE_NAME = 'summaries' THEN
    DELETE FROM summaries_aside a WHERE a.tenant = NEW.tenant AND a.cid = NEW.cid;
    WITH moved AS (DELETE FROM ONLY summaries s WHERE s.project_id = NEW.project_id AND s.agent = NEW.agent
      AND (s.tenant, s.cid) <> (NEW.tenant, NEW.cid) RETURNING s.*)
    INSERT INTO summaries_aside SELECT * FROM moved;
  ELSE
    DELETE FROM working_memory_aside a WHERE a.tenant = NEW.tenant AND a.cid = NEW.cid;
    WITH moved AS (DELETE FROM ONLY working_memory s WHERE s.project_id = NEW.project_id AND s.agent = NEW.agent
      AND (s.tenant, s.cid) <> (NEW.tenant, NEW.cid) RETURNING s.*)
    INSERT INTO working_memory_aside SELECT * FROM moved;
  END IF;
  RETURN NEW;
END $$;

-- name_row: set tenant and conversation of a row from its names
CREATE OR REPLACE FUNCTION palaver_compat.name_row() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, palaver_compat, pg_temp AS $$
DECLARE conversation text;
BEGIN
  IF NEW.cid IS NULL THEN
    conversation := hal_thread(NEW.project_id, NEW.agent);
    SELECT c.tenant, c.cid INTO NEW.tenant, NEW.cid FROM palaver.conversations c
    WHERE c.tenant = (palaver_compat.caller()).tenant AND c.id = conversation;
  END IF;
  RETURN NEW;
END $$;
-- Triggers of one event fire in the order of their names.
CREATE OR REPLACE TRIGGER name_row BEFORE INSERT ON palaver_compat.summaries
FOR EACH ROW EXECUTE FUNCTION palaver_compat.name_row();
CREATE OR REPLACE TRIGGER step_aside BEFORE INSERT ON palaver_compat.summaries
FOR EACH ROW EXECUTE FUNCTION palaver_compat.step_aside();
CREATE OR REPLACE TRIGGER name_row BEFORE INSERT ON palaver_compat.working_memory
FOR EACH ROW EXECUTE FUNCTION palaver_compat.name_row();
CREATE OR REPLACE TRIGGER step_aside BEFORE INSERT ON palaver_compat.working_memory
FOR EACH ROW EXECUTE FUNCTION palaver_compat.step_aside();

-- ---- from HAL to Palaver --------------------------------------------------------------------------------------------

-- quiet: mark that one side is being written from the other, whose triggers must then not write back
CREATE OR REPLACE FUNCTION palaver_compat.quiet(state text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM set_config('palaver.compat_quiet', state, true);
END $$;

CREATE OR REPLACE FUNCTION palaver_compat.is_quiet() RETURNS boolean LANGUAGE sql STABLE
  RETURN coalesce(current_setting('palaver.compat_quiet', true), '') = 'yes';

-- take_summary: store HAL's summary in place of Palaver's; it covers everything before `through_sequence`
CREATE OR REPLACE FUNCTION palaver_compat.take_summary() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, palaver_compat, pg_temp AS $$
DECLARE
  role text := current_setting('role');
  told palaver_compat.summaries;
  me palaver.asker;
  c palaver.conversations;
  last bigint;
BEGIN
  IF is_quiet() THEN
    RETURN NULL;
  ELSIF TG_OP = 'DELETE' THEN
    told := OLD;
  ELSE
    told := NEW;
  END IF;
  me := palaver.enter(who(), 'write');
  c := palaver.open_thread(me, (SELECT o.id FROM palaver.conversations o WHERE o.tenant = told.tenant AND o.cid = told.cid));
  last := CASE TG_OP WHEN 'DELETE' THEN 0 ELSE least(told.through_sequence, c.tip_position + 1) END;
  PERFORM quiet('yes'), palaver.cut(c, 0), palaver.recount(c);
  IF last > 0 AND told.summary_text <> '' THEN
    PERFORM palaver_api.put_summary(who(), c.id, (SELECT jsonb_build_object('id', new_id(), 'level', 0, 'from_seq', 0,
        'through_seq', last, 'turns', count(*), 'tokens', coalesce(sum(t.token_count), 0), 'text', told.summary_text,
        'token_count', guess(told.summary_text), 'model', 'hal', 'revision', c.revision + 1)
      FROM palaver.turns t WHERE t.tenant = c.tenant AND t.cid = c.cid AND t.active = 1 AND t.position < last));
  END IF;
  IF last <= 0 OR told.summary_text = '' THEN
    PERFORM palaver.save(c);  -- logs that the summaries are gone; `put_summary` logs it otherwise
  END IF;
  PERFORM quiet(''), set_config('role', role, true);
  RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER take_summary AFTER INSERT OR UPDATE OR DELETE ON palaver_compat.summaries
FOR EACH ROW WHEN (pg_trigger_depth() = 0) EXECUTE FUNCTION palaver_compat.take_summary();
CREATE OR REPLACE TRIGGER take_summary AFTER UPDATE OR DELETE ON palaver_compat.summaries_aside
FOR EACH ROW WHEN (pg_trigger_depth() = 0) EXECUTE FUNCTION palaver_compat.take_summary();

-- notes: a list of HAL as notes. An existing note keeps its turn and its author
CREATE OR REPLACE FUNCTION palaver_compat.notes(texts text[], before jsonb) RETURNS jsonb
LANGUAGE sql STABLE SET search_path = pg_catalog, palaver_compat, pg_temp AS $$
  SELECT coalesce(jsonb_agg(coalesce((SELECT note FROM jsonb_array_elements(coalesce(before, '[]')) AS b (note)
      WHERE note ->> 'text' = told.text LIMIT 1),
    jsonb_build_object('text', told.text, 'turn', NULL, 'by', 'hal')) ORDER BY told.n), '[]')
  FROM unnest(texts) WITH ORDINALITY AS told (text, n) WHERE told.text <> ''
$$;

-- memory_of: HAL's working memory in Palaver's format; lists that HAL has no column for are kept
CREATE OR REPLACE FUNCTION palaver_compat.memory_of(told palaver_compat.working_memory, before jsonb, last bigint)
RETURNS jsonb
LANGUAGE sql STABLE SET search_path = pg_catalog, palaver_compat, pg_temp AS $$
  SELECT coalesce(before, '{}') || jsonb_build_object('summary', coalesce(told.summary, ''), 'through_seq', last,
    'goals', notes(told.goals, before -> 'goals'), 'requirements', notes(told.requirements, before -> 'requirements'),
    'constraints', notes(told.constraints, before -> 'constraints'),
    'decisions', notes(told.decisions, before -> 'decisions'),
    'assumptions', notes(told.assumptions, before -> 'assumptions'),
    'open_questions', notes(told.open_questions, before -> 'open_questions'),
    'stakeholders', notes(told.stakeholders, before -> 'stakeholders'),
    'glossary', notes(ARRAY(SELECT g.key || coalesce(': ' || nullif(g.value, ''), '') FROM jsonb_each_text(
      CASE jsonb_typeof(told.glossary) WHEN 'object' THEN told.glossary ELSE '{}' END) AS g ORDER BY g.key),
      before -> 'glossary'))
$$;

-- take_memory: store HAL's working memory as the conversation's
CREATE OR REPLACE FUNCTION palaver_compat.take_memory() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, palaver_compat, pg_temp AS $$
DECLARE
  role text := current_setting('role');
  told palaver_compat.working_memory;  -- NULL when the row is deleted
  number bigint := CASE TG_OP WHEN 'DELETE' THEN OLD.cid ELSE NEW.cid END;
  me palaver.asker;
  c palaver.conversations;
  before text;
  last bigint := -1;
BEGIN
  IF is_quiet() THEN
    RETURN NULL;
  END IF;
  me := palaver.enter(who(), 'write');
  c := palaver.open_thread(me, (SELECT o.id FROM palaver.conversations o WHERE o.tenant = me.tenant AND o.cid = number));
  before := (SELECT w.memory FROM palaver.working_memory w WHERE w.tenant = c.tenant AND w.cid = c.cid
    AND palaver.fits(c.tenant, c.cid, 'notes'));
  IF TG_OP <> 'DELETE' THEN
    told := NEW;
    last := least(told.through_sequence, c.tip_position);
  END IF;
  PERFORM quiet('yes'), palaver_api.put_working_memory(who(), c.id, canonical(memory_of(told, before::jsonb, last)), last,
    before);
  PERFORM quiet(''), set_config('role', role, true);
  RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER take_memory AFTER INSERT OR UPDATE OR DELETE ON palaver_compat.working_memory
FOR EACH ROW WHEN (pg_trigger_depth() = 0) EXECUTE FUNCTION palaver_compat.take_memory();
CREATE OR REPLACE TRIGGER take_memory AFTER UPDATE OR DELETE ON palaver_compat.working_memory_aside
FOR EACH ROW WHEN (pg_trigger_depth() = 0) EXECUTE FUNCTION palaver_compat.take_memory();

-- ---- from Palaver to HAL --------------------------------------------------------------------------------------------

-- tell_summary: write the current summaries to HAL's table, up to the first one that is stale
CREATE OR REPLACE FUNCTION palaver_compat.tell_summary(thread palaver_compat.threads) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver_compat, pg_temp AS $$
DECLARE
  c palaver.conversations;
  last bigint;
  told text;
BEGIN
  SELECT * INTO c FROM palaver.conversations o WHERE o.tenant = thread.tenant AND o.cid = thread.cid;
  SELECT coalesce(min(s.from_seq) FILTER (WHERE s.stale = 1), max(s.through_seq)) INTO last
  FROM palaver.summaries s WHERE s.tenant = c.tenant AND s.cid = c.cid AND s.level = 0;
  SELECT string_agg(s.text, E'\n\n' ORDER BY s.from_seq), max(s.through_seq) INTO told, last
  FROM palaver.shown_summaries(c, last) AS s WHERE s.through_seq <= last;
  IF told IS NULL THEN
    DELETE FROM summaries s WHERE s.tenant = thread.tenant AND s.cid = thread.cid;
    RETURN;
  END IF;
  UPDATE summaries s SET summary_text = told, through_sequence = last, updated_at = now()
  WHERE s.tenant = thread.tenant AND s.cid = thread.cid;
  IF NOT FOUND THEN
    INSERT INTO summaries (tenant, cid, project_id, agent, summary_text, through_sequence)
    VALUES (thread.tenant, thread.cid, thread.project_id, thread.agent, told, last);
  END IF;
END $$;

CREATE OR REPLACE FUNCTION palaver_compat.texts(memory jsonb, list text) RETURNS text[] LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN ARRAY(SELECT note.value ->> 'text' FROM jsonb_array_elements(coalesce(memory -> list, '[]'))
    WITH ORDINALITY AS note (value, n) ORDER BY note.n);

-- terms: notes of the glossary as terms and their meanings
CREATE OR REPLACE FUNCTION palaver_compat.terms(memory jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN (SELECT coalesce(jsonb_object_agg(coalesce(found[1], said), coalesce(found[2], '')), '{}')
    FROM unnest(palaver_compat.texts(memory, 'glossary')) AS said, regexp_match(said,
      '^(.{1,100}?)(?:: | stands for | is short for | refers to | means )(.+)$') AS found);

-- tell_memory: write the current working memory to HAL's table
CREATE OR REPLACE FUNCTION palaver_compat.tell_memory(thread palaver_compat.threads) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver_compat, pg_temp AS $$
DECLARE
  memory jsonb := (SELECT w.memory FROM palaver.working_memory w WHERE w.tenant = thread.tenant AND w.cid = thread.cid);
BEGIN
  IF memory IS NULL THEN
    DELETE FROM working_memory o WHERE o.tenant = thread.tenant AND o.cid = thread.cid;
    RETURN;
  END IF;
  PERFORM 1 FROM working_memory o WHERE o.tenant = thread.tenant AND o.cid = thread.cid;
  IF NOT FOUND THEN
    INSERT INTO working_memory (tenant, cid, project_id, agent)
    VALUES (thread.tenant, thread.cid, thread.project_id, thread.agent);
  END IF;
  UPDATE working_memory o SET summary = coalesce(memory ->> 'summary', ''), goals = texts(memory, 'goals'),
    requirements = texts(memory, 'requirements'), constraints = texts(memory, 'constraints'),
    decisions = texts(memory, 'decisions'), assumptions = texts(memory, 'assumptions'),
    open_questions = texts(memory, 'open_questions'), stakeholders = texts(memory, 'stakeholders'),
    glossary = terms(memory), last_updated_at = now(), through_sequence = coalesce((memory ->> 'through_seq')::integer, -1)
  WHERE o.tenant = thread.tenant AND o.cid = thread.cid;
END $$;

-- follow: after a change of Palaver's tables, update HAL's
CREATE OR REPLACE FUNCTION palaver_compat.follow() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, palaver_compat, pg_temp AS $$
DECLARE
  number bigint := CASE TG_OP WHEN 'DELETE' THEN OLD.cid ELSE NEW.cid END;
  thread palaver_compat.threads;
BEGIN
  SELECT * INTO thread FROM threads h
  WHERE h.tenant = CASE TG_OP WHEN 'DELETE' THEN OLD.tenant ELSE NEW.tenant END AND h.cid = number;
  IF FOUND AND NOT is_quiet() THEN
    IF TG_TABLE_NAME = 'summaries' THEN
      PERFORM tell_summary(thread);
    ELSE
      PERFORM tell_memory(thread);
    END IF;
  END IF;
  RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER follow AFTER INSERT OR UPDATE OR DELETE ON palaver.summaries
FOR EACH ROW EXECUTE FUNCTION palaver_compat.follow();
CREATE OR REPLACE TRIGGER follow AFTER INSERT OR UPDATE OR DELETE ON palaver.working_memory
FOR EACH ROW EXECUTE FUNCTION palaver_compat.follow();

-- forgotten: HAL writes its notes from all turns up to a position, and does not say which note came from which turn. When
-- one of those turns is forgotten, all of HAL's notes are deleted, and written again from the remaining turns
CREATE OR REPLACE FUNCTION palaver_compat.forgotten() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, palaver_compat, pg_temp AS $$
BEGIN
  IF palaver.fits(NEW.tenant, NEW.cid, 'notes') OR strpos(coalesce(current_setting('palaver.touched', true), ''),
      NEW.cid || ' notes') > 0 THEN
    PERFORM palaver.touch(NEW.cid, ARRAY['notes']);
  END IF;
  UPDATE palaver.working_memory w SET through_seq = -1, memory = canonical(w.memory::jsonb || '{"summary": "", "through_seq": -1}'
    || (SELECT coalesce(jsonb_object_agg(list.name, (SELECT coalesce(jsonb_agg(note.value ORDER BY note.n), '[]')
        FROM jsonb_array_elements(list.notes) WITH ORDINALITY AS note (value, n) WHERE note.value ->> 'by' <> 'hal')), '{}')
      FROM jsonb_each(w.memory::jsonb) AS list (name, notes) WHERE jsonb_typeof(list.notes) = 'array'))
  FROM palaver.turns t
  WHERE w.tenant = NEW.tenant AND w.cid = NEW.cid AND EXISTS (SELECT 1 FROM working_memory o WHERE o.tenant = NEW.tenant
      AND o.cid = NEW.cid) AND t.tenant = NEW.tenant AND t.cid = NEW.cid AND t.id = NEW.turn
    AND t.seq = palaver.stamped_seq(NEW.turn) AND t.position <= w.through_seq;
  RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER forgotten AFTER INSERT ON palaver.events
FOR EACH ROW WHEN (NEW.kind = 'forget' AND NEW.turn IS NOT NULL) EXECUTE FUNCTION palaver_compat.forgotten();

-- ---- existing conversations, and grants -----------------------------------------------------------------------------

GRANT USAGE ON SCHEMA palaver_compat TO palaver_index;
GRANT CREATE ON SCHEMA palaver_compat TO palaver_index;
ALTER FUNCTION palaver_compat.step_aside() OWNER TO palaver_index;
REVOKE CREATE ON SCHEMA palaver_compat FROM palaver_index;

SELECT palaver_compat.protect(name) FROM unnest(ARRAY['threads', 'files']) AS name;
SELECT palaver_compat.protect(name, 'palaver_compat.may_see_now')
FROM unnest(ARRAY['summaries', 'summaries_aside', 'working_memory', 'working_memory_aside']) AS name;

DO $$
DECLARE
  name text;
  thread palaver_compat.threads;
BEGIN
  FOREACH name IN ARRAY ARRAY['summaries', 'summaries_aside', 'working_memory', 'working_memory_aside'] LOOP
    EXECUTE format('GRANT SELECT, INSERT, DELETE ON palaver_compat.%I TO palaver_index', name);
    EXECUTE format('DROP POLICY IF EXISTS palaver_index ON palaver_compat.%I', name);
    EXECUTE format('CREATE POLICY palaver_index ON palaver_compat.%I TO palaver_index USING (true) WITH CHECK (true)', name);
  END LOOP;
  -- Policies apply to the owner of a table too, so they are suspended here.
  FOREACH name IN ARRAY ARRAY['palaver.conversations', 'palaver.summaries', 'palaver.working_memory',
    'palaver_compat.threads', 'palaver_compat.summaries', 'palaver_compat.working_memory'] LOOP
    EXECUTE 'ALTER TABLE ' || name || ' NO FORCE ROW LEVEL SECURITY';
  END LOOP;
  INSERT INTO palaver_compat.threads (tenant, cid, project_id, agent)
  SELECT c.tenant, c.cid, n[1], n[2] FROM palaver.conversations c, palaver_compat.named(c.key) AS n
  WHERE c.gone IS NULL AND n IS NOT NULL ON CONFLICT DO NOTHING;
  PERFORM palaver_compat.quiet('yes');
  FOR thread IN SELECT * FROM palaver_compat.threads LOOP
    PERFORM set_config('palaver.tenant', thread.tenant, true);
    PERFORM palaver_compat.tell_summary(thread) WHERE EXISTS (SELECT 1 FROM palaver.summaries s
      WHERE s.tenant = thread.tenant AND s.cid = thread.cid);
    PERFORM palaver_compat.tell_memory(thread) WHERE EXISTS (SELECT 1 FROM palaver.working_memory w
      WHERE w.tenant = thread.tenant AND w.cid = thread.cid);
  END LOOP;
  PERFORM set_config('palaver.tenant', '', true), palaver_compat.quiet('');
  FOREACH name IN ARRAY ARRAY['palaver.conversations', 'palaver.summaries', 'palaver.working_memory',
    'palaver_compat.threads', 'palaver_compat.summaries', 'palaver_compat.working_memory'] LOOP
    EXECUTE 'ALTER TABLE ' || name || ' FORCE ROW LEVEL SECURITY';
  END LOOP;
END $$;
SELECT palaver_compat.publish(name) FROM unnest(ARRAY['hal_conversation_messages', 'hal_conversation_summaries',
  'hal_conversation_working_memory']) AS name;
SELECT palaver_compat.open_functions();
