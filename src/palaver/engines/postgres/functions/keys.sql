-- API keys of the server's callers, and their log. For admins and the application itself; a policy enforces that, too.
-- A user with a token cannot reach them.

-- key_id: the public id of a key (see KEY_ID in ports/engine.py)
CREATE OR REPLACE FUNCTION palaver.key_id(hash bytea) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN left(encode(hash, 'hex'), 12);

-- note_key: append an event to the log of a tenant's keys. One at a time per tenant, so that each is chained to the
-- one before
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

-- put_key: store a new key. `key` is a row of `api_keys`, `payload` that of its event
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

-- api_key: look up the key that a caller presents
CREATE OR REPLACE FUNCTION palaver_api.api_key(who jsonb, hash bytea) RETURNS SETOF palaver.api_keys
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE me asker := enter(who, 'admin');
BEGIN
  RETURN QUERY SELECT k.* FROM api_keys k WHERE k.tenant = me.tenant AND k.hash = api_key.hash;
END $$;

-- api_keys: all keys of a tenant, oldest first
CREATE OR REPLACE FUNCTION palaver_api.api_keys(who jsonb) RETURNS SETOF palaver.api_keys
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE me asker := enter(who, 'admin');
BEGIN
  RETURN QUERY SELECT k.* FROM api_keys k WHERE k.tenant = me.tenant ORDER BY k.created, k.hash;
END $$;

-- revoke_key: revoke a key permanently; repeating it changes nothing. The row is kept, because the log refers to it
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

-- any_key: whether any tenant has a valid key
CREATE OR REPLACE FUNCTION palaver_api.any_key(who jsonb) RETURNS TABLE (found boolean)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE me asker := enter_worker(who);
BEGIN
  RETURN QUERY SELECT EXISTS (SELECT 1 FROM api_keys k
    WHERE k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > me.now));
END $$;

-- log_key: log that a key was used or refused. The server calls this, whatever rights the key itself has
CREATE OR REPLACE FUNCTION palaver_api.log_key(who jsonb, kind text, key text, actor text, payload text DEFAULT NULL)
RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  PERFORM note_key(enter(who, 'admin'), kind, key, actor, payload);
END $$;

-- key_events: the log of the keys, in order
CREATE OR REPLACE FUNCTION palaver_api.key_events(who jsonb, after bigint, most integer)
RETURNS TABLE (n bigint, kind text, turn text, actor text, at bigint, payload text, content_hash bytea, hash bytea)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE me asker := enter(who, 'admin');
BEGIN
  RETURN QUERY SELECT e.n, e.kind, e.key, e.actor, e.at, e.payload, NULL::bytea, e.hash FROM key_events e
    WHERE e.tenant = me.tenant AND e.n > after ORDER BY e.n LIMIT most;
END $$;
