-- Conversations: create, find, list, search, change.

-- with_compaction: set the thresholds of compaction from the settings
CREATE OR REPLACE FUNCTION palaver.with_compaction(c palaver.conversations) RETURNS palaver.conversations
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE chosen jsonb := c.settings::jsonb -> 'compaction';
BEGIN
  c.compact_turns := coalesce((chosen ->> 'trigger_turns')::bigint, 50);
  c.compact_tokens := coalesce((chosen ->> 'trigger_tokens')::bigint, 8000);
  IF chosen ->> 'strategy' = 'never' THEN
    c.compact_turns := 9223372036854775807;
    c.compact_tokens := 9223372036854775807;
  END IF;
  RETURN c;
END $$;

-- members_of: the participants as an array, which a policy can search
CREATE OR REPLACE FUNCTION palaver.members_of(participants text) RETURNS text[]
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
  SELECT coalesce(array_agg(value), '{}') FROM jsonb_array_elements_text(participants::jsonb)
$$;

-- open_conversation: return the conversation with this key, or create one. `words` are the stems of its title
CREATE OR REPLACE FUNCTION palaver_api.open_conversation(who jsonb, spec jsonb, words text DEFAULT NULL,
  size integer DEFAULT 0) RETURNS SETOF palaver.conversations
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'write');
  c palaver.conversations;
  wanted palaver.conversations := jsonb_populate_record(NULL::palaver.conversations, spec);
BEGIN
  PERFORM require_owner(me, wanted.owner);
  FOR attempt IN 1..3 LOOP
    IF wanted.key IS NOT NULL THEN
      SELECT * INTO c FROM conversations o WHERE o.tenant = me.tenant AND o.owner = wanted.owner AND o.key = wanted.key
        AND o.gone IS NULL;
      IF FOUND AND (c.expires_at IS NULL OR c.expires_at > me.now) THEN
        RETURN NEXT c;
        RETURN;
      ELSIF FOUND THEN
        PERFORM bury_expired(me, c.id);
      END IF;
    END IF;
    BEGIN
      RETURN NEXT create_conversation(me, wanted, words, size);
      RETURN;
    EXCEPTION WHEN unique_violation THEN
      IF wanted.key IS NULL THEN
        RAISE;
      END IF;  -- another transaction created it: the next attempt finds it, unless the caller may not see it
    END;
  END LOOP;
  PERFORM fail('PV031', 'key', 'another conversation of this owner has the same key');
END $$;

CREATE OR REPLACE FUNCTION palaver.create_conversation(me palaver.asker, c palaver.conversations, words text,
  size integer) RETURNS palaver.conversations
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  c.tenant := me.tenant;
  c.cid := nextval('palaver.conversation_numbers');
  c.participants := coalesce(c.participants, '[]');
  PERFORM check_details(c), check_names(c, '{agent,participants}');
  IF is_watched(c.settings) THEN
    PERFORM check_details_redacted(c.title, c.metadata, c.owner, c.agent, c.participants, '{}');
  END IF;
  c.created := me.now;
  c.updated := me.now;
  c := with_compaction(c);
  INSERT INTO conversations (tenant, cid, id, owner, key, workspace, agent, model, title, participants, members,
    metadata, settings, ttl, expires_at, compact_turns, compact_tokens, tip_hash, salt, content_hash, created, updated,
    minute)
  VALUES (c.tenant, c.cid, c.id, c.owner, c.key, c.workspace, c.agent, c.model, c.title, c.participants,
    members_of(c.participants), c.metadata, c.settings, c.ttl, c.updated + c.ttl, c.compact_turns, c.compact_tokens,
    genesis(c.id), c.salt, details_hash(c), c.created, c.updated, c.updated / 60000000)
  RETURNING * INTO c;
  PERFORM index_title(c, words, size);
  IF c.metadata IS NOT NULL THEN
    PERFORM index_details(c.tenant, c.cid, c.metadata);
  END IF;
  c := log(me, c, 'create', payload => '{"proof": 1}', content_hash => c.content_hash);
  PERFORM save(c);
  RETURN c;
