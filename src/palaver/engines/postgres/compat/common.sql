-- The base of both sets of compatibility tables: rows that are written in SQL become turns through the same functions as
-- any other.
--
-- SQL has neither the tokenizer nor the stemmer: token counts are estimated here (marked by `adapter`; a context counts
-- again), and a job of the worker adds the turns to the text index. This file can be run again.

SET LOCAL client_min_messages = warning;
CREATE SCHEMA IF NOT EXISTS palaver_compat;

-- ---- tables ---------------------------------------------------------------------------------------------------------

-- Turns that are not in the text index yet.
CREATE TABLE IF NOT EXISTS palaver_compat.wordless (
  tenant text NOT NULL,
  tid bigint NOT NULL,
  cid bigint NOT NULL,
  PRIMARY KEY (tenant, tid),
  FOREIGN KEY (tenant, tid) REFERENCES palaver.turns ON DELETE CASCADE
);
CREATE INDEX IF NOT EXISTS wordless_of ON palaver_compat.wordless (tenant, cid);

-- ---- the caller -----------------------------------------------------------------------------------------------------

-- service: the scope of Supabase's server key in these tables: none, unless the database binds it to one tenant (see
-- service.sql). That role bypasses row level security, so the conditions of the views keep it inside the tenant
DO $$
BEGIN
  IF to_regprocedure('palaver_compat.service()') IS NULL THEN  -- a repeated run keeps the binding
    CREATE FUNCTION palaver_compat.service() RETURNS palaver.asker LANGUAGE sql STABLE PARALLEL SAFE
      RETURN NULL::palaver.asker;
  END IF;
END $$;

-- caller: the caller's scope. A server key without a tenant is refused here, because views cannot say what is missing
CREATE OR REPLACE FUNCTION palaver_compat.caller() RETURNS palaver.asker
LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE me palaver.asker;
BEGIN
  IF palaver.asking_role() <> 'service_role' THEN
    RETURN palaver.whoami();
  END IF;
  me := palaver_compat.service();
  IF me.tenant IS NULL THEN
    RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege', MESSAGE = 'the server key is not bound to a tenant',
      HINT = 'bind it with `palaver migrate --compat NAME --service-tenant TENANT`, or use the token of a signed-in user '
        'that names a tenant';
  END IF;
  RETURN me;
END $$;

-- may_see_now: palaver.may_see, for a row whose conversation a trigger has created in the same statement. That is not in
-- the statement's snapshot, and a STABLE function sees no other
CREATE OR REPLACE FUNCTION palaver_compat.may_see_now(tenant text, cid bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  RETURN EXISTS (SELECT 1 FROM conversations c WHERE c.tenant = may_see_now.tenant AND c.cid = may_see_now.cid);
END $$;

-- protect: enable row level security for a table of this schema, as for those of `palaver`: a row is visible to callers
-- who may see its conversation
DROP FUNCTION IF EXISTS palaver_compat.protect(text);  -- as it was before it had the second parameter
CREATE OR REPLACE FUNCTION palaver_compat.protect(name text, may_see text DEFAULT 'palaver.may_see') RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE role text;
BEGIN
  EXECUTE format('ALTER TABLE palaver_compat.%I ENABLE ROW LEVEL SECURITY', name);
  EXECUTE format('ALTER TABLE palaver_compat.%I FORCE ROW LEVEL SECURITY', name);
  EXECUTE format('REVOKE ALL ON palaver_compat.%I FROM PUBLIC', name);
  FOR role IN SELECT rolname FROM pg_roles WHERE rolname IN ('palaver_app', 'authenticated') LOOP
    EXECUTE format('DROP POLICY IF EXISTS %I ON palaver_compat.%I', role, name);
    EXECUTE format('CREATE POLICY %I ON palaver_compat.%I TO %I USING (%s) WITH CHECK (%4$s)', role, name, role,
      'tenant = (SELECT (palaver.whoami()).tenant) AND ((SELECT (palaver.whoami()).sight) = ''tenant'' OR ' || may_see
      || '(tenant, cid))');
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON palaver_compat.%I TO %I', name, role);
  END LOOP;
  IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'service_role') THEN
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON palaver_compat.%I TO service_role', name);
  END IF;
