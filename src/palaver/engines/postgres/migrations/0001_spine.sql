-- The tables, the policies on them, and the function that identifies the caller.
--
-- `palaver` holds the tables and is never exposed; `palaver_api` holds the functions for callers. Times are microseconds
-- since 1970, UTC. `tenant` leads every key and every index, so that the schema shards by tenant. `cid`, `tid`, `pid` are
-- row numbers of this database: they grow within a conversation, and are never reused.

SET LOCAL client_min_messages = warning;
CREATE SCHEMA IF NOT EXISTS extensions;
CREATE EXTENSION IF NOT EXISTS btree_gin WITH SCHEMA extensions;
CREATE EXTENSION IF NOT EXISTS vector WITH SCHEMA extensions;
CREATE SCHEMA palaver;
CREATE SCHEMA palaver_api;
SET LOCAL search_path = palaver, extensions, public;

-- ---- roles ----------------------------------------------------------------------------------------------------------
-- palaver_app     the role of the application, inside one tenant; it owns nothing
-- palaver_worker  sees which tenants there are and which have jobs, and no content
-- palaver_index   owns the look-up of words (see `passages`), and can read nothing else
-- palaver_eraser  deletes bodies that quote a forgotten turn (see `request_quotes`), and cannot read them

DO $$
DECLARE
  name text;
  -- Since Postgres 16, membership and the right to SET ROLE are separate; before, every member may, and 'SET' is an
  -- error. This is the one statement of this released file that was changed later: on 16 and newer it means the same as
  -- before, and on 15 the file could not be run at all.
  may_become text := CASE WHEN current_setting('server_version_num')::integer >= 160000 THEN 'SET' ELSE 'MEMBER' END;
BEGIN
  FOREACH name IN ARRAY ARRAY['palaver_app', 'palaver_worker', 'palaver_index', 'palaver_eraser'] LOOP
    BEGIN
      IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = name) THEN
        EXECUTE format('CREATE ROLE %I NOLOGIN NOINHERIT', name);
      END IF;
    EXCEPTION WHEN duplicate_object OR unique_violation THEN
      NULL;  -- roles belong to the whole server: another database is creating this one now
    END;
    IF NOT pg_has_role(current_user, name, may_become) THEN
      EXECUTE format('GRANT %I TO %I', name, current_user);
    END IF;
  END LOOP;
END $$;

-- ---- tables ---------------------------------------------------------------------------------------------------------

CREATE SEQUENCE conversation_numbers;
CREATE SEQUENCE turn_numbers;
CREATE SEQUENCE passage_numbers;
CREATE SEQUENCE numbers;  -- of everything else