END $$;

CREATE OR REPLACE FUNCTION palaver_api.conversation(who jsonb, conversation text) RETURNS SETOF palaver.conversations
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  RETURN NEXT find(enter(who, 'read'), conversation);
END $$;

CREATE OR REPLACE FUNCTION palaver_api.find_conversation(who jsonb, owner text, key text)
RETURNS SETOF palaver.conversations
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'read');
  found_id text;
BEGIN
  SELECT c.id INTO found_id FROM conversations c WHERE c.tenant = me.tenant AND c.owner = find_conversation.owner
    AND c.key = find_conversation.key AND c.gone IS NULL;
  IF NOT FOUND THEN
    PERFORM fail('PV001', key);
  END IF;
  RETURN NEXT find(me, found_id);
END $$;

-- conversations: list conversations, newest first, from a cursor on
CREATE OR REPLACE FUNCTION palaver_api.conversations(who jsonb, most integer, owner text DEFAULT NULL,
  workspace text DEFAULT NULL, agent text DEFAULT NULL, before_updated bigint DEFAULT NULL, before_id text DEFAULT NULL)
RETURNS SETOF palaver.conversations
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp
  SET plan_cache_mode = force_custom_plan AS $$
DECLARE
  me asker := enter(who, 'read');
  last_minute bigint := coalesce(before_updated / 60000000, 9223372036854775807);
BEGIN
  RETURN QUERY SELECT c.* FROM conversations c
  WHERE c.tenant = me.tenant AND c.gone IS NULL AND (c.expires_at IS NULL OR c.expires_at > me.now)
    AND c.minute <= last_minute AND coalesce(c.key, '') NOT LIKE 'palaver:memory/%'
    AND (conversations.owner IS NULL OR c.owner = conversations.owner)
    AND (conversations.workspace IS NULL OR c.workspace = conversations.workspace)
    AND (conversations.agent IS NULL OR c.agent = conversations.agent)
    AND (before_updated IS NULL OR c.updated < before_updated OR (c.updated = before_updated AND c.id < before_id))
  ORDER BY c.minute DESC, c.updated DESC, c.id DESC LIMIT most;
END $$;

-- save_details: store changed fields of a conversation that only `create` and `update` set
CREATE OR REPLACE FUNCTION palaver.save_details(me palaver.asker, c palaver.conversations, fields text[])
RETURNS palaver.conversations
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  c.members := members_of(c.participants);
  c := with_compaction(c);
  c.content_hash := details_hash(c);
  UPDATE conversations o SET workspace = c.workspace, agent = c.agent, model = c.model, title = c.title,
    title_made = c.title_made, participants = c.participants, members = c.members, metadata = c.metadata,
    settings = c.settings, ttl = c.ttl, compact_turns = c.compact_turns, compact_tokens = c.compact_tokens,
    salt = c.salt, content_hash = c.content_hash
  WHERE o.tenant = c.tenant AND o.cid = c.cid;
  IF 'metadata' = ANY (fields) THEN
    PERFORM index_details(c.tenant, c.cid, c.metadata);
  END IF;
  c.updated := tick(me, c);
  c := log(me, c, 'update', payload => jsonb_build_object('fields', (SELECT array_agg(f ORDER BY f COLLATE "C")
    FROM unnest(fields) AS f)), content_hash => c.content_hash);
  c.expires_at := c.updated + c.ttl;
  PERFORM save(c);
  RETURN c;
END $$;

-- drop_made_title: when a turn is forgotten, delete a title that a job wrote: it may repeat the turn's words
CREATE OR REPLACE FUNCTION palaver.drop_made_title(me palaver.asker, c palaver.conversations)
RETURNS palaver.conversations
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  IF NOT c.title_made OR c.title IS NULL THEN
    RETURN c;
  END IF;
  c.title := NULL;
  c.title_made := false;
  c.salt := uuid_send(gen_random_uuid());
  PERFORM index_title(c, NULL, 0);
  RETURN save_details(me, c, '{title}');
