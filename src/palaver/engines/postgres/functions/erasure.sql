-- Erasing a person, for admins: who was erased, and their turns and names in one conversation after the other. Each call
-- changes a bounded number of rows; the caller repeats it until nothing is left. audit/erasure.py says what replaces a name
-- in the log.

-- check_pseudonym: refuse to replace the name of nobody, or by something that does not look like a pseudonym
CREATE OR REPLACE FUNCTION palaver.check_pseudonym(person text, pseudonym text) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  IF coalesce(person, '') = '' THEN
    PERFORM fail('PV031', 'user', 'must not be empty');
  ELSIF pseudonym !~ '^erased:[0-9a-f]{32}$' OR pseudonym IS NULL THEN
    PERFORM fail('PV031', 'pseudonym', 'must be erased: and 32 hexadecimal digits');
  END IF;
END $$;

-- ---- who was erased -------------------------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION palaver_api.erasures(who jsonb)
RETURNS TABLE (digest text, salt text, started bigint, at bigint, "user" text, key text, conversations text)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE me asker := enter(who, 'admin');
BEGIN
  RETURN QUERY SELECT e.digest, e.salt, e.started, e.at, e."user", e.key, e.conversations FROM palaver.erasures e
    WHERE e.tenant = me.tenant ORDER BY e.started, e.digest;
END $$;

-- put_erasure: store an erasure in place of the one with the same digest; one without a user is finished
CREATE OR REPLACE FUNCTION palaver_api.put_erasure(who jsonb, digest text, salt text, started bigint, at bigint,
  person text, secret text, deleted text) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE me asker := enter(who, 'admin');
BEGIN
  INSERT INTO erasures AS e (tenant, digest, salt, started, at, "user", key, conversations)
  VALUES (me.tenant, put_erasure.digest, put_erasure.salt, put_erasure.started, put_erasure.at, person, secret,
    deleted::jsonb::text)
  ON CONFLICT ON CONSTRAINT erasures_pkey DO UPDATE SET started = excluded.started, at = excluded.at,
    "user" = excluded."user", key = excluded.key, conversations = excluded.conversations;
  IF person IS NULL THEN
    DELETE FROM erased_items i WHERE i.tenant = me.tenant AND i.digest = put_erasure.digest;
  END IF;
  RETURN true;
END $$;

-- note_items: note what an erasure deletes, in the transaction that deletes it
CREATE OR REPLACE FUNCTION palaver.note_items(tenant text, digest text, kind text, items text[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE item text;
BEGIN
  FOREACH item IN ARRAY coalesce(items, '{}') LOOP
    INSERT INTO erased_items (tenant, digest, kind, item) VALUES (note_items.tenant, note_items.digest, note_items.kind,
      item) ON CONFLICT DO NOTHING;
  END LOOP;
END $$;

CREATE OR REPLACE FUNCTION palaver_api.note_erased(who jsonb, digest text, kind text, items text[]) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE me asker := enter(who, 'admin');
BEGIN
  PERFORM note_items(me.tenant, note_erased.digest, note_erased.kind, items);
  RETURN true;
END $$;

CREATE OR REPLACE FUNCTION palaver_api.erased_items(who jsonb, digest text) RETURNS TABLE (kind text, item text)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE me asker := enter(who, 'admin');
BEGIN
  RETURN QUERY SELECT i.kind, i.item FROM palaver.erased_items i
    WHERE i.tenant = me.tenant AND i.digest = erased_items.digest ORDER BY i.kind, i.item;
END $$;

-- names_in: everybody whom the rows of a conversation name, with the time of the first of them
CREATE OR REPLACE FUNCTION palaver.names_in(tenant text, cid bigint, created bigint, updated bigint) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  RETURN (SELECT jsonb_object_agg(o.name, o.since) FROM (SELECT n.name, min(n.since) AS since FROM (
    SELECT c.owner AS name, names_in.created AS since FROM conversations c
      WHERE c.tenant = names_in.tenant AND c.cid = names_in.cid
    UNION ALL SELECT unnest(c.members), names_in.updated FROM conversations c
      WHERE c.tenant = names_in.tenant AND c.cid = names_in.cid
    UNION ALL SELECT t.actor, t.created FROM turns t WHERE t.tenant = names_in.tenant AND t.cid = names_in.cid
    UNION ALL SELECT a.owner, a.created FROM attachments a WHERE a.tenant = names_in.tenant AND a.cid = names_in.cid
    UNION ALL SELECT e.actor, e.at FROM events e WHERE e.tenant = names_in.tenant AND e.cid = names_in.cid
    UNION ALL SELECT e.payload::jsonb ->> 'by', e.at FROM events e
      WHERE e.tenant = names_in.tenant AND e.cid = names_in.cid AND e.payload LIKE '%"by"%'
    UNION ALL SELECT jsonb_path_query(w.notes, '$.*[*].by') #>> '{}', names_in.updated FROM (
      SELECT CASE WHEN is_memory(m.memory) THEN m.memory::jsonb ELSE '{}' END AS notes FROM working_memory m
      WHERE m.tenant = names_in.tenant AND m.cid = names_in.cid) AS w
    UNION ALL SELECT jsonb_path_query(w.notes, '$.*[*].actor') #>> '{}', names_in.updated FROM (
      SELECT CASE WHEN is_memory(m.memory) THEN m.memory::jsonb ELSE '{}' END AS notes FROM working_memory m
      WHERE m.tenant = names_in.tenant AND m.cid = names_in.cid) AS w
  ) AS n WHERE n.name IS NOT NULL GROUP BY n.name) AS o);