-- Columns of a fixed size come first: their offsets are known without reading the others.
CREATE TABLE conversations (
  cid bigint NOT NULL DEFAULT nextval('palaver.conversation_numbers'),
  next_seq bigint NOT NULL DEFAULT 0,
  next_n bigint NOT NULL DEFAULT 1,
  tip_position bigint NOT NULL DEFAULT -1,     -- position of the last turn of the active view (`tip_slot`: its slot)
  turn_count bigint NOT NULL DEFAULT 0,        -- of the active view
  token_count bigint NOT NULL DEFAULT 0,
  created bigint NOT NULL,
  updated bigint NOT NULL,                     -- strictly increasing: the clock of this conversation
  minute bigint NOT NULL,                      -- of `updated`; coarse, so that most appends move no index entry
  revision bigint NOT NULL DEFAULT 0,          -- changes of the view that are not appends
  marked bigint NOT NULL DEFAULT 0,            -- batches of new marks
  summarized_position bigint NOT NULL DEFAULT 0,  -- the first position that no summary covers
  summarized_turns bigint NOT NULL DEFAULT 0,  -- turns of the view before it
  summarized_tokens bigint NOT NULL DEFAULT 0,
  passage_count bigint NOT NULL DEFAULT 0,     -- of turns, in the text index
  passage_terms bigint NOT NULL DEFAULT 0,
  compact_turns bigint NOT NULL DEFAULT 50,    -- thresholds of compaction, from the settings
  compact_tokens bigint NOT NULL DEFAULT 8000,
  to_embed boolean NOT NULL DEFAULT false,     -- an `embed` job exists: an append need not add one
  title_made boolean NOT NULL DEFAULT false,   -- a job wrote the title: it is deleted when a turn is forgotten
  tenant text NOT NULL,
  id text NOT NULL,
  owner text NOT NULL,                         -- '' when the application itself is the owner
  tip_hash bytea NOT NULL,
  participants text NOT NULL DEFAULT '[]',     -- canonical JSON
  members text[] NOT NULL DEFAULT '{}',        -- the same as an array, which a policy can search
  tip_slot text,
  gone bigint,                                 -- when it was deleted for good; only the log remains
  ttl bigint,
  expires_at bigint,
  key text,
  workspace text,
  agent text,
  model text,
  title text,
  preview text,
  metadata text,
  settings text,
  salt bytea,
  content_hash bytea,                          -- of the fields that only an `update` event may change
  PRIMARY KEY (tenant, cid)
) WITH (fillfactor = 70);                      -- every append updates its row in place
CREATE UNIQUE INDEX conversations_by_key ON conversations (tenant, owner, key) WHERE key IS NOT NULL AND gone IS NULL;
CREATE INDEX conversations_newest ON conversations (tenant, minute) WHERE gone IS NULL;
CREATE INDEX conversations_of ON conversations (tenant, owner) WHERE gone IS NULL;
CREATE INDEX conversations_expiring ON conversations (tenant, expires_at) WHERE expires_at IS NOT NULL AND gone IS NULL;
-- Created last: without statistics the planner considers all indexes that begin with the tenant equal, and takes the
-- last one.
CREATE UNIQUE INDEX conversations_by_id ON conversations (tenant, id);

CREATE TABLE turns (
  tid bigint NOT NULL DEFAULT nextval('palaver.turn_numbers'),
  cid bigint NOT NULL,
  seq bigint NOT NULL,
  position bigint NOT NULL,
  created bigint NOT NULL,
  token_count bigint NOT NULL DEFAULT 0,
  active smallint NOT NULL,
  is_parts smallint NOT NULL DEFAULT 0,
  tenant text NOT NULL,
  id text NOT NULL,
  status text NOT NULL,
  role text NOT NULL,
  actor text NOT NULL,
  parent text,                                 -- slot of the previous turn
  slot text,                                   -- NULL: its own id
  superseded_by text,
  content text,
  tool_calls text,
  tool_results text,
  attachments text,
  sources text,
  prompt_tokens bigint,
  completion_tokens bigint,
  model text,
  adapter text,
  finish_reason text,
  metadata text,
  idempotency_key text,
  preview text,                                -- the first line of a user turn
  salt bytea,
  content_hash bytea,
  PRIMARY KEY (tenant, tid),
  FOREIGN KEY (tenant, cid) REFERENCES conversations
);
-- A turn's id ends in its seq (see identity.stamp), so this index finds a turn by its id as well.
CREATE UNIQUE INDEX turns_by_seq ON turns (tenant, cid, seq);
-- The hot read path; it also ensures that one turn is active per position.
CREATE UNIQUE INDEX turns_active ON turns (tenant, cid, position) WHERE active = 1;
CREATE INDEX turns_inactive ON turns (tenant, cid, position) WHERE active = 0;
CREATE UNIQUE INDEX turns_by_key ON turns (tenant, cid, idempotency_key) WHERE idempotency_key IS NOT NULL;