END $$;

-- update_conversation: set the named fields. `words` are the stems of a new title. A change with `if_untitled` comes
-- from a job and does nothing when there is a title. With `expected_updated`, fail when something has changed since
CREATE OR REPLACE FUNCTION palaver_api.update_conversation(who jsonb, conversation text, fields text[], changes jsonb,
  words text DEFAULT NULL, size integer DEFAULT 0) RETURNS SETOF palaver.conversations
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'write');
  c palaver.conversations := open_thread(me, conversation);
  chosen jsonb := (SELECT coalesce(jsonb_object_agg(key, value), '{}') FROM jsonb_each(changes)
    WHERE key = ANY (fields) AND key IN ('title', 'workspace', 'agent', 'model', 'participants', 'metadata',
      'settings', 'ttl'));
  from_a_job boolean := coalesce((changes ->> 'if_untitled')::boolean, false);
  known text[] := CASE WHEN is_redacted(c.settings) THEN ARRAY[c.owner, c.agent] || c.members ELSE '{}' END;
BEGIN
  PERFORM require_owner(me, c.owner);
  IF (changes ->> 'expected_updated')::bigint <> c.updated THEN
    PERFORM fail('PV017', changes ->> 'expected_updated', c.updated::text);
  END IF;
  IF from_a_job AND c.title IS NOT NULL THEN
    RETURN NEXT c;
    RETURN;
  END IF;
  c := jsonb_populate_record(c, chosen);
  c.salt := (changes ->> 'salt')::bytea;
  PERFORM check_details(c), check_names(c, fields);
  IF is_watched(c.settings) THEN
    PERFORM check_details_redacted(chosen ->> 'title', chosen ->> 'metadata', c.owner, c.agent, c.participants,
      array_remove(known, NULL));
  END IF;
  IF 'title' = ANY (fields) THEN
    c.title_made := from_a_job;
    PERFORM index_title(c, words, size);
  END IF;
  RETURN NEXT save_details(me, c, fields);
END $$;

-- ---- search ---------------------------------------------------------------------------------------------------------

-- matching: the passages that match, newest first, of some conversations (NULL: all of the tenant). Runs as the role
-- that owns the look-up, returns only row numbers, and looks only at conversations that the caller may see
CREATE OR REPLACE FUNCTION palaver.matching(query tsquery, cids bigint[], most integer) RETURNS SETOF bigint
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, palaver, extensions, pg_temp
  SET plan_cache_mode = force_custom_plan AS $$
DECLARE here text := (whoami()).tenant;
BEGIN
  cids := seen(cids);
  IF cids IS NULL THEN
    RETURN QUERY SELECT p.pid FROM passages p WHERE p.tenant = here AND p.terms @@ query
      ORDER BY p.pid DESC LIMIT most;
  ELSIF cardinality(cids) = 1 THEN
    RETURN QUERY SELECT p.pid FROM passages p WHERE p.tenant = here AND p.cid = cids[1] AND p.terms @@ query
      ORDER BY p.pid DESC LIMIT most;
  ELSE
    RETURN QUERY SELECT p.pid FROM passages p WHERE p.tenant = here AND p.terms @@ query
      AND p.cid IN (SELECT unnest(cids)) ORDER BY p.pid DESC LIMIT most;
  END IF;
END $$;
GRANT CREATE ON SCHEMA palaver TO palaver_index;
ALTER FUNCTION palaver.matching(tsquery, bigint[], integer) OWNER TO palaver_index;
REVOKE CREATE ON SCHEMA palaver FROM palaver_index;

