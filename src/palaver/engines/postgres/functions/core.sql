-- Used by all other functions: the caller, errors, hashes, and a conversation that is open for writing.

-- fail: raise an error that the library recognises by its SQLSTATE. The message holds ids and numbers, never content
CREATE OR REPLACE FUNCTION palaver.fail(code text, VARIADIC told text[]) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  RAISE EXCEPTION USING ERRCODE = code, MESSAGE = to_json(told)::text;
END $$;

-- claimed_tenant: the tenant that a token names; ALTER DATABASE … SET palaver.tenant_claim = 'organisation' says where. A
-- token whose subject is empty has none, so that it sees nothing and may do nothing: '' is the owner of the
-- conversations of the application itself
CREATE OR REPLACE FUNCTION palaver.claimed_tenant() RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
  RETURN CASE WHEN current_setting('palaver.tenant_claim', true) IN ('user_metadata', 'app_metadata')
      OR palaver.claims() ->> 'sub' = '' THEN NULL
    ELSE palaver.claim(coalesce(nullif(current_setting('palaver.tenant_claim', true), ''), 'tenant')) END;

-- seen: those of some conversations (NULL: all of the tenant) that the caller may see. For functions that run as
-- `palaver_index`, whose own policy it reads under. The application has read its list under its policies already
CREATE OR REPLACE FUNCTION palaver.seen(cids bigint[]) RETURNS bigint[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE me palaver.asker;
BEGIN
  IF asking_role() NOT IN ('authenticated', 'anon') THEN
    RETURN cids;
  END IF;
  me := whoami();
  IF me.sight = 'tenant' THEN
    RETURN cids;
  END IF;
  RETURN ARRAY(SELECT c.cid FROM conversations c WHERE c.tenant = me.tenant AND (cids IS NULL OR c.cid = ANY (cids)));
END $$;

-- restrict_writes: policies that refuse the writes of a token without the right `write`. For a migration, which calls it
-- once for each table, in a transaction of its own: it waits only briefly for the lock, and lets others go first
CREATE OR REPLACE FUNCTION palaver.restrict_writes(name text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'authenticated') OR EXISTS (SELECT 1 FROM pg_policies p
      WHERE p.schemaname = 'palaver' AND p.tablename = name AND p.policyname = 'authenticated_insert') THEN
    RETURN;
  END IF;
  PERFORM set_config('lock_timeout', '500ms', true);
  LOOP
    BEGIN
      EXECUTE format('CREATE POLICY authenticated_insert ON palaver.%I AS RESTRICTIVE FOR INSERT TO authenticated'
        ' WITH CHECK (palaver.may_write())', name);
      -- Rows that are only locked are not checked: a reader locks a conversation while it is exported.
      EXECUTE format('CREATE POLICY authenticated_update ON palaver.%I AS RESTRICTIVE FOR UPDATE TO authenticated'
        ' USING (true) WITH CHECK (palaver.may_write())', name);
      EXECUTE format('CREATE POLICY authenticated_delete ON palaver.%I AS RESTRICTIVE FOR DELETE TO authenticated'
        ' USING (palaver.may_write())', name);
      RETURN;
    EXCEPTION WHEN lock_not_available THEN
      PERFORM pg_sleep(0.5);
    END;
  END LOOP;
END $$;

-- enter: called first by every function of `palaver_api`. From here on the transaction runs as one caller, in a role
-- that owns nothing and is subject to row level security, whichever login opened the connection. `need` is the right
-- of the function in `function_rights`: given as a constant, so that it costs no query
CREATE OR REPLACE FUNCTION palaver.enter(who jsonb, need text DEFAULT 'write') RETURNS palaver.asker
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  role text := coalesce(nullif(current_setting('role'), 'none'), session_user::text);
  me palaver.asker;
  told text;
BEGIN
  IF role IN ('authenticated', 'anon') THEN
    me := palaver.whoami();
    me.now := extract(epoch FROM clock_timestamp()) * 1000000;
  ELSE
    me.tenant := nullif(who ->> 'tenant', '');
    me."user" := nullif(who ->> 'user', '');
    me.sight := coalesce(who ->> 'sight', 'own');
    me.workspace := nullif(who ->> 'workspace', '');
    me.rights := coalesce(who ->> 'rights', 'read,write');
    me.now := coalesce((who ->> 'now')::bigint, extract(epoch FROM clock_timestamp()) * 1000000);
    -- One expression, because PERFORM would run a query.
    told := set_config('palaver.tenant', coalesce(me.tenant, ''), true)
      || set_config('palaver.user', coalesce(me."user", ''), true)
      || set_config('palaver.sight', me.sight, true)
      || set_config('palaver.workspace', coalesce(me.workspace, ''), true)
      || set_config('palaver.rights', me.rights, true)
      || set_config('palaver.cid', '', true)
      || CASE WHEN role <> 'palaver_app' THEN set_config('role', 'palaver_app', true) ELSE '' END;
  END IF;
  IF pg_client_encoding() <> 'UTF8' THEN
    PERFORM palaver.fail('PV031', 'client_encoding', 'must be UTF8');
  END IF;
  IF me.tenant IS NULL OR strpos(',' || me.rights || ',', ',' || need || ',') = 0 THEN
    PERFORM palaver.fail('PV021', need);
  END IF;
  RETURN me;
END $$;

-- signed_in_scope: the caller's scope as the database derives it from the token, the number of the schema, and the oldest
-- code that may use it
CREATE OR REPLACE FUNCTION palaver_api.signed_in_scope(who jsonb)
RETURNS TABLE (tenant text, "user" text, sight text, workspace text, rights text, schema integer, oldest_code integer)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE me asker := enter(who, 'read');
BEGIN
  RETURN QUERY SELECT me.tenant, me."user", me.sight, me.workspace, me.rights, schema_number(), schema_version();
END $$;

-- ---- hashes ---------------------------------------------------------------------------------------------------------
-- Length-prefixed fields, as in core/identity.py. Postgres itself writes the elements of an array in this way, after a
-- header of twenty bytes, provided that the client encoding is UTF-8, which `enter` checks.

CREATE OR REPLACE FUNCTION palaver.fields(VARIADIC told text[]) RETURNS bytea LANGUAGE sql STABLE PARALLEL SAFE
  RETURN substr(array_send(told), 21);

CREATE OR REPLACE FUNCTION palaver.field(told bytea) RETURNS bytea LANGUAGE sql STABLE PARALLEL SAFE
  RETURN substr(array_send(ARRAY[told]), 21);

CREATE OR REPLACE FUNCTION palaver.genesis(conversation text) RETURNS bytea LANGUAGE sql STABLE PARALLEL SAFE
  RETURN sha256(palaver.fields('palaver/event/1', conversation));

CREATE OR REPLACE FUNCTION palaver.event_hash(previous bytea, n bigint, kind text, turn text, actor text, at bigint,
  payload text, content_hash bytea) RETURNS bytea LANGUAGE sql STABLE PARALLEL SAFE
  RETURN sha256(palaver.field(previous) || palaver.fields(n::text, kind, turn, actor, at::text, payload)
    || palaver.field(content_hash));

-- turn_hash: hash of everything in a turn that must never change, as `content_hash` in core/turn_draft.py
CREATE OR REPLACE FUNCTION palaver.turn_hash(t palaver.turns) RETURNS bytea LANGUAGE sql STABLE PARALLEL SAFE
  RETURN sha256(palaver.fields('palaver/turn/1') || palaver.field(coalesce((t).salt, ''::bytea))
    || palaver.fields((t).id, (t).role, (t).actor, (t).is_parts::text, coalesce((t).content, ''), (t).tool_calls,
      (t).tool_results, (t).attachments, (t).sources, (t).prompt_tokens::text, (t).completion_tokens::text,
      (t).token_count::text, (t).model, (t).adapter, (t).finish_reason, (t).metadata, (t).idempotency_key,
      (t).created::text));

-- chunk_hash: hash of one piece of a stream
CREATE OR REPLACE FUNCTION palaver.chunk_hash(salt bytea, piece text) RETURNS bytea LANGUAGE sql STABLE PARALLEL SAFE
  RETURN sha256(palaver.fields('palaver/chunk/1') || palaver.field(salt) || palaver.fields(piece));

-- stub_hash: hash of the stub that is left of a forgotten turn
CREATE OR REPLACE FUNCTION palaver.stub_hash(t palaver.turns, key text) RETURNS bytea LANGUAGE sql STABLE PARALLEL SAFE
  RETURN sha256(palaver.fields('palaver/stub/1', (t).id, (t).role, (t).actor, (t).created::text, key)
    || palaver.field((t).content_hash));

-- key_hash: the hash that is kept of an idempotency key
CREATE OR REPLACE FUNCTION palaver.key_hash(conversation text, key text) RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
  RETURN CASE WHEN key IS NOT NULL THEN 'sha256:' || encode(sha256(palaver.fields(conversation, key)), 'hex') END;

-- stub_key: what a stub keeps of an idempotency key: its hash. A key that was stored as its hash stays as it is
CREATE OR REPLACE FUNCTION palaver.stub_key(conversation text, key text) RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
  RETURN CASE WHEN key ~ '^sha256:[0-9a-f]{64}$' THEN key ELSE palaver.key_hash(conversation, key) END;

-- details_hash: hash of the fields of a conversation that only `create` and `update` set, in the order of
-- `ConversationDetails` in core/conversation_details.py
CREATE OR REPLACE FUNCTION palaver.details_hash(c palaver.conversations) RETURNS bytea
LANGUAGE sql STABLE PARALLEL SAFE
  RETURN sha256(palaver.fields('palaver/conversation/1') || palaver.field((c).salt)
    || palaver.fields((c).id, (c).owner, (c).key, (c).workspace, (c).agent, (c).model, (c).title, (c).participants,
      (c).metadata, (c).settings, (c).ttl::text));

-- ---- ids ------------------------------------------------------------------------------------------------------------

-- stamp: write the seq of a turn into the last seven characters of its id. One expression, which costs no function call
CREATE OR REPLACE FUNCTION palaver.stamp(id text, seq bigint) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN left(id, -7)
    || substr('0123456789ABCDEFGHJKMNPQRSTVWXYZ', (seq >> 30 & 31)::integer + 1, 1)
    || substr('0123456789ABCDEFGHJKMNPQRSTVWXYZ', (seq >> 25 & 31)::integer + 1, 1)
    || substr('0123456789ABCDEFGHJKMNPQRSTVWXYZ', (seq >> 20 & 31)::integer + 1, 1)
    || substr('0123456789ABCDEFGHJKMNPQRSTVWXYZ', (seq >> 15 & 31)::integer + 1, 1)
    || substr('0123456789ABCDEFGHJKMNPQRSTVWXYZ', (seq >> 10 & 31)::integer + 1, 1)
    || substr('0123456789ABCDEFGHJKMNPQRSTVWXYZ', (seq >> 5 & 31)::integer + 1, 1)
    || substr('0123456789ABCDEFGHJKMNPQRSTVWXYZ', (seq >> 0 & 31)::integer + 1, 1);

-- stamped_seq: the seq in an id; NULL when the id is not one of Palaver's
CREATE OR REPLACE FUNCTION palaver.stamped_seq(id text) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  seq bigint := 0;
  digit int;
BEGIN
  IF char_length(id) <> 26 THEN
    RETURN NULL;
  END IF;
  FOR place IN 20..26 LOOP
    digit := strpos('0123456789ABCDEFGHJKMNPQRSTVWXYZ', substr(id, place, 1)) - 1;
    IF digit < 0 THEN
      RETURN NULL;
    END IF;
    seq := seq * 32 + digit;
  END LOOP;
  RETURN seq;
END $$;

-- ---- row numbers ----------------------------------------------------------------------------------------------------
-- They grow within a conversation. On a Citus cluster every node gives out numbers, so citus.sql replaces these functions.

CREATE OR REPLACE FUNCTION palaver.new_tid() RETURNS bigint LANGUAGE sql VOLATILE
  RETURN nextval('palaver.turn_numbers');

CREATE OR REPLACE FUNCTION palaver.new_number() RETURNS bigint LANGUAGE sql VOLATILE
  RETURN nextval('palaver.numbers');

-- ---- conversations --------------------------------------------------------------------------------------------------

-- missing: raise the error that says why a conversation cannot be found. `append_calls` asks for plans without the values
-- of parameters, from which Citus cannot tell the shard here
CREATE OR REPLACE FUNCTION palaver.missing(me palaver.asker, conversation text) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, palaver, pg_temp SET plan_cache_mode = force_custom_plan AS $$
BEGIN
  IF EXISTS (SELECT 1 FROM conversations c WHERE c.tenant = me.tenant AND c.id = conversation
             AND c.gone IS NULL AND c.expires_at = 2) THEN
    PERFORM fail('PV018', conversation);  -- it is being reset
  END IF;
  IF EXISTS (SELECT 1 FROM conversations c WHERE c.tenant = me.tenant AND c.id = conversation
             AND (c.gone IS NOT NULL OR c.expires_at <= me.now)) THEN
    PERFORM fail('PV002', conversation);
  END IF;
  PERFORM fail('PV001', conversation);
END $$;

-- find: a conversation, for reading. Whether it is deleted is checked on the row: in the query, that condition would
-- make the planner of an empty database choose the index of all live conversations
CREATE OR REPLACE FUNCTION palaver.find(me palaver.asker, conversation text) RETURNS palaver.conversations
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE c palaver.conversations;
BEGIN
  SELECT * INTO c FROM conversations o WHERE o.tenant = me.tenant AND o.id = conversation;
  IF NOT FOUND OR c.gone IS NOT NULL OR c.expires_at <= me.now THEN
    PERFORM missing(me, conversation);
  END IF;
  IF me.sight <> 'tenant' THEN
    PERFORM set_config('palaver.cid', c.cid::text, true);
  END IF;
  RETURN c;
END $$;

-- open_thread: a conversation, for writing. Its lock is always taken first, so that transactions cannot deadlock
CREATE OR REPLACE FUNCTION palaver.open_thread(me palaver.asker, conversation text) RETURNS palaver.conversations
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE c palaver.conversations;
BEGIN
  SELECT * INTO c FROM conversations o WHERE o.tenant = me.tenant AND o.id = conversation FOR NO KEY UPDATE;
  IF NOT FOUND OR c.gone IS NOT NULL OR c.expires_at <= me.now THEN
    PERFORM missing(me, conversation);
  END IF;
  IF me.sight <> 'tenant' THEN
    PERFORM set_config('palaver.cid', c.cid::text, true);
  END IF;
  RETURN c;
END $$;

-- lock_if_there: lock a conversation for a sweep over many; false when another transaction deleted it after they
-- were listed
CREATE OR REPLACE FUNCTION palaver.lock_if_there(me palaver.asker, conversation text) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  PERFORM 1 FROM conversations o WHERE o.tenant = me.tenant AND o.id = conversation AND o.gone IS NULL
    AND (o.expires_at IS NULL OR o.expires_at > me.now) FOR NO KEY UPDATE;
  RETURN FOUND;
END $$;

-- require_owner: allow only the owner of a conversation, or an admin
CREATE OR REPLACE FUNCTION palaver.require_owner(me palaver.asker, owner text) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  IF me."user" IS DISTINCT FROM owner AND strpos(',' || me.rights || ',', ',admin,') = 0 THEN
    PERFORM fail('PV021', 'admin');
  END IF;
END $$;

-- next_time: the time after another one, which is later even if the clock is not. If it is more than a day ahead of the
-- clock, an earlier clock was wrong: then time continues from now
CREATE OR REPLACE FUNCTION palaver.next_time(now bigint, last bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN CASE WHEN last < now OR last - now > 86400000000 THEN now ELSE last + 1 END;

-- tick: the next time of a conversation, later than every one before even if the clock was set back
CREATE OR REPLACE FUNCTION palaver.tick(me palaver.asker, c palaver.conversations) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN palaver.next_time((me).now, (c).updated);

-- log: append an event at the conversation's current time. `payload` is JSON
CREATE OR REPLACE FUNCTION palaver.log(me palaver.asker, c palaver.conversations, kind text, actor text DEFAULT NULL,
  turn text DEFAULT NULL, payload jsonb DEFAULT NULL, content_hash bytea DEFAULT NULL) RETURNS palaver.conversations
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  told text;
  proved jsonb;
BEGIN
  IF actor IS NULL THEN
    actor := coalesce(me."user", '');
  ELSIF me."user" IS NOT NULL AND actor <> me."user" THEN
    payload := coalesce(payload, '{}') || jsonb_build_object('by', me."user");
  END IF;
  IF coalesce(current_setting('palaver.touched', true), '') <> '' THEN
    proved := prove_touched(c);
    payload := CASE WHEN proved IS NULL THEN payload ELSE coalesce(payload, '{}') || proved END;
  END IF;
  told := payload::text;
  c.tip_hash := event_hash(c.tip_hash, c.next_n, kind, turn, actor, c.updated, told, content_hash);
  INSERT INTO events (tenant, cid, n, kind, turn, actor, at, payload, content_hash, hash)
  VALUES (c.tenant, c.cid, c.next_n, kind, turn, actor, c.updated, told, content_hash, c.tip_hash);
  c.next_n := c.next_n + 1;
  RETURN c;
END $$;

-- save: write the conversation's row, once, at the end of every write
CREATE OR REPLACE FUNCTION palaver.save(c palaver.conversations) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE rows jsonb;
BEGIN
  IF coalesce(current_setting('palaver.touched', true), '') <> '' THEN
    rows := prove_touched(c);
    IF rows IS NOT NULL THEN
      c := log(whoami(), c, 'prove', payload => rows);
    END IF;
  END IF;
  UPDATE conversations o SET next_seq = c.next_seq, next_n = c.next_n, tip_hash = c.tip_hash,
    tip_position = c.tip_position, tip_slot = c.tip_slot, updated = c.updated, minute = c.updated / 60000000,
    turn_count = c.turn_count, token_count = c.token_count, preview = c.preview, expires_at = c.updated + c.ttl
  WHERE o.tenant = c.tenant AND o.id = c.id;
END $$;

-- turn_of: a turn by its id
CREATE OR REPLACE FUNCTION palaver.turn_of(c palaver.conversations, id text) RETURNS palaver.turns
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE t palaver.turns;
BEGIN
  SELECT * INTO t FROM turns o
  WHERE o.tenant = c.tenant AND o.cid = c.cid AND o.seq = stamped_seq(turn_of.id) AND o.id = turn_of.id;
  IF NOT FOUND THEN
    PERFORM fail('PV003', turn_of.id);
  END IF;
  RETURN t;
END $$;

-- kept_turn: a turn by its id; an error when it is forgotten
CREATE OR REPLACE FUNCTION palaver.kept_turn(c palaver.conversations, id text) RETURNS palaver.turns
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE t palaver.turns := turn_of(c, id);
BEGIN
  IF t.status = 'forgotten' THEN
    PERFORM fail('PV004', id);
  END IF;
  RETURN t;
END $$;

-- find_tip: find the last turn of the active branch, after turns left it or came back
CREATE OR REPLACE FUNCTION palaver.find_tip(c palaver.conversations) RETURNS palaver.conversations
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  SELECT t.position, coalesce(t.slot, t.id) INTO c.tip_position, c.tip_slot FROM turns t
  WHERE t.tenant = c.tenant AND t.cid = c.cid AND t.active = 1 ORDER BY t.position DESC LIMIT 1;
  IF NOT FOUND THEN
    c.tip_position := -1;
    c.tip_slot := NULL;
  END IF;
  RETURN c;
END $$;

-- refresh_preview: take the preview from the first user turn of the active branch
CREATE OR REPLACE FUNCTION palaver.refresh_preview(c palaver.conversations) RETURNS palaver.conversations
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  c.preview := (SELECT t.preview FROM turns t WHERE t.tenant = c.tenant AND t.cid = c.cid AND t.active = 1
    AND t.role = 'user' AND t.status = 'complete' AND t.preview IS NOT NULL ORDER BY t.position LIMIT 1);
  RETURN c;
END $$;

-- ---- the text index -------------------------------------------------------------------------------------------------

-- index_title: replace the stems of a conversation's title
CREATE OR REPLACE FUNCTION palaver.index_title(c palaver.conversations, words text, size integer) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  DELETE FROM passages p WHERE p.tenant = c.tenant AND p.cid = c.cid AND p.tid IS NULL;
  IF words IS NOT NULL THEN
    INSERT INTO passages (tenant, cid, part, size, terms)
    VALUES (c.tenant, c.cid, 0, index_title.size, words::tsvector);
  END IF;
END $$;

-- index_turn: index the stems of a turn, one row per passage. `words` is a list of [number of stems, tsvector]
CREATE OR REPLACE FUNCTION palaver.index_turn(t palaver.turns, words jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  INSERT INTO passages (tenant, cid, tid, part, size, terms)
  SELECT t.tenant, t.cid, t.tid, w.n - 1, (w.word ->> 0)::integer, (w.word ->> 1)::tsvector
  FROM jsonb_array_elements(words) WITH ORDINALITY AS w (word, n)
  ON CONFLICT DO NOTHING;  -- never conflicts; the clause keeps Citus from using COPY, which row level security rejects
END $$;

-- put_job: enqueue a job, once per conversation and kind; the smaller argument wins. `created` is moved forward, so
-- that the worker that holds the job sees that there is more to do, and a dead job is tried again
CREATE OR REPLACE FUNCTION palaver.put_job(tenant text, cid bigint, kind text, argument bigint, now bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  INSERT INTO jobs AS j (tenant, cid, kind, run_at, argument, created)
  VALUES (put_job.tenant, put_job.cid, put_job.kind, now, put_job.argument, now)
  ON CONFLICT ON CONSTRAINT jobs_pkey DO UPDATE SET created = greatest(j.created + 1, excluded.created), dead = 0,
    argument = least(j.argument, excluded.argument);
END $$;

-- ---- the worker -----------------------------------------------------------------------------------------------------

-- enter_worker: begin a call for all tenants, which sees which of them have work but no content. A user with a token
-- sees only the own tenant
CREATE OR REPLACE FUNCTION palaver.enter_worker(who jsonb) RETURNS palaver.asker
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE me palaver.asker;
BEGIN
  IF asking_role() IN ('authenticated', 'anon') THEN
    RETURN enter(who, 'read');
  END IF;
  PERFORM set_config('role', 'palaver_worker', true);
  me.now := coalesce((who ->> 'now')::bigint, extract(epoch FROM clock_timestamp()) * 1000000);
  RETURN me;
END $$;