-- One row per pending turn, with the end of its lease. No content, so that a worker may read it.
CREATE TABLE streams (
  tenant text NOT NULL,
  tid bigint NOT NULL,
  cid bigint NOT NULL,
  lease_until bigint NOT NULL,
  next_chunk bigint NOT NULL DEFAULT 0,
  length bigint NOT NULL DEFAULT 0,            -- characters so far
  PRIMARY KEY (tenant, tid),
  FOREIGN KEY (tenant, tid) REFERENCES turns,
  FOREIGN KEY (tenant, cid) REFERENCES conversations
);
CREATE INDEX streams_of ON streams (tenant, cid);

CREATE TABLE attachments (
  tenant text NOT NULL,
  cid bigint NOT NULL,
  id text NOT NULL,
  aid bigint NOT NULL DEFAULT nextval('palaver.numbers'),
  tid bigint,                                  -- NULL until it is attached to a turn
  owner text NOT NULL,
  filename text NOT NULL,
  media_type text NOT NULL,
  bytes bigint NOT NULL,
  sha256 text NOT NULL,
  path text NOT NULL,
  created bigint NOT NULL,
  characters bigint,                           -- NULL: its text has not been extracted yet
  problem text,                                -- why it has no text; never quotes the file
  PRIMARY KEY (tenant, cid, id),
  FOREIGN KEY (tenant, cid) REFERENCES conversations,
  FOREIGN KEY (tenant, tid) REFERENCES turns
);
CREATE INDEX attachments_of ON attachments (tenant, tid);

-- Extracted text of files, in the pieces that the text index holds. Parts from 100,000 on belong to a turn's first file,
-- from 200,000 on to its second; smaller numbers are the turn's own text. Deleting a file deletes its pieces.
CREATE TABLE file_passages (
  tenant text NOT NULL,
  tid bigint NOT NULL,
  part integer NOT NULL,
  cid bigint NOT NULL,
  id text NOT NULL,                            -- of the attachment
  text text NOT NULL,
  PRIMARY KEY (tenant, tid, part),
  FOREIGN KEY (tenant, cid, id) REFERENCES attachments ON DELETE CASCADE
);
CREATE INDEX file_passages_by_file ON file_passages (tenant, cid, id, part);

-- Files whose rows are deleted already. Written in the deleting transaction, so that a crash cannot leave a file behind.
CREATE TABLE doomed_blobs (tenant text NOT NULL, path text NOT NULL, cid bigint NOT NULL, PRIMARY KEY (tenant, path));

CREATE TABLE events (
  tenant text NOT NULL,
  cid bigint NOT NULL,
  n bigint NOT NULL,
  kind text NOT NULL,
  turn text,
  actor text NOT NULL,
  at bigint NOT NULL,
  payload text,
  content_hash bytea,
  hash bytea NOT NULL,
  PRIMARY KEY (tenant, cid, n)                 -- no foreign key: rows of conversations are never deleted
);

-- The text index: the stems of each passage of a turn or of a title, with their places. The library computes them, with
-- the same code for every engine. `@@` is not leakproof, so a policy would keep the planner from using this index: a
-- function of the role `palaver_index` looks words up, and returns only row numbers.
CREATE TABLE passages (
  tenant text NOT NULL,
  pid bigint NOT NULL DEFAULT nextval('palaver.passage_numbers'),
  cid bigint NOT NULL,
  tid bigint,                                  -- NULL: the conversation's title
  part integer NOT NULL,                       -- which passage of the turn
  size integer NOT NULL,                       -- number of stems
  terms tsvector NOT NULL,
  PRIMARY KEY (tenant, pid)
);
CREATE INDEX passages_of ON passages (tenant, cid, tid);
CREATE INDEX passages_in_order ON passages (tenant, cid, pid);  -- to find the passages to embed next
CREATE INDEX passages_terms ON passages USING gin (tenant, cid, terms) WITH (gin_pending_list_limit = 512);

