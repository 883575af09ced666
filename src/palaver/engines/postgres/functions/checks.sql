-- Checks of the values that callers send: nothing is stored that a reader could not read back. A caller with a token can
-- call these functions without the library, so its checks (core/validation.py) are repeated here, with the same limits.
-- Messages name the field and the limit, never the value.

-- check_text: require a non-empty text of bounded size in bytes
CREATE OR REPLACE FUNCTION palaver.check_text(field text, value text, most integer) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  IF value = '' THEN
    PERFORM fail('PV031', field, 'must not be empty');
  ELSIF octet_length(value) > most THEN
    PERFORM fail('PV032', field, octet_length(value)::text, most::text, 'bytes');
  END IF;
END $$;

-- check_count: require a whole number of zero or more that JSON represents exactly
CREATE OR REPLACE FUNCTION palaver.check_count(field text, value bigint) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  IF value NOT BETWEEN 0 AND 9007199254740991 THEN
    PERFORM fail('PV031', field, 'must be a whole number, zero or more');
  END IF;
END $$;

-- check_json: parse a JSON text of one type. `IS JSON` would do without the exception handler, but Postgres 15 does
-- not have it
CREATE OR REPLACE FUNCTION palaver.check_json(field text, value text, kind text, most integer) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE found jsonb;
BEGIN
  IF octet_length(value) > most THEN
    PERFORM fail('PV032', field, octet_length(value)::text, most::text, 'bytes');
  END IF;
  BEGIN
    found := value::jsonb;
  EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
    PERFORM fail('PV031', field, 'must be JSON');
  END;
  IF jsonb_typeof(found) <> kind THEN
    PERFORM fail('PV031', field, 'must be a JSON ' || kind);
  ELSIF length(value) - length(translate(value, '[{', '')) > 100 AND jsonb_path_exists(found, 'strict $.**{101}') THEN
    PERFORM fail('PV031', field, 'has more than 100 lists or objects in one another');
  -- Readers represent numbers with a point or an exponent as double precision, and integers of up to 4,300 digits
  -- exactly. The first test is cheap and almost no text passes it; the last one ignores strings.
  ELSIF value ~ '[0-9]{255}|[0-9][eE]' AND (jsonb_path_exists(found, 'strict $.** ?
      (@.type() == "number" && (@ > 1e4299 || @ < -1e4299))')
    OR jsonb_path_exists(found, 'strict $.** ?
      (@.type() == "number" && (@ > 1.7976931348623157e308 || @ < -1.7976931348623157e308))')
    AND regexp_replace(value, '"([^"\\]|\\.)*"', '', 'g') ~ '[0-9][.eE]') THEN
    PERFORM fail('PV031', field, 'holds a number that is out of range');
  END IF;
  RETURN found;
END $$;

-- is_record: whether a value is an object with these texts, optionally these other fields, and nothing else
CREATE OR REPLACE FUNCTION palaver.is_record(value jsonb, texts text[], others text[]) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN CASE WHEN jsonb_typeof(value) = 'object' THEN value - (texts || others) = '{}'::jsonb
    AND (SELECT bool_and(coalesce(value ->> name, '') <> '' AND jsonb_typeof(value -> name) = 'string')
      FROM unnest(texts) AS t (name)) ELSE false END;

-- is_part: whether a value is a content part of a known type
CREATE OR REPLACE FUNCTION palaver.is_part(value jsonb) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN CASE WHEN jsonb_typeof(value) = 'object' THEN (SELECT bool_and(CASE
      WHEN f.key IN ('url', 'attachment', 'media_type', 'filename', 'signature') THEN jsonb_typeof(f.value) IN ('string', 'null')
      WHEN f.key = 'text' THEN jsonb_typeof(f.value) = 'string' ELSE true END) FROM jsonb_each(value) AS f)
    AND CASE WHEN value ->> 'type' IN ('text', 'reasoning') THEN value ? 'text'
      WHEN value ->> 'type' IN ('image', 'file') THEN coalesce(value ->> 'url', value ->> 'attachment') IS NOT NULL
      ELSE false END ELSE false END;

-- check_turn: check the values of a turn
CREATE OR REPLACE FUNCTION palaver.check_turn(t palaver.turns) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE size bigint;
BEGIN
  IF t.role IS NULL OR t.role NOT IN ('user', 'assistant', 'system', 'tool') THEN
    PERFORM fail('PV031', 'role', 'must be one of user, assistant, system, tool');
  ELSIF t.id IS NULL OR t.id !~ '^[0-9A-HJKMNP-TV-Z]{26}$' THEN
    PERFORM fail('PV031', 'id', 'must be a ULID of 26 letters');
  ELSIF t.salt IS NULL OR octet_length(t.salt) <> 16 THEN
    PERFORM fail('PV031', 'salt', 'must be 16 bytes');
  ELSIF t.is_parts IS NULL OR t.is_parts NOT IN (0, 1) THEN
    PERFORM fail('PV031', 'is_parts', 'must be 0 or 1');
  ELSIF t.content IS NULL OR t.actor IS NULL OR t.token_count IS NULL THEN
    PERFORM fail('PV031', CASE WHEN t.content IS NULL THEN 'content' WHEN t.actor IS NULL THEN 'actor' ELSE 'token_count' END,
      'is needed');
  ELSIF t.created NOT BETWEEN -62135596800000000 AND 253402300799999999 THEN
    PERFORM fail('PV031', 'created', 'is outside the years 1 to 9999 in UTC');
  ELSIF t.token_count > 1000000000 THEN  -- a conversation adds them up: the sum must not overflow
    PERFORM fail('PV031', 'token_count', 'is more than a turn can have');
  ELSIF char_length(t.preview) > 160 THEN
    PERFORM fail('PV032', 'preview', char_length(t.preview)::text, '160', 'characters');
  END IF;
  size := octet_length(t.content) + coalesce(octet_length(t.tool_calls), 0) + coalesce(octet_length(t.tool_results), 0);
  IF size > 5000000 THEN
    PERFORM fail('PV032', 'content', size::text, '5000000', 'bytes');
  END IF;
  -- Most turns have none of these and a plain name: calling nine functions costs as much as an insert.
  IF t.token_count NOT BETWEEN 0 AND 1000000 OR t.actor !~ '^[ -~]+$' OR octet_length(t.actor) > 512
    OR COALESCE(t.prompt_tokens, t.completion_tokens) IS NOT NULL
    OR COALESCE(t.model, t.adapter, t.finish_reason, t.idempotency_key, t.metadata) IS NOT NULL THEN
    PERFORM check_count('token_count', t.token_count), check_count('tokens.prompt', t.prompt_tokens),
      check_count('tokens.completion', t.completion_tokens), check_text('actor', t.actor, 512),
      check_text('model', t.model, 512), check_text('adapter', t.adapter, 512),
      check_text('finish_reason', t.finish_reason, 512), check_text('idempotency_key', t.idempotency_key, 512),
      check_json('metadata', t.metadata, 'object', 65536);
  END IF;
  IF t.is_parts = 1 THEN  -- a condition of its own: one with a query is planned each time, even if it is not run
    IF NOT coalesce((SELECT bool_and(is_part(p))
        FROM jsonb_array_elements(check_json('content', t.content, 'array', 5000000)) AS p), true) THEN
      PERFORM fail('PV031', 'content', 'must be parts of the types text, image, file and reasoning');
    END IF;
  END IF;
  IF COALESCE(t.tool_calls, t.tool_results, t.attachments, t.sources) IS NOT NULL OR t.role = 'tool' THEN
    PERFORM check_lists(t);
  END IF;
END $$;

-- check_lists: check the lists that most turns do not have
CREATE OR REPLACE FUNCTION palaver.check_lists(t palaver.turns) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  calls jsonb := check_json('tool_calls', t.tool_calls, 'array', 5000000);
  results jsonb := check_json('tool_results', t.tool_results, 'array', 5000000);
  files jsonb := check_json('attachments', t.attachments, 'array', 5000000);
  quoted jsonb := check_json('sources', t.sources, 'array', 65536);
  most integer := CASE t.role WHEN 'tool' THEN 100 ELSE 10 END;
BEGIN
  IF calls IS NOT NULL AND t.role <> 'assistant' THEN
    PERFORM fail('PV031', 'tool_calls', 'belong to an assistant turn');
  ELSIF (results IS NOT NULL) <> (t.role = 'tool') THEN
    PERFORM fail('PV031', 'tool_results', 'belong to a tool turn, which needs them');
  ELSIF EXISTS (SELECT 1 FROM jsonb_array_elements(calls) AS c WHERE NOT is_record(c, '{id,name}', '{arguments}')) THEN
    PERFORM fail('PV031', 'tool_calls', 'must be a list of {"id", "name", "arguments"}');
  ELSIF EXISTS (SELECT 1 FROM jsonb_array_elements(results) AS r WHERE NOT is_record(r, '{id}', '{content,is_error}')
      OR jsonb_typeof(r -> 'is_error') <> 'boolean') THEN
    PERFORM fail('PV031', 'tool_results', 'must be a list of {"id", "content", "is_error"}');
  ELSIF EXISTS (SELECT 1 FROM jsonb_array_elements(files) AS f
      WHERE NOT is_record(f, '{id,filename,media_type,sha256}', '{bytes}') OR jsonb_typeof(f -> 'bytes') <> 'number'
        OR NOT f ? 'bytes') THEN
    PERFORM fail('PV031', 'attachments', 'must be a list of {"id", "filename", "media_type", "bytes", "sha256"}');
  ELSIF jsonb_array_length(files) > most THEN
    PERFORM fail('PV032', 'attachments', jsonb_array_length(files)::text, most::text, 'files');
  ELSIF EXISTS (SELECT 1 FROM jsonb_array_elements(quoted) AS s WHERE jsonb_typeof(s) <> 'object') THEN
    PERFORM fail('PV031', 'sources', 'must be a list of objects');
  END IF;
END $$;

-- check_name: require a name of a participant on one line, without characters that cannot be seen. Only new names are
-- checked: a turn with an older one can still be imported
CREATE OR REPLACE FUNCTION palaver.check_name(field text, value text) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  IF value ~ '[\u0001-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060\u2066-\u2069\ufeff]' THEN
    PERFORM fail('PV031', field, 'must not contain line breaks, control characters or invisible format characters');
  END IF;
END $$;

-- check_names: check those names of a conversation that are set
CREATE OR REPLACE FUNCTION palaver.check_names(c palaver.conversations, fields text[]) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  IF 'agent' = ANY (fields) THEN
    PERFORM check_name('agent', c.agent);
  END IF;
  IF 'participants' = ANY (fields) THEN
    PERFORM check_name('participants', n.name) FROM jsonb_array_elements_text(c.participants::jsonb) AS n (name);
  END IF;
END $$;

-- check_draft: check a turn that a caller wants to store: its values, and the right to its role and its name
CREATE OR REPLACE FUNCTION palaver.check_draft(me palaver.asker, t palaver.turns) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  PERFORM check_turn(t);
  IF t.actor !~ '^[ -~]*$' THEN  -- a plain name has no such characters
    PERFORM check_name('actor', t.actor);
  END IF;
  IF t.role = 'system' AND strpos(',' || me.rights || ',', ',system,') = 0 THEN
    PERFORM fail('PV021', 'system');
  -- Whom the application writes for is its own business; a caller with a token writes under the own name.
  ELSIF t.role = 'user' AND t.actor IS DISTINCT FROM me."user" AND asking_role() IN ('authenticated', 'anon')
    AND strpos(',' || me.rights || ',', ',act_for,') = 0 AND strpos(',' || me.rights || ',', ',admin,') = 0 THEN
    PERFORM fail('PV021', 'act_for');
  END IF;
END $$;

-- is_plain: whether a turn without tools, files, sources and other rare fields passes `check_draft`. Most turns do, and
-- this is one expression, which costs less than a function call. Not true: `check_draft` decides
CREATE OR REPLACE FUNCTION palaver.is_plain(role text, id text, salt bytea, is_parts smallint, content text, actor text,
  token_count bigint, created bigint, preview text, writer text, rights text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN is_parts = 0 AND octet_length(content) <= 5000000 AND token_count BETWEEN 0 AND 1000000
    AND octet_length(id) = 26 AND translate(id, '0123456789ABCDEFGHJKMNPQRSTVWXYZ', '') = '' AND octet_length(salt) = 16
    AND octet_length(actor) <= 512 AND actor ~ '^[ -~]+$' AND char_length(coalesce(preview, '')) <= 160
    AND coalesce(created, 0) BETWEEN -62135596800000000 AND 253402300799999999
    AND (role = 'assistant' OR role = 'user' AND (actor = writer OR strpos(',' || rights || ',', ',act_for,') > 0));

-- check_words: check a list of [number of stems, tsvector] for the text index; returns the total number of stems
CREATE OR REPLACE FUNCTION palaver.check_words(words jsonb) RETURNS bigint
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE total bigint := 0;
BEGIN
  IF words IS NULL OR jsonb_typeof(words) <> 'array' THEN
    PERFORM fail('PV031', 'words', 'must be a list');
  END IF;
  FOR i IN 0 .. jsonb_array_length(words) - 1 LOOP
    IF coalesce(words -> i ->> 0, '') !~ '^[0-9]{1,7}$' OR jsonb_typeof(words -> i -> 1) IS DISTINCT FROM 'string' THEN
      PERFORM fail('PV031', 'words', 'must be a list of [how many, stems]');
    END IF;
    total := total + (words -> i ->> 0)::bigint;
  END LOOP;
  RETURN total;
END $$;

-- check_drafts: check the list of drafts itself
CREATE OR REPLACE FUNCTION palaver.check_drafts(drafts jsonb) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  IF drafts IS NULL OR jsonb_typeof(drafts) <> 'array' THEN
    PERFORM fail('PV031', 'turns', 'must be a list');
  ELSIF jsonb_array_length(drafts) > 1000 THEN
    PERFORM fail('PV032', 'turns', jsonb_array_length(drafts)::text, '1000', 'turns');
  END IF;
END $$;

-- check_details: check the fields of a conversation that `create` and `update` set
CREATE OR REPLACE FUNCTION palaver.check_details(c palaver.conversations) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE names jsonb := check_json('participants', c.participants, 'array', 5000000);
BEGIN
  IF c.id IS NULL OR c.id !~ '^[0-9A-HJKMNP-TV-Z]{26}$' THEN
    PERFORM fail('PV031', 'id', 'must be a ULID of 26 letters');
  ELSIF c.salt IS NULL OR octet_length(c.salt) <> 16 THEN
    PERFORM fail('PV031', 'salt', 'must be 16 bytes');
  ELSIF c.ttl NOT BETWEEN 1 AND 3153600000000000 THEN
    PERFORM fail('PV031', 'ttl', 'must be more than 0 and at most 3,153,600,000 seconds');
  ELSIF jsonb_array_length(names) > 1000 THEN
    PERFORM fail('PV032', 'participants', jsonb_array_length(names)::text, '1000', 'names');
  ELSIF EXISTS (SELECT 1 FROM jsonb_array_elements(names) AS n WHERE jsonb_typeof(n) <> 'string') THEN
    PERFORM fail('PV031', 'participants', 'must be a list of names');
  END IF;
  PERFORM check_text('key', c.key, 512), check_text('workspace', c.workspace, 512), check_text('agent', c.agent, 512),
    check_text('model', c.model, 512), check_text('title', c.title, 1000),
    check_json('metadata', c.metadata, 'object', 65536), check_json('settings', c.settings, 'object', 65536);
END $$;

-- check_time: require a time that readers can represent
CREATE OR REPLACE FUNCTION palaver.check_time(field text, value bigint) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  IF value NOT BETWEEN -62135596800000000 AND 253402300799999999 THEN
    PERFORM fail('PV031', field, 'is outside the years 1 to 9999 in UTC');
  END IF;
END $$;

-- check_lease: require a lease of at most a day: whatever it holds is free again after that
CREATE OR REPLACE FUNCTION palaver.check_lease(lease bigint) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  IF lease IS NULL OR lease NOT BETWEEN 0 AND 86400000000 THEN
    PERFORM fail('PV031', 'lease', 'must be from 0 to 86,400 seconds');
  END IF;
END $$;

-- ---- memory and records ---------------------------------------------------------------------------------------------

-- is_note: whether a value is a note of a working memory
CREATE OR REPLACE FUNCTION palaver.is_note(value jsonb) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN jsonb_typeof(value) = 'object' AND coalesce(jsonb_typeof(value -> 'text') = 'string', false)
    AND coalesce(jsonb_typeof(value -> 'by'), 'string') = 'string'
    AND coalesce(jsonb_typeof(value -> 'turn'), 'null') IN ('string', 'null')
    AND coalesce(jsonb_typeof(value -> 'actor'), 'null') IN ('string', 'null');

-- check_memory: check the JSON of a working memory, as `WorkingMemory` in model.py has it
CREATE OR REPLACE FUNCTION palaver.check_memory(memory text) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE found jsonb := check_json('memory', memory, 'object', 5000000);
BEGIN
  IF found IS NULL OR EXISTS (SELECT 1 FROM jsonb_each(found) AS f WHERE CASE
    WHEN f.key IN ('goals', 'requirements', 'constraints', 'decisions', 'assumptions', 'open_questions', 'glossary',
      'stakeholders', 'instructions') THEN jsonb_typeof(f.value) <> 'array'
      OR EXISTS (SELECT 1 FROM jsonb_array_elements(CASE jsonb_typeof(f.value) WHEN 'array' THEN f.value END) AS n
        WHERE NOT is_note(n))
    WHEN f.key = 'summary' THEN jsonb_typeof(f.value) <> 'string'
    WHEN f.key IN ('through_seq', 'extractor_dropped') THEN f.value::text !~ '^-?[0-9]{1,18}$'
    WHEN f.key = 'extractor_failure' THEN jsonb_typeof(f.value) NOT IN ('string', 'null')
    WHEN f.key = 'extractor_postponed' THEN f.value::text !~ '^(null|\[-?[0-9]{1,18}, -?[0-9]{1,18}\])$'
    ELSE false END) THEN
    PERFORM fail('PV031', 'memory', 'must be the JSON of a working memory');
  END IF;
END $$;

-- check_share: require a number from 0 to 1
CREATE OR REPLACE FUNCTION palaver.check_share(field text, value double precision) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  IF value IS NULL OR value NOT BETWEEN 0 AND 1 THEN
    PERFORM fail('PV031', field, 'must be from 0 to 1');
  END IF;
END $$;

-- check_span: require positions of a conversation with this many, for a summary of this level
CREATE OR REPLACE FUNCTION palaver.check_span(level integer, first bigint, past bigint, positions bigint) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  IF level NOT BETWEEN 0 AND 100 OR first NOT BETWEEN 0 AND past OR past > positions THEN
    PERFORM fail('PV031', 'summary', 'must cover positions of the conversation');
  END IF;
END $$;

-- check_sha256: require a hash as it is written
CREATE OR REPLACE FUNCTION palaver.check_sha256(value text) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  IF value !~ '^[0-9a-f]{64}$' THEN
    PERFORM fail('PV031', 'sha256', 'must be 64 hexadecimal digits');
  END IF;
END $$;
