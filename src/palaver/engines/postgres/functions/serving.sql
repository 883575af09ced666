-- What a server needs: keys of its callers and their log, stops, usage, and seals over the logs.

-- ---- keys -----------------------------------------------------------------------------------------------------------
-- They are for admins, and for the application itself: a policy says so, too. Somebody who is signed in has no way here.

-- key_id: what stands for a key (see KEY_ID in ports.py)
CREATE OR REPLACE FUNCTION palaver.key_id(hash bytea) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN left(encode(hash, 'hex'), 12);

-- note_key: the next event of the keys' log. One at a time in a tenant, so that each is chained to the one before
CREATE OR REPLACE FUNCTION palaver.note_key(me palaver.asker, kind text, key text, actor text, payload text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  last palaver.key_events;
  at bigint;
BEGIN
  PERFORM pg_advisory_xact_lock(hashtextextended(me.tenant, 'palaver.key_events'::regclass::bigint));
  SELECT * INTO last FROM key_events e WHERE e.tenant = me.tenant ORDER BY e.n DESC LIMIT 1;
  IF NOT FOUND THEN
    last.n := 0;
    last.at := 0;
    last.hash := genesis('keys of ' || me.tenant);
  END IF;
  at := greatest(me.now, last.at + 1);
  INSERT INTO key_events (tenant, n, kind, key, actor, at, payload, hash)
  VALUES (me.tenant, last.n + 1, note_key.kind, note_key.key, note_key.actor, at, note_key.payload,
    event_hash(last.hash, last.n + 1, note_key.kind, note_key.key, note_key.actor, at, note_key.payload, NULL));
END $$;

-- put_key: a new one. `key` is a row of `api_keys`, `payload` what its log says of it
CREATE OR REPLACE FUNCTION palaver_api.put_key(who jsonb, key jsonb, payload text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'admin');
  k palaver.api_keys := jsonb_populate_record(NULL::palaver.api_keys, key);
BEGIN
  INSERT INTO api_keys (tenant, hash, name, scope, created, expires_at)
  VALUES (me.tenant, k.hash, k.name, k.scope, k.created, k.expires_at);
  PERFORM note_key(me, 'create', key_id(k.hash), coalesce(me."user", ''), payload);
END $$;

-- api_key: the one that a caller shows
CREATE OR REPLACE FUNCTION palaver_api.api_key(who jsonb, hash bytea) RETURNS SETOF palaver.api_keys
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE me asker := enter(who, 'admin');
BEGIN
  RETURN QUERY SELECT k.* FROM api_keys k WHERE k.tenant = me.tenant AND k.hash = api_key.hash;
END $$;

-- api_keys: all of a tenant, oldest first
CREATE OR REPLACE FUNCTION palaver_api.api_keys(who jsonb) RETURNS SETOF palaver.api_keys
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE me asker := enter(who, 'admin');
BEGIN
  RETURN QUERY SELECT k.* FROM api_keys k WHERE k.tenant = me.tenant ORDER BY k.created, k.hash;
END $$;

-- revoke_key: for good; a second time changes nothing. The row stays, so that the log has a name for it
CREATE OR REPLACE FUNCTION palaver_api.revoke_key(who jsonb, id text) RETURNS SETOF palaver.api_keys
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE me asker := enter(who, 'admin');
BEGIN
  UPDATE api_keys k SET revoked_at = me.now
  WHERE k.tenant = me.tenant AND key_id(k.hash) = revoke_key.id AND k.revoked_at IS NULL;
  IF FOUND THEN
    PERFORM note_key(me, 'revoke', revoke_key.id, coalesce(me."user", ''), NULL);
  END IF;
  RETURN QUERY SELECT k.* FROM api_keys k WHERE k.tenant = me.tenant AND key_id(k.hash) = revoke_key.id;
END $$;

-- any_key: whether anybody could call at all, in any tenant
CREATE OR REPLACE FUNCTION palaver_api.any_key(who jsonb) RETURNS TABLE (found boolean)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE me asker := enter_worker(who);
BEGIN
  RETURN QUERY SELECT EXISTS (SELECT 1 FROM api_keys k
    WHERE k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > me.now));
END $$;

-- log_key: a key was used, or refused. The server says whose it is: what the key itself may do does not matter
CREATE OR REPLACE FUNCTION palaver_api.log_key(who jsonb, kind text, key text, actor text, payload text DEFAULT NULL)
RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  PERFORM note_key(enter(who, 'admin'), kind, key, actor, payload);
END $$;

-- key_events: the keys' log, in order
CREATE OR REPLACE FUNCTION palaver_api.key_events(who jsonb, after bigint, most integer)
RETURNS TABLE (n bigint, kind text, turn text, actor text, at bigint, payload text, content_hash bytea, hash bytea)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE me asker := enter(who, 'admin');
BEGIN
  RETURN QUERY SELECT e.n, e.kind, e.key, e.actor, e.at, e.payload, NULL::bytea, e.hash FROM key_events e
    WHERE e.tenant = me.tenant AND e.n > after ORDER BY e.n LIMIT most;
END $$;

-- ---- the log --------------------------------------------------------------------------------------------------------

-- announce: say something to whoever follows the log, and leave it there. Every other kind of event is left by what it
-- tells of (see ANNOUNCED in ports.py)
CREATE OR REPLACE FUNCTION palaver_api.announce(who jsonb, conversation text, kind text, turn text DEFAULT NULL)
RETURNS TABLE (n bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'write');
  c palaver.conversations;