CREATE TABLE summaries (
  tenant text NOT NULL,
  cid bigint NOT NULL,
  level integer NOT NULL,
  from_seq bigint NOT NULL,                    -- positions of the active view
  through_seq bigint NOT NULL,                 -- exclusive
  id text NOT NULL,
  turns bigint NOT NULL,                       -- how many turns of the view it covers
  tokens bigint NOT NULL,                      -- tokens of those turns
  text text NOT NULL,
  token_count bigint NOT NULL,
  model text NOT NULL,
  stale smallint NOT NULL DEFAULT 0,           -- the turns that it covers changed: it has no text until it is rewritten
  created bigint NOT NULL,
  PRIMARY KEY (tenant, cid, level, from_seq),
  FOREIGN KEY (tenant, cid) REFERENCES conversations
);

CREATE TABLE working_memory (
  tenant text NOT NULL,
  cid bigint NOT NULL,
  memory text NOT NULL,                        -- canonical JSON
  through_seq bigint NOT NULL,                 -- inclusive position
  updated bigint NOT NULL,
  PRIMARY KEY (tenant, cid),
  FOREIGN KEY (tenant, cid) REFERENCES conversations
);

CREATE TABLE facts (
  tenant text NOT NULL,
  cid bigint NOT NULL,
  id text NOT NULL,
  fid bigint NOT NULL DEFAULT nextval('palaver.numbers'),
  subject text NOT NULL,
  predicate text NOT NULL,
  object text NOT NULL,
  source_turn text,
  confidence double precision NOT NULL,
  valid_from bigint NOT NULL,
  invalidated_at bigint,
  invalidated_by text,
  by text NOT NULL,
  created bigint NOT NULL,
  model text,                                  -- the embedder of the vector
  vector halfvec,
  PRIMARY KEY (tenant, cid, id),
  FOREIGN KEY (tenant, cid) REFERENCES conversations
);

-- Standing instructions (2) and preferences (1). Most turns have no row.
CREATE TABLE marks (
  tenant text NOT NULL,
  tid bigint NOT NULL,
  cid bigint NOT NULL,
  standing smallint NOT NULL,
  PRIMARY KEY (tenant, tid),
  FOREIGN KEY (tenant, tid) REFERENCES turns
);
CREATE INDEX marks_of ON marks (tenant, cid);

-- One vector per passage that is worth one.
CREATE TABLE embeddings (
  tenant text NOT NULL,
  eid bigint NOT NULL DEFAULT nextval('palaver.numbers'),
  cid bigint NOT NULL,
  tid bigint NOT NULL,
  part integer NOT NULL,
  model text NOT NULL,
  vector halfvec NOT NULL,
  PRIMARY KEY (tenant, eid),
  FOREIGN KEY (tenant, tid) REFERENCES turns
);
CREATE INDEX embeddings_of ON embeddings (tenant, cid, eid);
CREATE UNIQUE INDEX embeddings_by_turn ON embeddings (tenant, tid, part, model);
-- For scopes that are too large to compare every vector. An index is for vectors of one length: this is the local model's;
-- docs/postgres.md says how to add another. It cannot begin with the tenant, and no result depends on it: what it finds is
-- filtered by the policies, and when that is too little, every vector is compared.
CREATE INDEX embeddings_nearest_384 ON embeddings USING hnsw ((vector::halfvec(384)) halfvec_ip_ops)
  WHERE vector_dims(vector) = 384;

-- Progress of an embedder in a conversation: row numbers of passages grow there in the order of their commits.
CREATE TABLE embedded (
  tenant text NOT NULL,
  cid bigint NOT NULL,
  model text NOT NULL,
  pid bigint NOT NULL,
  PRIMARY KEY (tenant, cid, model),
  FOREIGN KEY (tenant, cid) REFERENCES conversations
);