END $$;

-- conversation_names: conversations, deleted ones included, with everybody whom their rows name and since when, as JSON
CREATE OR REPLACE FUNCTION palaver_api.conversation_names(who jsonb, after text, most integer)
RETURNS TABLE (conversation text, gone boolean, owner text, created bigint, updated bigint, names text)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'admin');
  c record;
BEGIN
  FOR c IN SELECT o.cid, o.id, o.gone, o.owner, o.created, o.updated FROM conversations o
      WHERE o.tenant = me.tenant AND o.id > after ORDER BY o.id LIMIT most LOOP
    RETURN QUERY SELECT c.id, c.gone IS NOT NULL, c.owner, c.created, c.updated,
      names_in(me.tenant, c.cid, c.created, c.updated)::text;
  END LOOP;
END $$;

-- ---- turns and files ------------------------------------------------------------------------------------------------

-- turns_to_erase: turns that a user said or that have a user's file, unless only their stub is left. Of a retired turn the
-- memory is left; a reset took that away as well
CREATE OR REPLACE FUNCTION palaver.turns_to_erase(c palaver.conversations, person text, before bigint, most integer)
RETURNS SETOF palaver.turns
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE last_reset bigint := coalesce((SELECT max(e.n) FROM events e WHERE e.tenant = c.tenant AND e.cid = c.cid
  AND e.kind = 'reset'), 0);
BEGIN
  RETURN QUERY SELECT t.* FROM turns t WHERE t.tenant = c.tenant AND t.cid = c.cid AND t.created < before
    AND (t.actor = person OR t.tid IN (SELECT a.tid FROM attachments a WHERE a.tenant = c.tenant AND a.cid = c.cid
      AND a.owner = person))
    AND (t.status <> 'forgotten' OR (
      NOT EXISTS (SELECT 1 FROM events e WHERE e.tenant = c.tenant AND e.cid = c.cid AND e.kind = 'forget'
        AND e.turn = t.id)
      AND (last_reset = 0 OR EXISTS (SELECT 1 FROM events e WHERE e.tenant = c.tenant AND e.cid = c.cid
        AND e.kind = 'retire' AND e.turn = t.id AND e.n > last_reset))))
    ORDER BY t.seq LIMIT most;
END $$;

-- erase_files: delete a user's files that no turn has, and return their ids
CREATE OR REPLACE FUNCTION palaver.erase_files(me palaver.asker, conversation text, person text, before bigint,
  most integer) RETURNS text[]
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  c palaver.conversations := open_thread(me, conversation);
  file record;
  ids text[] := '{}';