BEGIN
  IF kind IS DISTINCT FROM 'stop' THEN
    PERFORM fail('PV031', 'kind', 'must be one of stop');
  END IF;
  c := open_thread(me, conversation);
  IF turn IS NOT NULL THEN
    PERFORM kept_turn(c, turn);
  END IF;
  c.updated := tick(me, c);
  c := log(me, c, kind, turn => announce.turn);
  PERFORM save(c);
  n := c.next_n - 1;
  RETURN NEXT;
END $$;

-- usage: tokens by day, owner and model, of answers and of memory work
CREATE OR REPLACE FUNCTION palaver_api.usage(who jsonb, most integer, since bigint DEFAULT NULL,
  until bigint DEFAULT NULL)
RETURNS TABLE (day text, "user" text, model text, calls bigint, prompt bigint, completion bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
#variable_conflict use_column
DECLARE me asker := enter(who, 'read');
BEGIN
  RETURN QUERY SELECT to_char(to_timestamp(u.at / 1000000) AT TIME ZONE 'UTC', 'YYYY-MM-DD'), u.owner, u.model,
    count(*), sum(u.prompt)::bigint, sum(u.completion)::bigint
  FROM (
    SELECT t.created AS at, c.owner, coalesce(t.model, '') AS model, coalesce(t.prompt_tokens, 0) AS prompt,
      coalesce(t.completion_tokens, 0) AS completion
    FROM turns t JOIN conversations c ON c.tenant = t.tenant AND c.cid = t.cid
    WHERE t.tenant = me.tenant AND (t.prompt_tokens IS NOT NULL OR t.completion_tokens IS NOT NULL)
      AND c.gone IS NULL AND (c.expires_at IS NULL OR c.expires_at > me.now)
    UNION ALL
    SELECT r.at, c.owner, r.model, coalesce((r.response::json #>> '{usage,prompt}')::bigint, 0),
      coalesce((r.response::json #>> '{usage,completion}')::bigint, 0)
    FROM requests r JOIN conversations c ON c.tenant = r.tenant AND c.cid = r.cid
    WHERE r.tenant = me.tenant AND r.purpose <> 'generate' AND r.response IS NOT NULL
      AND c.gone IS NULL AND (c.expires_at IS NULL OR c.expires_at > me.now)
  ) AS u
  WHERE (usage.since IS NULL OR u.at >= usage.since) AND (usage.until IS NULL OR u.at < usage.until)
  GROUP BY 1, 2, 3 ORDER BY 1 DESC, u.owner COLLATE "C", u.model COLLATE "C" LIMIT most;
END $$;

-- ---- seals ----------------------------------------------------------------------------------------------------------

-- tenants: whose conversations there are; from one to the next, however many rows each has
CREATE OR REPLACE FUNCTION palaver_api.tenants(who jsonb) RETURNS TABLE (tenant text)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE me asker := enter_worker(who);
BEGIN
  tenant := '';
  LOOP
    tenant := (SELECT min(c.tenant) FROM conversations c WHERE c.tenant > tenants.tenant);
    EXIT WHEN tenant IS NULL;
    RETURN NEXT;
  END LOOP;
END $$;

-- tips: the ends of the logs, by conversation, deleted ones included
CREATE OR REPLACE FUNCTION palaver_api.tips(who jsonb, after text, most integer)
RETURNS TABLE (conversation text, n bigint, hash bytea)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE me asker := enter(who, 'read');
BEGIN
  RETURN QUERY SELECT c.id, c.next_n - 1, c.tip_hash FROM conversations c
    WHERE c.tenant = me.tenant AND c.id > after ORDER BY c.id LIMIT most;
END $$;

-- unsealed: the ends of logs that are not signed yet
CREATE OR REPLACE FUNCTION palaver_api.unsealed(who jsonb, most integer)
RETURNS TABLE (conversation text, n bigint, hash bytea)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE me asker := enter(who, 'admin');
BEGIN
  RETURN QUERY SELECT c.id, c.next_n - 1, c.tip_hash FROM conversations c
    WHERE c.tenant = me.tenant AND NOT EXISTS (
      SELECT 1 FROM seals s WHERE s.tenant = c.tenant AND s.cid = c.cid AND s.n = c.next_n - 1)
    LIMIT most;
END $$;

-- put_seals: signed ends of logs. `seals` is a list of rows of `seals`, with a conversation in the place of its number
CREATE OR REPLACE FUNCTION palaver_api.put_seals(who jsonb, seals jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE me asker := enter(who, 'admin');
BEGIN
  INSERT INTO seals (tenant, cid, n, tip, seal, at)
  SELECT me.tenant, c.cid, (s ->> 'n')::bigint, (s ->> 'tip')::bytea, (s ->> 'seal')::bytea, (s ->> 'at')::bigint
  FROM jsonb_array_elements(put_seals.seals) AS s
  JOIN conversations c ON c.tenant = me.tenant AND c.id = s ->> 'conversation'
  ON CONFLICT DO NOTHING;
END $$;

-- seals: what was signed of one log
CREATE OR REPLACE FUNCTION palaver_api.seals(who jsonb, conversation text)
RETURNS TABLE (n bigint, tip bytea, seal bytea, at bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'read');
  number bigint := (SELECT c.cid FROM conversations c WHERE c.tenant = me.tenant AND c.id = conversation);
BEGIN
  RETURN QUERY SELECT s.n, s.tip, s.seal, s.at FROM seals s
    WHERE s.tenant = me.tenant AND s.cid = number ORDER BY s.n;
END $$;