-- Background jobs, at most one of a kind per conversation. A job says that there is work; the other tables say which. An
-- append adds `embed` under its conversation's lock, and the worker finishes that job under the same lock, so that no work
-- is overlooked.
CREATE TABLE jobs (
  tenant text NOT NULL,
  cid bigint NOT NULL,
  kind text NOT NULL,
  jid bigint NOT NULL DEFAULT nextval('palaver.numbers'),
  run_at bigint NOT NULL,
  lease_until bigint NOT NULL DEFAULT 0,
  attempts integer NOT NULL DEFAULT 0,
  argument bigint,                             -- compact: how many tokens may stay unsummarised
  error text,                                  -- the type of the last failure, never its text
  dead smallint NOT NULL DEFAULT 0,
  created bigint NOT NULL,
  PRIMARY KEY (tenant, cid, kind)
);
CREATE INDEX jobs_due ON jobs (tenant, run_at) WHERE dead = 0;

-- Requests as they were sent to a model, with secrets redacted.
CREATE TABLE requests (
  tenant text NOT NULL,
  rid bigint NOT NULL DEFAULT nextval('palaver.numbers'),
  cid bigint NOT NULL,
  at bigint NOT NULL,
  next_seq bigint NOT NULL,                    -- of the conversation at that time: no later turn can be in the body
  id text NOT NULL,
  turn text,                                   -- the turn that holds the answer
  purpose text NOT NULL,
  model text NOT NULL,
  adapter text NOT NULL,
  explanation text,                            -- ids and numbers, no words
  response text,                               -- ids, usage, timings, retries, the type of an error; NULL: none yet
  body text,                                   -- NULL: deleted
  PRIMARY KEY (tenant, rid),
  FOREIGN KEY (tenant, cid) REFERENCES conversations
);
CREATE UNIQUE INDEX requests_by_id ON requests (tenant, cid, id);
CREATE INDEX requests_of ON requests (tenant, cid, rid);
CREATE INDEX requests_with_body ON requests (tenant, cid, rid) WHERE body IS NOT NULL;

-- Turns of other conversations that a body quotes. Forgetting such a turn must delete the body, even in a conversation
-- that the caller may not see: the role `palaver_eraser` does that, and can do nothing else.
CREATE TABLE request_quotes (
  tenant text NOT NULL,
  quoted_cid bigint NOT NULL,
  turn text NOT NULL,
  rid bigint NOT NULL,
  cid bigint NOT NULL,                         -- of the request
  PRIMARY KEY (tenant, quoted_cid, turn, rid)
);
CREATE INDEX request_quotes_of ON request_quotes (tenant, cid);

-- Per model: the provider's token count of a prompt as a multiple of ours, the largest recent one. All users of the tenant
-- read it and add to it, so that it has limits of its own.
CREATE TABLE counter_bounds (
  tenant text NOT NULL,
  model text NOT NULL,
  ratio double precision NOT NULL CHECK (ratio BETWEEN 0.25 AND 4),
  samples bigint NOT NULL,
  updated bigint NOT NULL,
  PRIMARY KEY (tenant, model)
);

-- API keys of the server's callers.
CREATE TABLE api_keys (
  tenant text NOT NULL,
  hash bytea NOT NULL,                         -- SHA-256 of the key, which itself is not stored
  name text NOT NULL,
  scope text NOT NULL,                         -- user, rights, sight, workspace
  created bigint NOT NULL,
  expires_at bigint,
  revoked_at bigint,
  PRIMARY KEY (tenant, hash)
);

-- The log of the keys (create, use, refuse, revoke): one per tenant, chained like the log of a conversation.
CREATE TABLE key_events (
  tenant text NOT NULL,
  n bigint NOT NULL,
  kind text NOT NULL,
  key text NOT NULL,                           -- the start of its hash
  actor text NOT NULL,
  at bigint NOT NULL,
  payload text,
  hash bytea NOT NULL,
  PRIMARY KEY (tenant, n)
);

