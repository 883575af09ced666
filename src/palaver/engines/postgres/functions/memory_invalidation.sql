-- Invalidation of memory: what was derived from a turn is deleted, or marked to be written again, when the turn changes
-- or goes. All of it happens in the transaction that changes the turn, under the conversation's lock.

-- without_turns: a working memory without the notes from these turns. The summary is deleted too: it may contain
-- them
CREATE OR REPLACE FUNCTION palaver.without_turns(memory jsonb, gone text[]) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN memory || '{"summary": ""}' || (
    SELECT coalesce(jsonb_object_agg(list.name, (
      SELECT coalesce(jsonb_agg(note.value ORDER BY note.n), '[]')
      FROM jsonb_array_elements(list.notes) WITH ORDINALITY AS note (value, n)
      WHERE note.value ->> 'turn' IS NULL OR note.value ->> 'turn' <> ALL (gone))), '{}')
    FROM jsonb_each(memory) AS list (name, notes) WHERE jsonb_typeof(list.notes) = 'array');

-- noted_turns: the turns that a working memory refers to
CREATE OR REPLACE FUNCTION palaver.noted_turns(memory jsonb) RETURNS text[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN (SELECT coalesce(array_agg(DISTINCT note.value ->> 'turn'), '{}')
    FROM jsonb_each(memory) AS list (name, notes), jsonb_array_elements(list.notes) AS note (value)
    WHERE jsonb_typeof(list.notes) = 'array' AND note.value ->> 'turn' IS NOT NULL);

-- bump: count a change of the active branch that is not an append
CREATE OR REPLACE FUNCTION palaver.bump(c palaver.conversations) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  UPDATE conversations o SET revision = o.revision + 1 WHERE o.tenant = c.tenant AND o.cid = c.cid;
END $$;

-- revive: make facts valid again that were replaced by facts which are deleted now
CREATE OR REPLACE FUNCTION palaver.revive(c palaver.conversations, gone text[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  revived text[] := ARRAY(SELECT 'fact/' || f.id FROM facts f WHERE f.tenant = c.tenant AND f.cid = c.cid
    AND f.invalidated_by = ANY (gone) AND fits(c.tenant, c.cid, 'fact/' || f.id));
BEGIN
  UPDATE facts f SET invalidated_at = NULL, invalidated_by = NULL, valid_to = NULL
  WHERE f.tenant = c.tenant AND f.cid = c.cid AND f.invalidated_by = ANY (gone);
  PERFORM touch(c.cid, revived || ARRAY(SELECT 'fact/' || g FROM unnest(gone) AS g));
END $$;

-- count_facts: count the facts that a conversation should have
CREATE OR REPLACE FUNCTION palaver.count_facts(c palaver.conversations, added bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  INSERT INTO derived_counts AS d (tenant, cid, facts) VALUES (c.tenant, c.cid, greatest(0, added))
  ON CONFLICT ON CONSTRAINT derived_counts_pkey DO UPDATE SET facts = greatest(0, d.facts + added);
END $$;

-- facts_gone: count facts that were deleted with their turns, and make those valid again that they had replaced
CREATE OR REPLACE FUNCTION palaver.facts_gone(c palaver.conversations, gone text[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  IF gone IS NOT NULL THEN
    PERFORM count_facts(c, -cardinality(gone)), revive(c, gone);
  END IF;
END $$;

-- is_memory: whether a text is a working memory, as far as the functions here need it to be
CREATE OR REPLACE FUNCTION palaver.is_memory(memory text) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  RETURN jsonb_typeof(memory::jsonb) = 'object' AND noted_turns(memory::jsonb) IS NOT NULL;
EXCEPTION WHEN OTHERS THEN  -- not JSON
  RETURN false;
END $$;

-- drop_damaged_memory: delete a working memory that cannot be read: nobody can tell which turns it quotes
CREATE OR REPLACE FUNCTION palaver.drop_damaged_memory(me palaver.asker, c palaver.conversations) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  DELETE FROM working_memory w WHERE w.tenant = c.tenant AND w.cid = c.cid AND NOT is_memory(w.memory);
  IF FOUND THEN
    PERFORM touch(c.cid, ARRAY['notes']), put_job(c.tenant, c.cid, 'repair', NULL, me.now);
  END IF;
END $$;

-- changed: invalidate what was derived from a turn that left its place in the active branch
CREATE OR REPLACE FUNCTION palaver.changed(me palaver.asker, c palaver.conversations, t palaver.turns) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  gone text[];
  spoiled text[];
BEGIN
  PERFORM bump(c);
  WITH stale AS (
    UPDATE summaries s SET stale = 1, text = '', token_count = 0
    WHERE s.tenant = c.tenant AND s.cid = c.cid AND s.from_seq <= t.position AND s.through_seq > t.position
    RETURNING s.level, s.from_seq)
  SELECT array_agg('summary/' || s.level || '/' || s.from_seq) INTO spoiled FROM stale s;
  IF spoiled IS NOT NULL THEN
    PERFORM touch(c.cid, spoiled), put_job(c.tenant, c.cid, 'compact', NULL, me.now);
  END IF;
  PERFORM drop_damaged_memory(me, c);
  PERFORM touch(c.cid, ARRAY['notes']) FROM working_memory w WHERE w.tenant = c.tenant AND w.cid = c.cid
    AND strpos(w.memory, t.id) > 0 AND fits(c.tenant, c.cid, 'notes');
  UPDATE working_memory w SET memory = without_turns(w.memory::jsonb, ARRAY[t.id])::text, updated = me.now
  WHERE w.tenant = c.tenant AND w.cid = c.cid AND strpos(w.memory, t.id) > 0;
  WITH dropped AS (
    DELETE FROM facts f WHERE f.tenant = c.tenant AND f.cid = c.cid AND f.source_turn = t.id RETURNING f.id)
  SELECT array_agg(d.id) INTO gone FROM dropped d;
  PERFORM facts_gone(c, gone);
END $$;

-- recount: count again how much of the view is summarised, after any change but one more summary. Everything before
-- the end of the last summary is summarised; the rest is short, and is counted
CREATE OR REPLACE FUNCTION palaver.recount(c palaver.conversations) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  UPDATE conversations o SET summarized_turns = c.turn_count - behind.turns,
    summarized_tokens = c.token_count - behind.tokens
  FROM (SELECT count(*) AS turns, coalesce(sum(t.token_count), 0) AS tokens
    FROM conversations n JOIN turns t ON t.tenant = n.tenant AND t.cid = n.cid AND t.active = 1
      AND t.position >= n.summarized_position
    WHERE n.tenant = c.tenant AND n.cid = c.cid) AS behind
  WHERE o.tenant = c.tenant AND o.cid = c.cid;
END $$;

-- cut: delete the summaries from a position on, when those turns left the view or another branch replaced them
CREATE OR REPLACE FUNCTION palaver.cut(c palaver.conversations, "from" bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE gone text[];
BEGIN
  PERFORM bump(c);
  WITH dropped AS (
    DELETE FROM summaries s WHERE s.tenant = c.tenant AND s.cid = c.cid AND s.through_seq > cut."from"
    RETURNING s.level, s.from_seq)
  SELECT array_agg('summary/' || d.level || '/' || d.from_seq) INTO gone FROM dropped d;
  PERFORM touch(c.cid, gone);
  UPDATE conversations o SET summarized_position = (SELECT coalesce(max(s.through_seq), 0) FROM summaries s
    WHERE s.tenant = c.tenant AND s.cid = c.cid AND s.level = 0)
  WHERE o.tenant = c.tenant AND o.cid = c.cid;
END $$;

-- prune: afterwards, delete notes and facts whose turn is no longer in the view, and read again from there. Notes
-- from retired turns stay
CREATE OR REPLACE FUNCTION palaver.prune(me palaver.asker, c palaver.conversations, "from" bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  gone text[];
  noted text;
BEGIN
  PERFORM recount(c);
  WITH dropped AS (
    DELETE FROM facts f USING turns t
    WHERE f.tenant = c.tenant AND f.cid = c.cid AND t.tenant = c.tenant AND t.cid = c.cid AND t.active = 0
      AND t.position >= prune."from" AND t.status <> 'forgotten' AND t.id = f.source_turn RETURNING f.id)
  SELECT array_agg(d.id) INTO gone FROM dropped d;
  PERFORM facts_gone(c, gone);
  PERFORM unlearn(c.cid, ARRAY(SELECT t.id FROM turns t WHERE t.tenant = c.tenant AND t.cid = c.cid AND t.active = 0
    AND t.position >= prune."from" AND t.status <> 'forgotten'));
  PERFORM drop_damaged_memory(me, c);
  SELECT w.memory INTO noted FROM working_memory w WHERE w.tenant = c.tenant AND w.cid = c.cid;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  SELECT array_agg(n.id) INTO gone FROM unnest(noted_turns(noted::jsonb)) AS n (id)
  WHERE NOT EXISTS (SELECT 1 FROM turns t WHERE t.tenant = c.tenant AND t.cid = c.cid AND t.seq = stamped_seq(n.id)
    AND t.id = n.id AND (t.active = 1 OR t.status = 'forgotten'));
  IF gone IS NOT NULL THEN
    noted := without_turns(noted::jsonb, gone)::text;
  END IF;
  IF fits(c.tenant, c.cid, 'notes') THEN
    PERFORM touch(c.cid, ARRAY['notes']);
  END IF;
  UPDATE working_memory w SET through_seq = least(w.through_seq, prune."from" - 1), updated = me.now,
    memory = jsonb_set(noted::jsonb, '{through_seq}', to_jsonb(least(w.through_seq, prune."from" - 1)))::text
  WHERE w.tenant = c.tenant AND w.cid = c.cid;
END $$;

-- cut_beyond_tip: when turns left the end of the view, delete what was derived from their places, which new turns
-- will take
CREATE OR REPLACE FUNCTION palaver.cut_beyond_tip(me palaver.asker, c palaver.conversations) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  IF EXISTS (SELECT 1 FROM conversations o WHERE o.tenant = c.tenant AND o.cid = c.cid
             AND o.summarized_position > c.tip_position + 1) THEN
    PERFORM cut(c, c.tip_position + 1);
    PERFORM prune(me, c, c.tip_position + 1);
  END IF;
END $$;

-- drop_meaning: delete the marks and vectors of a turn, and damaged rows of memory that were put aside
CREATE OR REPLACE FUNCTION palaver.drop_meaning(t palaver.turns) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  DELETE FROM marks m WHERE m.tenant = t.tenant AND m.tid = t.tid;
  WITH gone AS (
    DELETE FROM embeddings e WHERE e.tenant = t.tenant AND e.tid = t.tid RETURNING e.model
  ) UPDATE embedded o SET vectors = greatest(0, o.vectors - g.vectors)
    FROM (SELECT model, count(*) AS vectors FROM gone GROUP BY model) AS g
    WHERE o.tenant = t.tenant AND o.cid = t.cid AND o.model = g.model;
  DELETE FROM set_aside a WHERE a.tenant = t.tenant AND a.cid = t.cid;  -- they may quote it
END $$;

-- emptied: delete everything that was derived from the turns of a conversation
CREATE OR REPLACE FUNCTION palaver.emptied(c palaver.conversations) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  DELETE FROM summaries s WHERE s.tenant = c.tenant AND s.cid = c.cid;
  DELETE FROM working_memory w WHERE w.tenant = c.tenant AND w.cid = c.cid;
  DELETE FROM facts f WHERE f.tenant = c.tenant AND f.cid = c.cid;
  DELETE FROM items i WHERE i.tenant = c.tenant AND i.cid = c.cid;
  DELETE FROM item_sources s WHERE s.tenant = c.tenant AND s.cid = c.cid;
  DELETE FROM marks m WHERE m.tenant = c.tenant AND m.cid = c.cid;
  DELETE FROM embeddings e WHERE e.tenant = c.tenant AND e.cid = c.cid;
  DELETE FROM embedded e WHERE e.tenant = c.tenant AND e.cid = c.cid;
  DELETE FROM derived_counts d WHERE d.tenant = c.tenant AND d.cid = c.cid;
  DELETE FROM set_aside a WHERE a.tenant = c.tenant AND a.cid = c.cid;
  DELETE FROM jobs j WHERE j.tenant = c.tenant AND j.cid = c.cid;
  DELETE FROM request_quotes q WHERE q.tenant = c.tenant AND q.cid = c.cid;
  DELETE FROM requests r WHERE r.tenant = c.tenant AND r.cid = c.cid;
  DELETE FROM proofs p WHERE p.tenant = c.tenant AND p.cid = c.cid AND p.key <> '';
  UPDATE conversations o SET revision = o.revision + 1, summarized_position = 0, summarized_turns = 0,
    summarized_tokens = 0, to_embed = false
  WHERE o.tenant = c.tenant AND o.cid = c.cid;
END $$;