END $$;

-- publish: grant a view of `public` to the application, to signed-in users, to the public key if it is bound to a tenant, and
-- to the server key, which `caller` refuses while it is not bound
CREATE OR REPLACE FUNCTION palaver_compat.publish(name text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE role text;
BEGIN
  EXECUTE format('REVOKE ALL ON public.%I FROM PUBLIC', name);
  FOR role IN SELECT rolname FROM pg_roles WHERE rolname IN ('anon', 'palaver_app', 'authenticated', 'service_role') LOOP
    EXECUTE format('REVOKE ALL ON public.%I FROM %I', name, role);  -- Supabase grants everything in `public`
    CONTINUE WHEN role = 'anon' AND (palaver.anonymous()).tenant IS NULL;
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON public.%I TO %I', name, role);
  END LOOP;
END $$;

SELECT palaver_compat.protect('wordless');

-- ---- values ---------------------------------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION palaver_compat.moment(micros bigint) RETURNS timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN to_timestamp(micros / 1000000.0);

CREATE OR REPLACE FUNCTION palaver_compat.micros(moment timestamptz) RETURNS bigint LANGUAGE sql STABLE PARALLEL SAFE
  RETURN (extract(epoch FROM moment) * 1000000)::bigint;

-- as_id: a UUID in the alphabet of Palaver's ids
CREATE OR REPLACE FUNCTION palaver_compat.as_id(value uuid) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN (SELECT string_agg(substr('0123456789ABCDEFGHJKMNPQRSTVWXYZ',
      substring(b.bits FROM 5 * n + 1 FOR 5)::bit(5)::integer + 1, 1), '' ORDER BY n)
    FROM (SELECT B'00' || ('x' || encode(uuid_send(value), 'hex'))::bit(128) AS bits) AS b, generate_series(0, 25) AS n);

-- as_uuid: the same id as a UUID, for programs that identify rows by one
CREATE OR REPLACE FUNCTION palaver_compat.as_uuid(id text) RETURNS uuid LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN (SELECT string_agg(lpad(to_hex(substring(b.bits FROM 32 * k + 3 FOR 32)::bit(32)::integer), 8, '0'), '' ORDER BY k)
    FROM (SELECT string_agg((strpos('0123456789ABCDEFGHJKMNPQRSTVWXYZ', substr(id, n, 1)) - 1)::bit(5)::text, '' ORDER BY n)
      AS bits FROM generate_series(1, 26) AS n) AS b, generate_series(0, 3) AS k)::uuid;

-- new_id: 48 bits of time and 80 random bits
CREATE OR REPLACE FUNCTION palaver_compat.new_id() RETURNS text LANGUAGE sql VOLATILE
  RETURN (SELECT palaver_compat.as_id(encode(
      substr(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint), 3) || substr(chance, 1, 6)
      || substr(chance, 13, 4), 'hex')::uuid) FROM uuid_send(gen_random_uuid()) AS chance);

CREATE OR REPLACE FUNCTION palaver_compat.new_salt() RETURNS bytea LANGUAGE sql VOLATILE
  RETURN substr(sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())), 1, 16);

-- canonical: canonical JSON, as `identity.canonical_json` writes it
CREATE OR REPLACE FUNCTION palaver_compat.canonical(value jsonb) RETURNS text
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, palaver_compat, pg_temp AS $$
BEGIN
  RETURN CASE jsonb_typeof(value)
    WHEN 'object' THEN '{' || coalesce((SELECT string_agg(to_json(e.key)::text || ':' || canonical(e.value), ','
      ORDER BY e.key COLLATE "C") FROM jsonb_each(value) AS e), '') || '}'
    WHEN 'array' THEN '[' || coalesce((SELECT string_agg(canonical(e.value), ',' ORDER BY e.n)
      FROM jsonb_array_elements(value) WITH ORDINALITY AS e (value, n)), '') || ']'
    ELSE value::text END;
END $$;