-- Signatures of the last events of logs, made with a key that is not in this database.
CREATE TABLE seals (
  tenant text NOT NULL,
  cid bigint NOT NULL,
  n bigint NOT NULL,
  tip bytea NOT NULL,
  seal bytea NOT NULL,
  at bigint NOT NULL,
  PRIMARY KEY (tenant, cid, n),
  FOREIGN KEY (tenant, cid) REFERENCES conversations
);

-- ---- the caller -----------------------------------------------------------------------------------------------------

CREATE TYPE asker AS (tenant text, "user" text, sight text, workspace text, rights text, now bigint);

-- The role of the caller, even inside a function that runs as its owner.
CREATE FUNCTION asking_role() RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
  RETURN coalesce(nullif(current_setting('role'), 'none'), session_user::text);

-- The claims of a signed token, as Supabase sets them. Claims under `user_metadata` are ignored: users can edit them.
CREATE FUNCTION claims() RETURNS jsonb LANGUAGE sql STABLE PARALLEL SAFE
  RETURN nullif(current_setting('request.jwt.claims', true), '')::jsonb;

CREATE FUNCTION claim(name text) RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
  RETURN nullif(coalesce(palaver.claims() ->> name, palaver.claims() -> 'app_metadata' ->> name), '');

-- The name of the claim that holds the tenant: ALTER DATABASE … SET palaver.tenant_claim = 'organisation'.
CREATE FUNCTION claimed_tenant() RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
  RETURN CASE WHEN current_setting('palaver.tenant_claim', true) IN ('user_metadata', 'app_metadata') THEN NULL
    ELSE palaver.claim(coalesce(nullif(current_setting('palaver.tenant_claim', true), ''), 'tenant')) END;

CREATE FUNCTION setting(name text) RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
  RETURN nullif(current_setting('palaver.' || name, true), '');

-- The scope of anonymous callers: none, unless the database binds them to one tenant (see compat/anon.sql).
CREATE FUNCTION anonymous() RETURNS asker LANGUAGE sql STABLE PARALLEL SAFE
  RETURN NULL::palaver.asker;

-- The caller's scope. The application passes it in settings that end with the transaction; for a signed-in user only the
-- token counts; every other role has no scope.
CREATE FUNCTION whoami() RETURNS asker LANGUAGE sql STABLE PARALLEL SAFE
  RETURN CASE palaver.asking_role()
    WHEN 'anon' THEN palaver.anonymous()
    WHEN 'authenticated' THEN ROW(palaver.claimed_tenant(), palaver.claims() ->> 'sub',
      coalesce(palaver.claims() -> 'app_metadata' ->> 'palaver_sight', 'own'),
      palaver.claims() -> 'app_metadata' ->> 'palaver_workspace',
      coalesce(palaver.claims() -> 'app_metadata' ->> 'palaver_rights', 'read,write'), NULL)::palaver.asker
    ELSE ROW(palaver.setting('tenant'), palaver.setting('user'), palaver.setting('sight'),
      palaver.setting('workspace'), palaver.setting('rights'), NULL)::palaver.asker
  END;

-- Whether the tables are distributed over the nodes of a cluster (see citus.sql).
CREATE FUNCTION is_distributed() RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN false;

-- Whether the caller may see a conversation, as its own policy decides. A function, because a sub-select would be prepared
-- in every statement, even where it is not needed.
CREATE FUNCTION may_see(tenant text, cid bigint) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  RETURN EXISTS (SELECT 1 FROM conversations c WHERE c.tenant = may_see.tenant AND c.cid = may_see.cid);
END $$;

-- ---- row level security ---------------------------------------------------------------------------------------------
-- One predicate decides who may see a conversation and everything that belongs to it. Without a tenant nothing is visible
-- and nothing can be written. `palaver.cid` is a conversation that was looked up in this transaction, so that a function
-- need not look it up again for each row; like the tenant, the application sets it and is trusted.

DO $$
DECLARE
  role text;
  source jsonb;
  name text;
  predicate text;