BEGIN
  FOR file IN SELECT a.id, a.path FROM attachments a WHERE a.tenant = c.tenant AND a.cid = c.cid AND a.owner = person
      AND a.tid IS NULL AND a.created < before ORDER BY a.id LIMIT most LOOP
    DELETE FROM attachments a WHERE a.tenant = c.tenant AND a.cid = c.cid AND a.id = file.id;
    INSERT INTO doomed_blobs (tenant, path, cid) VALUES (c.tenant, file.path, c.cid) ON CONFLICT DO NOTHING;
    c.updated := tick(me, c);
    c := log(me, c, 'detach', payload => jsonb_build_object('attachment', file.id));
    ids := ids || file.id;
  END LOOP;
  DELETE FROM set_aside a WHERE a.tenant = c.tenant AND a.cid = c.cid;  -- they may name the user
  IF ids <> '{}' THEN
    PERFORM save(c);
  END IF;
  RETURN ids;
END $$;

-- erase_turns: forget some turns that a user said or that have a user's file, and the user's files that no turn has
CREATE OR REPLACE FUNCTION palaver_api.erase_turns(who jsonb, conversation text, person text, pseudonym text, digest text,
  before bigint, most integer) RETURNS TABLE (turns text[], files text[])
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
#variable_conflict use_variable
DECLARE
  me asker := enter(who, 'write');
  c palaver.conversations;
  t palaver.turns;
BEGIN
  PERFORM enter(who, 'admin');  -- both rights
  PERFORM check_pseudonym(person, pseudonym);
  c := open_thread(me, conversation);
  turns := '{}';
  FOR t IN SELECT * FROM turns_to_erase(c, person, before, most) LOOP
    -- The pseudonym first: forgetting logs the hash of a stub, which holds the speaker.
    IF t.actor = person THEN
      t.actor := pseudonym;
      UPDATE palaver.turns o SET actor = pseudonym WHERE o.tenant = me.tenant AND o.tid = t.tid;
    END IF;
    c := open_thread(me, conversation);
    t.status := (SELECT o.status FROM palaver.turns o WHERE o.tenant = me.tenant AND o.tid = t.tid);
    PERFORM forget_one(me, c, t);
    turns := turns || t.id;
  END LOOP;
  PERFORM drop_body_proofs(me.tenant, ARRAY(SELECT r.rid FROM requests r WHERE r.tenant = me.tenant AND r.cid = c.cid
    AND r.body IS NOT NULL AND strpos(r.body, person) > 0));
  UPDATE requests r SET body = NULL WHERE r.tenant = me.tenant AND r.cid = c.cid AND r.body IS NOT NULL
    AND strpos(r.body, person) > 0;
  files := erase_files(me, conversation, person, before, most);
  PERFORM note_items(me.tenant, digest, 'turns', ARRAY(SELECT conversation || '/' || o FROM unnest(turns) AS o));
  PERFORM note_items(me.tenant, digest, 'files', ARRAY(SELECT conversation || '/' || o FROM unnest(files) AS o));
  RETURN NEXT;
END $$;

-- ---- names ----------------------------------------------------------------------------------------------------------

-- tombstone_digest: the digest that proves an event without its names, as in audit/erasure.py
CREATE OR REPLACE FUNCTION palaver.tombstone_digest(previous bytea, n bigint, kind text, turn text, actor text, at bigint,
  payload text, content_hash bytea, hash bytea) RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
  RETURN encode(substr(sha256(palaver.fields('palaver/erased/1') || palaver.field(previous)
    || palaver.fields(n::text, kind, turn, actor, at::text, payload) || palaver.field(content_hash)
    || palaver.field(hash)), 1, 16), 'hex');