-- guess: an estimate of how many tokens a text has
CREATE OR REPLACE FUNCTION palaver_compat.guess(said text) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN ceil(coalesce(octet_length(said), 0) / 4.0)::bigint;

-- first_line: the first line that is not blank, shortened for lists (see turn_draft.preview)
CREATE OR REPLACE FUNCTION palaver_compat.first_line(said text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN (SELECT CASE WHEN char_length(l.line) <= 160 THEN l.line ELSE rtrim(left(l.line, 159)) || '…' END
    FROM (SELECT trim(E' \t\r\f' FROM f.line) AS line, f.n FROM string_to_table(said, E'\n') WITH ORDINALITY AS f (line, n)) AS l
    WHERE l.line <> '' ORDER BY l.n LIMIT 1);

-- text_of: the text of a turn's content
CREATE OR REPLACE FUNCTION palaver_compat.text_of(content text, is_parts smallint) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN CASE WHEN is_parts = 0 THEN coalesce(content, '') ELSE coalesce((
    SELECT string_agg(part.value ->> 'text', E'\n' ORDER BY part.n)
    FROM jsonb_array_elements(content::jsonb) WITH ORDINALITY AS part (value, n) WHERE part.value ->> 'type' = 'text'), '') END;

-- ---- writing --------------------------------------------------------------------------------------------------------

-- who: the caller's scope, as `palaver.enter` takes it
CREATE OR REPLACE FUNCTION palaver_compat.who() RETURNS jsonb LANGUAGE sql STABLE
  RETURN (SELECT jsonb_build_object('tenant', me.tenant, 'user', me."user", 'sight', me.sight, 'workspace', me.workspace,
    'rights', me.rights) FROM palaver_compat.caller() AS me);

-- need: require a column that is NOT NULL in the original table
CREATE OR REPLACE FUNCTION palaver_compat.need(name text, value text) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF value IS NULL THEN
    RAISE EXCEPTION USING ERRCODE = 'not_null_violation', MESSAGE = name || ' must not be null';
  END IF;
END $$;

-- open_thread: the id of the conversation with this key: the caller's own, else the oldest visible one, else a new one
CREATE OR REPLACE FUNCTION palaver_compat.open_thread(wanted text, agent text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, palaver_compat, pg_temp AS $$
DECLARE
  role text := current_setting('role');
  asks jsonb := who();
  me palaver.asker;
  mine text;
  found_id text;
BEGIN
  IF asks ->> 'tenant' IS NULL AND palaver.asking_role() NOT IN ('authenticated', 'anon') THEN
    RAISE EXCEPTION USING ERRCODE = 'PV021', MESSAGE = 'the session names no tenant',
      HINT = 'set palaver.tenant, palaver.sight and palaver.rights for the login or in the connection: docs/how-to/tables.md';
  END IF;
  me := palaver.enter(asks, 'write');
  mine := coalesce(me."user", '');
  IF octet_length(wanted) NOT BETWEEN 1 AND 512 THEN
    PERFORM palaver.fail('PV032', 'key', octet_length(wanted)::text, '512', 'bytes');
  END IF;
  SELECT c.id INTO found_id FROM palaver.conversations c WHERE c.tenant = me.tenant AND c.owner = mine AND c.key = wanted
    AND c.gone IS NULL AND (c.expires_at IS NULL OR c.expires_at > me.now);
  IF NOT FOUND THEN
    SELECT c.id INTO found_id FROM palaver.conversations c WHERE c.tenant = me.tenant AND c.key = wanted
      AND c.gone IS NULL AND (c.expires_at IS NULL OR c.expires_at > me.now) ORDER BY c.cid LIMIT 1;
  END IF;
  IF NOT FOUND THEN
    SELECT c.id INTO found_id FROM palaver_api.open_conversation(who(), jsonb_build_object('id', new_id(), 'owner', mine,
      'key', wanted, 'agent', open_thread.agent, 'participants', '[]', 'salt', new_salt())) AS c;
  END IF;
  PERFORM set_config('role', role, true);
  RETURN found_id;
END $$;

-- actor_of: the default actor of a role, as in the library
CREATE OR REPLACE FUNCTION palaver_compat.actor_of(c palaver.conversations, role text) RETURNS text
LANGUAGE sql STABLE
  RETURN CASE role
    WHEN 'user' THEN coalesce((palaver_compat.caller())."user", nullif((c).owner, ''), 'user')
    WHEN 'assistant' THEN coalesce((c).agent, 'assistant')
    ELSE role END;

-- checked: check a draft as the original table would, and fill in the other fields of a turn
CREATE OR REPLACE FUNCTION palaver_compat.checked(c palaver.conversations, t palaver.turns) RETURNS palaver.turns
LANGUAGE plpgsql SET search_path = pg_catalog, palaver_compat, pg_temp AS $$
DECLARE
  size bigint := octet_length(t.content) + coalesce(octet_length(t.tool_calls), 0) + coalesce(octet_length(t.tool_results), 0);
BEGIN
  IF t.role NOT IN ('user', 'assistant', 'system', 'tool') OR (t.role = 'tool' AND t.tool_results IS NULL) THEN
    RAISE EXCEPTION USING ERRCODE = 'check_violation', MESSAGE = 'role must be user, assistant or system';
  ELSIF t.role = 'system' AND 'system' <> ALL (string_to_array(coalesce((palaver_compat.caller()).rights, ''), ',')) THEN
    PERFORM palaver.fail('PV021', 'system');
  ELSIF size > 5000000 THEN
    PERFORM palaver.fail('PV032', 'content', size::text, '5000000', 'bytes');
  ELSIF octet_length(t.metadata) > 65536 THEN
    PERFORM palaver.fail('PV032', 'metadata', octet_length(t.metadata)::text, '65536', 'bytes');
  ELSIF palaver.is_redacted(c.settings) THEN
    t.is_parts := 0;
    PERFORM palaver.check_redacted(t.content, t.is_parts, t.tool_calls, t.tool_results, t.sources, t.metadata, NULL,
      t.idempotency_key);
    IF t.actor IS NOT NULL THEN
      PERFORM palaver.check_speaker(c.tenant, c.cid, t.actor);
    END IF;
  END IF;
  t.id := new_id();
  t.salt := new_salt();
  t.actor := coalesce(t.actor, actor_of(c, t.role));
  t.is_parts := 0;
  t.adapter := 'sql';
  t.token_count := guess(concat_ws(E'\n', t.content, t.tool_calls, t.tool_results));
  t.preview := CASE WHEN t.role = 'user' THEN first_line(t.content) END;
  RETURN t;
END $$;

-- append: store a row of an old table as a turn, or as a new version of one, and return it
CREATE OR REPLACE FUNCTION palaver_compat.append(conversation text, draft palaver.turns, replaces text DEFAULT NULL)
RETURNS palaver.turns
LANGUAGE plpgsql SET search_path = pg_catalog, palaver_compat, pg_temp AS $$
DECLARE
  role text := current_setting('role');
  me palaver.asker := palaver.enter(who(), 'write');
  t palaver.turns := checked(palaver.find(me, conversation), draft);
BEGIN
  SELECT * INTO t FROM palaver_api.append(who(), conversation,
    jsonb_build_array(to_jsonb(t) || '{"words": [], "terms": 0}'), NULL, replaces);
  INSERT INTO wordless (tenant, tid, cid) VALUES (t.tenant, t.tid, t.cid);
  PERFORM palaver.put_job(t.tenant, t.cid, 'embed', 1, me.now);  -- 1: some turns are not indexed
  PERFORM pg_notify('palaver', to_json(ARRAY[left(encode(sha256(palaver.fields(conversation)), 'hex'), 24)])::text);
  SELECT * INTO t FROM palaver.turns o WHERE o.tenant = t.tenant AND o.tid = t.tid;
  PERFORM set_config('role', role, true);
  RETURN t;
END $$;

-- forget: forget the turn of a deleted row; with `whole`, also the conversation if that was its last turn
CREATE OR REPLACE FUNCTION palaver_compat.forget(conversation text, turn text, whole boolean) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver_compat, pg_temp AS $$
DECLARE
  role text := current_setting('role');
  me palaver.asker := palaver.enter(who(), 'write');
  c palaver.conversations;
BEGIN
  PERFORM palaver_api.forget_turn(who(), conversation, turn);
  c := palaver.find(me, conversation);
  IF whole AND c.turn_count = 0 AND (me."user" = c.owner OR 'admin' = ANY (string_to_array(me.rights, ','))) THEN
    PERFORM palaver.bury(me, c, 'forget');
  END IF;
  PERFORM set_config('role', role, true);
END $$;

-- ---- for the worker -------------------------------------------------------------------------------------------------

-- to_index: turns of a conversation that are not indexed yet; with empty content if forgotten since
CREATE OR REPLACE FUNCTION palaver_api.to_index(who jsonb, conversation text, most integer)
RETURNS TABLE (tid bigint, is_parts smallint, content text)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
#variable_conflict use_column
DECLARE
  me asker := enter(who, 'read');
  c palaver.conversations := find(me, conversation);
BEGIN
  IF to_regclass('palaver_compat.wordless') IS NULL THEN
    RETURN;  -- the older system's tables were removed, and this function stayed
  END IF;
  RETURN QUERY SELECT t.tid, t.is_parts, coalesce(CASE WHEN t.status = 'complete' THEN t.content END, '')
  FROM palaver_compat.wordless w JOIN turns t ON t.tenant = w.tenant AND t.tid = w.tid
  WHERE w.tenant = me.tenant AND w.cid = c.cid ORDER BY w.tid LIMIT most;
END $$;

-- put_words: index them. `words` is a list of [turn, [[number of stems, tsvector], …]]
CREATE OR REPLACE FUNCTION palaver_api.put_words(who jsonb, conversation text, words jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'write');
  c palaver.conversations := open_thread(me, conversation);
BEGIN
  WITH taken AS (
    DELETE FROM palaver_compat.wordless o USING jsonb_array_elements(words) AS w (value)
    WHERE o.tenant = me.tenant AND o.cid = c.cid AND o.tid = (w.value ->> 0)::bigint RETURNING o.tid, w.value -> 1 AS pieces
  ), stored AS (
    INSERT INTO passages (tenant, cid, tid, part, size, terms)
    SELECT me.tenant, c.cid, t.tid, p.n - 1, (p.value ->> 0)::integer, (p.value ->> 1)::tsvector
    FROM taken k JOIN turns t ON t.tenant = me.tenant AND t.tid = k.tid AND t.status = 'complete',
      jsonb_array_elements(k.pieces) WITH ORDINALITY AS p (value, n)
    ORDER BY t.tid, p.n RETURNING size
  ) UPDATE conversations o SET passage_count = o.passage_count + s.passages, passage_terms = o.passage_terms + s.terms,
      marked = o.marked + 1
    FROM (SELECT count(*) AS passages, coalesce(sum(size), 0) AS terms FROM stored) AS s
    WHERE o.tenant = c.tenant AND o.cid = c.cid;
END $$;

-- ---- grants ---------------------------------------------------------------------------------------------------------

-- open_functions: grant these functions to the application, to signed-in users and to the server key; called at the end of
-- every file. The views read tables of `palaver` with the rights of their caller
CREATE OR REPLACE FUNCTION palaver_compat.open_functions() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE role text;
BEGIN
  REVOKE ALL ON SCHEMA palaver_compat FROM PUBLIC;
  REVOKE ALL ON ALL FUNCTIONS IN SCHEMA palaver_compat, palaver_api FROM PUBLIC;
  FOR role IN SELECT rolname FROM pg_roles WHERE rolname IN ('palaver_app', 'authenticated', 'service_role') LOOP
    EXECUTE format('GRANT USAGE ON SCHEMA palaver_compat TO %I', role);
    EXECUTE format('GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA palaver_compat, palaver_api TO %I', role);
  END LOOP;
  IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'service_role') THEN
    GRANT SELECT ON palaver.conversations, palaver.turns, palaver.attachments TO service_role;
  END IF;
END $$;
SELECT palaver_compat.open_functions();