BEGIN
  FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'palaver' LOOP
    EXECUTE format('ALTER TABLE palaver.%I ENABLE ROW LEVEL SECURITY', name);
    EXECUTE format('ALTER TABLE palaver.%I FORCE ROW LEVEL SECURITY', name);
  END LOOP;
  FOR role, source IN
    SELECT r, s FROM (VALUES
      ('palaver_app', jsonb_build_object(
        'tenant', $q$nullif(current_setting('palaver.tenant', true), '')$q$,
        'user', $q$nullif(current_setting('palaver.user', true), '')$q$,
        'sight', $q$current_setting('palaver.sight', true)$q$,
        'workspace', $q$nullif(current_setting('palaver.workspace', true), '')$q$,
        'rights', $q$current_setting('palaver.rights', true)$q$,
        'known', $q$nullif(current_setting('palaver.cid', true), '')::bigint$q$)),
      ('authenticated', jsonb_build_object(
        'tenant', 'palaver.claimed_tenant()',
        'user', $q$palaver.claims() ->> 'sub'$q$,
        'sight', $q$palaver.claims() -> 'app_metadata' ->> 'palaver_sight'$q$,
        'workspace', $q$palaver.claims() -> 'app_metadata' ->> 'palaver_workspace'$q$,
        'rights', $q$palaver.claims() -> 'app_metadata' ->> 'palaver_rights'$q$))
    ) AS sources (r, s) WHERE EXISTS (SELECT 1 FROM pg_roles WHERE rolname = r)
  LOOP
    predicate := format(
      'tenant = (SELECT %1$s) AND ((SELECT %2$s) = ''tenant'' OR owner = (SELECT %3$s) OR (SELECT %3$s) = ANY (members)'
      ' OR ((SELECT %2$s) = ''workspace'' AND workspace = (SELECT %4$s)))',
      source ->> 'tenant', source ->> 'sight', source ->> 'user', source ->> 'workspace');
    EXECUTE format('CREATE POLICY %I ON palaver.conversations TO %I USING (%s) WITH CHECK (%s)',
      role, role, predicate, predicate);
    EXECUTE format('CREATE POLICY %I ON palaver.conversations AS RESTRICTIVE FOR INSERT TO %I WITH CHECK'
      ' (owner = (SELECT %s) OR ''admin'' = ANY (string_to_array((SELECT %s), '','')))',
      role || '_owner', role, source ->> 'user', source ->> 'rights');
    predicate := format('tenant = (SELECT %s)', source ->> 'tenant');
    EXECUTE format('CREATE POLICY %I ON palaver.counter_bounds TO %I USING (%s) WITH CHECK (%s)',
      role, role, predicate, predicate);
    FOREACH name IN ARRAY ARRAY['turns', 'streams', 'attachments', 'file_passages', 'events', 'passages', 'summaries',
      'working_memory', 'facts', 'marks', 'embeddings', 'embedded', 'jobs', 'requests', 'request_quotes', 'doomed_blobs', 'seals'] LOOP
      CONTINUE WHEN role = 'authenticated' AND name = 'seals';
      -- A sub-select is evaluated once for all rows that are read; for a single written row it costs more.
      predicate := 'tenant = (%s) AND ((%s) = ''tenant'' OR %s palaver.may_see(tenant, cid))';
      EXECUTE format('CREATE POLICY %I ON palaver.%I TO %I USING (%s) WITH CHECK (%s)', role, name, role,
        format(predicate, 'SELECT ' || (source ->> 'tenant'), 'SELECT ' || (source ->> 'sight'),
          CASE WHEN role = 'palaver_app' THEN 'cid = (SELECT ' || (source ->> 'known') || ') OR' END),
        format(predicate, source ->> 'tenant', source ->> 'sight',
          CASE WHEN role = 'palaver_app' THEN 'cid = ' || (source ->> 'known') || ' OR' END));
    END LOOP;
    IF role = 'palaver_app' THEN  -- keys are for the application itself and for admins
      predicate := format('tenant = (SELECT %s) AND ''admin'' = ANY (string_to_array((SELECT %s), '',''))',
        source ->> 'tenant', source ->> 'rights');
      FOREACH name IN ARRAY ARRAY['api_keys', 'key_events'] LOOP
        EXECUTE format('CREATE POLICY %I ON palaver.%I TO %I USING (%s) WITH CHECK (%s)',
          role, name, role, predicate, predicate);
      END LOOP;
    END IF;
  END LOOP;