-- sighted: the numbers of the conversations that the caller may see; NULL when those are all of the tenant
CREATE OR REPLACE FUNCTION palaver.sighted(me palaver.asker) RETURNS bigint[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  IF me.sight = 'tenant' THEN
    RETURN NULL;
  END IF;
  RETURN (SELECT coalesce(array_agg(c.cid), '{}') FROM conversations c WHERE c.tenant = me.tenant AND c.gone IS NULL);
END $$;

-- search: conversations with a title or a turn that contains the words; title matches first, then the most recent. Rows
-- are looked up by LATERAL with OFFSET, which makes the planner fetch each by its key: in a database without statistics,
-- as after a large import, it would expect a handful of rows and compare all of them with each other
CREATE OR REPLACE FUNCTION palaver_api.search(who jsonb, query text, candidates integer, shown integer, most integer)
RETURNS TABLE (conversation jsonb, in_title boolean, turns jsonb)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp
  SET plan_cache_mode = force_custom_plan AS $$
DECLARE me asker := enter(who, 'read');
BEGIN
  RETURN QUERY
  WITH hits AS (
    SELECT p.cid, p.tid, max(p.pid) AS pid FROM matching(query::tsquery, sighted(me), 20 * candidates) AS m (pid)
    CROSS JOIN LATERAL (SELECT o.* FROM passages o WHERE o.tenant = me.tenant AND o.pid = m.pid OFFSET 0) AS p
    LEFT JOIN LATERAL (SELECT o.active FROM turns o WHERE o.tenant = me.tenant AND o.tid = p.tid OFFSET 0) AS t ON true
    WHERE p.tid IS NULL OR t.active = 1
    GROUP BY p.cid, p.tid ORDER BY max(p.pid) DESC LIMIT candidates
  ), numbered AS (
    SELECT h.*, row_number() OVER (PARTITION BY h.cid, h.tid IS NULL ORDER BY h.pid DESC) AS place FROM hits h
  ), found AS (
    SELECT h.cid, bool_or(h.tid IS NULL) AS in_title, array_agg(h.tid ORDER BY h.pid DESC)
      FILTER (WHERE h.tid IS NOT NULL AND h.place <= shown) AS tids
    FROM numbered h GROUP BY h.cid
  )
  SELECT to_jsonb(c), f.in_title, (SELECT jsonb_agg(to_jsonb(t) ORDER BY k.n) FROM unnest(f.tids) WITH ORDINALITY AS k (tid, n)
    CROSS JOIN LATERAL (SELECT o.* FROM turns o WHERE o.tenant = me.tenant AND o.tid = k.tid OFFSET 0) AS t)
  FROM found f JOIN conversations c ON c.tenant = me.tenant AND c.cid = f.cid AND c.gone IS NULL
    AND (c.expires_at IS NULL OR c.expires_at > me.now)
  ORDER BY f.in_title DESC, c.updated DESC LIMIT most;
END $$;

-- matches: the turns of one conversation that contain any of the words, newest first
CREATE OR REPLACE FUNCTION palaver_api.matches(who jsonb, conversation text, query text, candidates integer)
RETURNS SETOF palaver.turns
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'read');
  c palaver.conversations := find(me, conversation);
BEGIN
  RETURN QUERY
  WITH hits AS (
    SELECT p.tid, max(p.pid) AS pid FROM matching(query::tsquery, ARRAY[c.cid], 20 * candidates) AS m (pid)
    CROSS JOIN LATERAL (SELECT o.* FROM passages o WHERE o.tenant = me.tenant AND o.pid = m.pid OFFSET 0) AS p
    WHERE p.tid IS NOT NULL GROUP BY p.tid
  ) SELECT t.* FROM hits h
    CROSS JOIN LATERAL (SELECT o.* FROM turns o WHERE o.tenant = me.tenant AND o.tid = h.tid OFFSET 0) AS t
    WHERE t.active = 1 ORDER BY h.pid DESC LIMIT candidates;
END $$;