-- hash_before: the hash of the event before another; of one that is in an archive, the event says it that archived it
CREATE OR REPLACE FUNCTION palaver.hash_before(c palaver.conversations, number bigint) RETURNS bytea
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE found_hash bytea;
BEGIN
  IF number = 1 THEN
    RETURN genesis(c.id);
  END IF;
  SELECT e.hash INTO found_hash FROM events e WHERE e.tenant = c.tenant AND e.cid = c.cid AND e.n = number - 1;
  IF found_hash IS NULL THEN
    SELECT decode(e.payload::jsonb ->> 'hash', 'hex') INTO found_hash FROM events e WHERE e.tenant = c.tenant
      AND e.cid = c.cid AND e.kind = 'archive' AND (e.payload::jsonb ->> 'through')::bigint = number - 1;
  END IF;
  RETURN coalesce(found_hash, ''::bytea);
END $$;

-- erase_events: replace a name in events after a number, and return their numbers with the digests that prove what is left of them
CREATE OR REPLACE FUNCTION palaver.erase_events(c palaver.conversations, person text, pseudonym text, before bigint,
  after bigint, most integer) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  e palaver.events;
  erased jsonb := '[]';
BEGIN
  FOR e IN SELECT * FROM events o WHERE o.tenant = c.tenant AND o.cid = c.cid AND o.n > after AND o.at < before
      AND (o.actor = person OR (o.payload LIKE '%"by"%' AND o.payload::jsonb ->> 'by' = person)) ORDER BY o.n LIMIT most LOOP
    IF e.actor = person THEN
      e.actor := pseudonym;
    END IF;
    IF e.payload::jsonb ->> 'by' = person THEN
      e.payload := (e.payload::jsonb || jsonb_build_object('by', pseudonym))::text;
    END IF;
    UPDATE events o SET actor = e.actor, payload = e.payload WHERE o.tenant = c.tenant AND o.cid = c.cid AND o.n = e.n;
    erased := erased || jsonb_build_array(jsonb_build_array(e.n, tombstone_digest(hash_before(c, e.n), e.n, e.kind, e.turn,
      e.actor, e.at, e.payload, e.content_hash, e.hash)));
  END LOOP;
  RETURN erased;
END $$;

-- erase_stubs: replace the speaker of forgotten turns, and return their ids with the hashes of their stubs before and after
CREATE OR REPLACE FUNCTION palaver.erase_stubs(c palaver.conversations, person text, pseudonym text, before bigint,
  most integer) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  t palaver.turns;
  named bytea;
  erased jsonb := '[]';
BEGIN
  FOR t IN SELECT * FROM turns o WHERE o.tenant = c.tenant AND o.cid = c.cid AND o.actor = person
      AND o.status = 'forgotten' AND o.created < before ORDER BY o.seq LIMIT most LOOP
    named := stub_hash(t, t.idempotency_key);
    t.actor := pseudonym;
    UPDATE turns o SET actor = pseudonym WHERE o.tenant = c.tenant AND o.tid = t.tid;
    erased := erased || jsonb_build_array(jsonb_build_array(t.id, encode(named, 'hex'),
      encode(stub_hash(t, t.idempotency_key), 'hex')));
  END LOOP;
  RETURN erased;
END $$;

-- erase_names: replace a name in some events after a number and in some stubs of a conversation, deleted or not, and as
-- the owner of what was deleted. Returns how many rows were changed, and the number to continue after; NULL: all is done
CREATE OR REPLACE FUNCTION palaver_api.erase_names(who jsonb, conversation text, person text, pseudonym text, digest text,
  before bigint, after bigint, most integer) RETURNS TABLE (changed bigint, last bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'write');
  c palaver.conversations;
  names jsonb;
  stubs jsonb;