END $$;

-- The worker reads which tenants have jobs; it then works inside one of them, as the application.
CREATE POLICY palaver_worker ON jobs FOR SELECT TO palaver_worker USING (true);
CREATE POLICY palaver_worker ON streams FOR SELECT TO palaver_worker USING (true);
CREATE POLICY palaver_worker ON doomed_blobs FOR SELECT TO palaver_worker USING (true);
-- It may also read which tenants there are, and whether any key is valid, and nothing more of both (see the grants).
CREATE POLICY palaver_worker ON conversations FOR SELECT TO palaver_worker USING (true);
CREATE POLICY palaver_worker ON api_keys FOR SELECT TO palaver_worker USING (true);
CREATE POLICY palaver_index ON passages FOR SELECT TO palaver_index USING (true);
-- The eraser finds the bodies that quote a turn, and which turns are forgotten. It can only set a body to NULL.
CREATE POLICY palaver_eraser ON turns FOR SELECT TO palaver_eraser USING (true);
CREATE POLICY palaver_eraser ON request_quotes TO palaver_eraser USING (true) WITH CHECK (false);
CREATE POLICY palaver_eraser ON requests TO palaver_eraser USING (true) WITH CHECK (body IS NULL);

-- ---- grants ---------------------------------------------------------------------------------------------------------

REVOKE ALL ON SCHEMA palaver, palaver_api FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA palaver FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA palaver FROM PUBLIC;
ALTER DEFAULT PRIVILEGES IN SCHEMA palaver REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC;

DO $$
DECLARE role text;
BEGIN
  FOR role IN SELECT rolname FROM pg_roles WHERE rolname IN ('palaver_app', 'authenticated') LOOP
    EXECUTE format('GRANT USAGE ON SCHEMA palaver, palaver_api, extensions TO %I', role);
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA palaver TO %I', role);
    EXECUTE format('GRANT USAGE ON ALL SEQUENCES IN SCHEMA palaver TO %I', role);
  END LOOP;
  IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'authenticated') THEN
    REVOKE ALL ON palaver.api_keys, palaver.key_events, palaver.seals FROM authenticated;
  END IF;
  FOR role IN SELECT rolname FROM pg_roles WHERE rolname IN ('anon', 'authenticated') LOOP
    EXECUTE format('REVOKE CREATE ON SCHEMA palaver, palaver_api FROM %I', role);
  END LOOP;
  IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'anon') THEN
    REVOKE ALL ON SCHEMA palaver, palaver_api FROM anon;
    REVOKE ALL ON ALL TABLES IN SCHEMA palaver FROM anon;
  END IF;
END $$;
GRANT USAGE ON SCHEMA palaver, palaver_api TO palaver_worker, palaver_index, palaver_eraser;
GRANT USAGE ON SCHEMA extensions TO palaver_index;
GRANT SELECT ON jobs, streams TO palaver_worker;
GRANT SELECT (tenant) ON doomed_blobs, conversations TO palaver_worker;
GRANT SELECT (expires_at, revoked_at) ON api_keys TO palaver_worker;
GRANT SELECT ON passages TO palaver_index;
GRANT SELECT (tenant, cid, seq, id, status) ON turns TO palaver_eraser;
GRANT SELECT, DELETE ON request_quotes TO palaver_eraser;
GRANT SELECT (tenant, rid), UPDATE (body) ON requests TO palaver_eraser;