BEGIN
  PERFORM enter(who, 'admin');  -- both rights
  PERFORM check_pseudonym(person, pseudonym);
  SELECT * INTO c FROM conversations o WHERE o.tenant = me.tenant AND o.id = conversation FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    PERFORM fail('PV001', conversation);
  END IF;
  IF me.sight <> 'tenant' THEN
    PERFORM set_config('palaver.cid', c.cid::text, true);
  END IF;
  most := greatest(most, 1);
  names := erase_events(c, person, pseudonym, before, after, most);
  last := CASE WHEN jsonb_array_length(names) = most THEN (names -> -1 ->> 0)::bigint END;
  stubs := CASE WHEN last IS NULL THEN erase_stubs(c, person, pseudonym, before, most) ELSE '[]' END;
  IF jsonb_array_length(stubs) = most THEN
    last := c.next_n;  -- no event is left, but stubs are
  END IF;
  IF c.gone IS NOT NULL AND c.owner = person THEN
    UPDATE conversations o SET owner = pseudonym WHERE o.tenant = c.tenant AND o.cid = c.cid;
  END IF;
  changed := jsonb_array_length(names) + jsonb_array_length(stubs);
  IF changed > 0 THEN
    c.updated := c.updated + 1;  -- erasing does not make a conversation a recent one
    c := log(me, c, 'erase', payload => jsonb_build_object('name', pseudonym, 'events', names, 'stubs', stubs));
    PERFORM save(c);
    PERFORM note_items(c.tenant, digest, 'logs', ARRAY[conversation]);
  END IF;
  RETURN NEXT;
END $$;

-- ---- keys -----------------------------------------------------------------------------------------------------------

-- erase_keys: delete a user's API keys, and replace the name in some events of their log. Of the user's own keys, the
-- name and the address that they were used from go as well. Returns the ids of deleted keys, and how many events changed
CREATE OR REPLACE FUNCTION palaver_api.erase_keys(who jsonb, person text, pseudonym text, digest text, before bigint,
  most integer) RETURNS TABLE (keys text[], events bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'admin');
  e palaver.key_events;
  previous bytea;
  erased jsonb := '[]';
  their text := '{"name":' || to_json(pseudonym)::text || '}';
BEGIN
  PERFORM check_pseudonym(person, pseudonym);
  keys := ARRAY(SELECT key_id(k.hash) FROM api_keys k WHERE k.tenant = me.tenant AND strpos(k.scope, '"user":' || to_json(person)::text) > 0);
  FOR e IN SELECT * FROM key_events o WHERE o.tenant = me.tenant AND o.at < before AND (o.actor = person
      OR (o.payload IS NOT NULL AND o.key = ANY (keys) AND o.payload <> their)) ORDER BY o.n LIMIT most LOOP
    IF e.actor = person THEN
      e.actor := pseudonym;
    END IF;
    IF e.payload IS NOT NULL AND e.key = ANY (keys) THEN
      e.payload := their;
    END IF;
    UPDATE key_events o SET actor = e.actor, payload = e.payload WHERE o.tenant = me.tenant AND o.n = e.n;
    previous := coalesce((SELECT o.hash FROM key_events o WHERE o.tenant = me.tenant AND o.n = e.n - 1),
      genesis('keys of ' || me.tenant));
    erased := erased || jsonb_build_array(jsonb_build_array(e.n, tombstone_digest(previous, e.n, e.kind, e.key, e.actor,
      e.at, e.payload, NULL, e.hash)));
  END LOOP;
  events := jsonb_array_length(erased);
  IF events > 0 THEN
    PERFORM note_key(me, 'erase', '', coalesce(me."user", ''), 
      '{"events":' || replace(erased::text, ', ', ',') || ',"name":' || to_json(pseudonym)::text || '}');  -- canonical JSON
  END IF;
  IF events < most THEN  -- else the keys are needed to find the other events
    DELETE FROM api_keys k WHERE k.tenant = me.tenant AND key_id(k.hash) = ANY (keys);
    DELETE FROM budgets b WHERE b.tenant = me.tenant AND ((b.kind = 'user' AND b.name = person) OR (b.kind = 'key' AND b.name = ANY (keys)));
    DELETE FROM budget_use b WHERE b.tenant = me.tenant AND ((b.kind = 'user' AND b.name = person) OR (b.kind = 'key' AND b.name = ANY (keys)));
    PERFORM note_items(me.tenant, digest, 'keys', keys);
  ELSE
    keys := '{}';
  END IF;
  RETURN NEXT;
END $$;
