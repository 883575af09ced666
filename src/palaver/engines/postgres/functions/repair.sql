-- Damage of derived data: rows that should be there and are not. Damaged rows are removed here, and the worker writes them
-- again from the turns.

-- gaps: the places of a conversation's summaries, level by level, that no summary covers though one should: there are
-- turns, or summaries of the level below
CREATE OR REPLACE FUNCTION palaver.gaps(here text, number bigint, summarized bigint)
RETURNS TABLE (level integer, start bigint, behind bigint)
LANGUAGE sql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
  SELECT g.level, g.start, g.behind FROM (
    SELECT s.level, coalesce(max(s.through_seq) OVER (PARTITION BY s.level ORDER BY s.from_seq
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS start, s.from_seq AS behind
    FROM summaries s WHERE s.tenant = here AND s.cid = number
    UNION ALL
    SELECT 0, (SELECT coalesce(max(s.through_seq), 0) FROM summaries s
      WHERE s.tenant = here AND s.cid = number AND s.level = 0), summarized) AS g
  WHERE g.start < g.behind AND CASE WHEN g.level = 0
    THEN EXISTS (SELECT 1 FROM turns t WHERE t.tenant = here AND t.cid = number AND t.active = 1
      AND t.status = 'complete' AND t.position >= g.start AND t.position < g.behind)
    ELSE EXISTS (SELECT 1 FROM summaries b WHERE b.tenant = here AND b.cid = number AND b.level = g.level - 1
      AND b.from_seq >= g.start AND b.through_seq <= g.behind) END
$$;

-- find_damage: the derived rows that are missing, by conversation and table: of one conversation, or of the tenant
CREATE OR REPLACE FUNCTION palaver_api.find_damage(who jsonb, conversation text DEFAULT NULL)
RETURNS TABLE (thread text, name text, missing bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp
  SET plan_cache_mode = force_custom_plan AS $$
DECLARE me asker := enter(who, 'read');
BEGIN
  RETURN QUERY SELECT c.id, found.name, found.missing FROM conversations c CROSS JOIN LATERAL (VALUES
    ('passages', c.passage_count - (SELECT count(*) FROM passages p
      WHERE p.tenant = me.tenant AND p.cid = c.cid AND p.tid IS NOT NULL)),
    ('embeddings', (SELECT coalesce(sum(e.vectors), 0)::bigint FROM embedded e
      WHERE e.tenant = me.tenant AND e.cid = c.cid) - (SELECT count(*) FROM embeddings v
      WHERE v.tenant = me.tenant AND v.cid = c.cid)),
    ('facts', (SELECT d.facts FROM derived_counts d WHERE d.tenant = me.tenant AND d.cid = c.cid)
      - (SELECT count(*) FROM facts f WHERE f.tenant = me.tenant AND f.cid = c.cid)),
    ('working_memory', (SELECT d.memories FROM derived_counts d WHERE d.tenant = me.tenant AND d.cid = c.cid)
      - (SELECT count(*) FROM working_memory w WHERE w.tenant = me.tenant AND w.cid = c.cid)),
    ('summaries', (SELECT count(*) FROM gaps(me.tenant, c.cid, c.summarized_position)))
  ) AS found (name, missing)
  WHERE c.tenant = me.tenant AND c.gone IS NULL AND coalesce(c.expires_at, 9) > 2 AND found.missing > 0
    AND (find_damage.conversation IS NULL OR c.id = find_damage.conversation);
END $$;

-- missing_memory: how many rows are missing in the memory of a conversation, by table; NULL when none is. Every context asks,
-- so only the last summaries of turns and a limited number of facts are counted; background work looks at all of them
-- (find_damage). Gaps between summaries are only looked for where their spans do not add up
CREATE OR REPLACE FUNCTION palaver.missing_memory(c palaver.conversations) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
  SELECT json_object_agg(found.name, found.missing)::text FROM (VALUES
    ('facts', (SELECT least(d.facts, 1000) FROM derived_counts d WHERE d.tenant = c.tenant AND d.cid = c.cid)
      - (SELECT count(*) FROM (SELECT FROM facts f WHERE f.tenant = c.tenant AND f.cid = c.cid LIMIT 1000) AS counted)),
    ('working_memory', (SELECT d.memories FROM derived_counts d WHERE d.tenant = c.tenant AND d.cid = c.cid)
      - (SELECT count(*) FROM working_memory w WHERE w.tenant = c.tenant AND w.cid = c.cid)),
    ('summaries', CASE WHEN (SELECT c.summarized_position - CASE WHEN count(*) < 400 THEN 0 ELSE min(l.from_seq) END
          > coalesce(sum(l.through_seq - l.from_seq), 0)
        FROM (SELECT s.from_seq, s.through_seq FROM summaries s WHERE s.tenant = c.tenant AND s.cid = c.cid AND s.level = 0
          AND s.from_seq < c.summarized_position ORDER BY s.from_seq DESC LIMIT 400) AS l)
      THEN (SELECT count(*) FROM gaps(c.tenant, c.cid, c.summarized_position)) ELSE 0 END)
  ) AS found (name, missing) WHERE found.missing > 0
$$;

-- read_context: everything that a context is made from, as `context_reading` returns it, and what is missing of it
CREATE OR REPLACE FUNCTION palaver_api.read_context(who jsonb, conversation text, budget bigint, in_characters boolean,
  most_facts integer, viewer text DEFAULT NULL, summarised bigint DEFAULT NULL)
RETURNS TABLE (info text, tail text, current text, summaries text, working_memory text, facts text, revision bigint,
  summarized_position bigint, summarized_turns bigint, refused text[], missing text)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE me asker := enter(who, 'read');
BEGIN
  RETURN QUERY SELECT r.*, missing_memory(find(me, conversation))
  FROM palaver_api.context_reading(who, conversation, budget, in_characters, most_facts, viewer, summarised) AS r;
END $$;

-- missing_passages: how many passages are missing from the text index, of the conversations that a recall looks at
CREATE OR REPLACE FUNCTION palaver_api.missing_passages(who jsonb, conversation text DEFAULT NULL, owner text DEFAULT NULL)
RETURNS TABLE (missing bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp
  SET plan_cache_mode = force_custom_plan AS $$
DECLARE me asker := enter(who, 'read');
BEGIN
  RETURN QUERY SELECT coalesce(sum(c.passage_count), 0)::bigint - (SELECT count(*) FROM passages p
    WHERE p.tenant = me.tenant AND p.tid IS NOT NULL AND p.cid = ANY (array_agg(c.cid)))
  FROM looked_at(me, conversation, owner) AS c;
END $$;

-- kept_aside: how many damaged rows are kept for people to look at
CREATE OR REPLACE FUNCTION palaver_api.kept_aside(who jsonb) RETURNS TABLE (thread text, name text, rows bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE me asker := enter(who, 'read');
BEGIN
  RETURN QUERY SELECT c.id, a.source, count(*) FROM set_aside a
  JOIN conversations c ON c.tenant = me.tenant AND c.cid = a.cid WHERE a.tenant = me.tenant GROUP BY c.id, a.source;
END $$;

-- repair_memory: put a damaged working memory aside. A new one has what can be read of it; if the log had its hash, nobody
-- knows what was changed, and the new one is `empty`
CREATE OR REPLACE FUNCTION palaver_api.repair_memory(who jsonb, conversation text, before text, memory text, empty text)
RETURNS TABLE (stored boolean)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'write');
  c palaver.conversations := open_thread(me, conversation);
  fit boolean := fits(c.tenant, c.cid, 'notes');
BEGIN
  IF before = (SELECT w.memory FROM working_memory w WHERE w.tenant = c.tenant AND w.cid = c.cid) THEN
    INSERT INTO set_aside (tenant, cid, source, at, data) VALUES (c.tenant, c.cid, 'working_memory', me.now, before);
  END IF;
  RETURN QUERY SELECT w.stored FROM palaver_api.put_working_memory(who, conversation,
    CASE WHEN fit THEN repair_memory.memory ELSE empty END, -1, CASE WHEN fit THEN before END) AS w;
END $$;

-- repair_facts: put damaged facts aside, and count those that are left
CREATE OR REPLACE FUNCTION palaver_api.repair_facts(who jsonb, conversation text, bad text[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'write');
  c palaver.conversations := open_thread(me, conversation);
  damaged text;
BEGIN
  FOREACH damaged IN ARRAY bad LOOP
    INSERT INTO set_aside (tenant, cid, source, at, data)
    SELECT c.tenant, c.cid, 'facts', me.now, to_jsonb(f)::text FROM facts f
    WHERE f.tenant = c.tenant AND f.cid = c.cid AND f.id = damaged;
    PERFORM palaver_api.drop_fact(who, conversation, damaged);
  END LOOP;
  c := open_thread(me, conversation);
  PERFORM touch(c.cid, ARRAY(SELECT p.key FROM proofs p WHERE p.tenant = c.tenant AND p.cid = c.cid
    AND starts_with(p.key, 'fact/') AND NOT EXISTS (SELECT 1 FROM facts f WHERE f.tenant = c.tenant AND f.cid = c.cid
      AND p.key = 'fact/' || f.id))), save(c);
  UPDATE derived_counts d SET facts = (SELECT count(*) FROM facts f WHERE f.tenant = c.tenant AND f.cid = c.cid)
  WHERE d.tenant = c.tenant AND d.cid = c.cid;
END $$;

-- repair_summaries: mark damaged summaries, named by [level, from_seq], to be written again, and do the same with those that
-- are missing. At the end of the thread, turns are as they were before their first summary
CREATE OR REPLACE FUNCTION palaver_api.repair_summaries(who jsonb, conversation text, bad jsonb)
RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'write');
  c palaver.conversations := open_thread(me, conversation);
  gap record;
  at bigint;
  step bigint := 25;  -- turns of one summary, as in memory/compaction.py
BEGIN
  PERFORM bump(c);
  PERFORM touch(c.cid, ARRAY(SELECT 'summary/' || s.level || '/' || s.from_seq FROM summaries s WHERE s.tenant = c.tenant
    AND s.cid = c.cid AND (s.from_seq < 0 OR s.through_seq <= s.from_seq
      OR bad @> jsonb_build_array(jsonb_build_array(s.level, s.from_seq)))
    UNION SELECT p.key FROM proofs p WHERE p.tenant = c.tenant AND p.cid = c.cid AND starts_with(p.key, 'summary/')
      AND NOT EXISTS (SELECT 1 FROM summaries s WHERE s.tenant = c.tenant AND s.cid = c.cid
        AND p.key = 'summary/' || s.level || '/' || s.from_seq)));
  DELETE FROM summaries s WHERE s.tenant = c.tenant AND s.cid = c.cid AND (s.from_seq < 0 OR s.through_seq <= s.from_seq
    OR (covered(c.tenant, c.cid) AND NOT EXISTS (SELECT 1 FROM proofs p WHERE p.tenant = c.tenant AND p.cid = c.cid
      AND p.key = 'summary/' || s.level || '/' || s.from_seq)));  -- inserted by other means
  UPDATE summaries s SET stale = 1, text = '', token_count = 0, turns = greatest(s.turns, 0), model = ''
  WHERE s.tenant = c.tenant AND s.cid = c.cid AND bad @> jsonb_build_array(jsonb_build_array(s.level, s.from_seq));
  FOR gap IN SELECT * FROM gaps(c.tenant, c.cid, c.summarized_position) LOOP
    IF gap.level = 0 AND gap.behind = c.summarized_position THEN
      PERFORM cut(c, gap.start);
      CONTINUE;
    END IF;
    at := gap.start;
    WHILE at < gap.behind LOOP
      INSERT INTO summaries (tenant, cid, level, from_seq, through_seq, id, turns, tokens, text, token_count, model, stale,
        created)
      SELECT c.tenant, c.cid, gap.level, at, CASE WHEN gap.level = 0 THEN least(at + step, gap.behind) ELSE gap.behind END,
        gen_random_uuid()::text, count(*), coalesce(sum(t.token_count), 0), '', 0, '', 1, me.now
      FROM turns t WHERE t.tenant = c.tenant AND t.cid = c.cid AND t.active = 1 AND t.status = 'complete'
        AND t.position >= at AND t.position < CASE WHEN gap.level = 0 THEN least(at + step, gap.behind) ELSE gap.behind END;
      PERFORM touch(c.cid, ARRAY['summary/' || gap.level || '/' || at]);
      at := CASE WHEN gap.level = 0 THEN at + step ELSE gap.behind END;
    END LOOP;
  END LOOP;
  PERFORM recount(c), save(c);
END $$;

-- repair_vectors: let embedders go through a conversation again; vectors that are there stay
CREATE OR REPLACE FUNCTION palaver_api.repair_vectors(who jsonb, conversation text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'write');
  c palaver.conversations := open_thread(me, conversation);
BEGIN
  UPDATE embedded e SET pid = 0, vectors = (SELECT count(*) FROM embeddings v
    WHERE v.tenant = c.tenant AND v.cid = c.cid AND v.model = e.model)
  WHERE e.tenant = c.tenant AND e.cid = c.cid;
  PERFORM put_job(c.tenant, c.cid, 'embed', NULL, me.now);
END $$;

-- repair_index: remove what is left of a conversation in the text index, so that its turns and files are indexed again
CREATE OR REPLACE FUNCTION palaver_api.repair_index(who jsonb, conversation text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'write');
  c palaver.conversations := open_thread(me, conversation);
BEGIN
  DELETE FROM passages p WHERE p.tenant = c.tenant AND p.cid = c.cid AND p.tid IS NOT NULL;
  DELETE FROM file_passages f WHERE f.tenant = c.tenant AND f.cid = c.cid;
  UPDATE attachments a SET characters = NULL, problem = NULL WHERE a.tenant = c.tenant AND a.cid = c.cid;
  IF FOUND THEN
    PERFORM put_job(c.tenant, c.cid, 'files', NULL, me.now);
  END IF;
  UPDATE conversations o SET passage_count = 0, passage_terms = 0, revision = o.revision + 1
  WHERE o.tenant = c.tenant AND o.cid = c.cid;
  UPDATE embedded e SET pid = 0 WHERE e.tenant = c.tenant AND e.cid = c.cid;
END $$;

-- unindexed: the next turns of a conversation without passages, after a turn's number
CREATE OR REPLACE FUNCTION palaver_api.unindexed(who jsonb, conversation text, after bigint, most integer)
RETURNS TABLE (tid bigint, is_parts smallint, content text)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
#variable_conflict use_column
DECLARE
  me asker := enter(who, 'read');
  c palaver.conversations := find(me, conversation);
BEGIN
  RETURN QUERY SELECT t.tid, t.is_parts, t.content FROM turns t WHERE t.tenant = me.tenant AND t.cid = c.cid AND t.tid > after
    AND t.status = 'complete' AND NOT EXISTS (SELECT 1 FROM passages p
      WHERE p.tenant = me.tenant AND p.cid = c.cid AND p.tid = t.tid AND p.part < 100000)
  ORDER BY t.tid LIMIT most;
END $$;

-- put_passages: index turns again. `words` is a list of [turn, [[number of stems, tsvector], …]]
CREATE OR REPLACE FUNCTION palaver_api.put_passages(who jsonb, conversation text, words jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'write');
  c palaver.conversations := open_thread(me, conversation);
  one record;
  t palaver.turns;
BEGIN
  FOR one IN SELECT (w.value ->> 0)::bigint AS tid, w.value -> 1 AS stems FROM jsonb_array_elements(words) AS w (value) LOOP
    SELECT * INTO t FROM turns o WHERE o.tenant = c.tenant AND o.cid = c.cid AND o.tid = one.tid AND o.status = 'complete';
    CONTINUE WHEN NOT FOUND OR EXISTS (SELECT 1 FROM passages p
      WHERE p.tenant = c.tenant AND p.cid = c.cid AND p.tid = one.tid AND p.part < 100000);
    PERFORM index_turn(t, one.stems);
  END LOOP;
  UPDATE conversations o SET passage_count = n.passages, passage_terms = n.terms
  FROM (SELECT count(*) AS passages, coalesce(sum(p.size), 0) AS terms FROM passages p
    WHERE p.tenant = c.tenant AND p.cid = c.cid AND p.tid IS NOT NULL) AS n
  WHERE o.tenant = c.tenant AND o.cid = c.cid;
  PERFORM put_job(c.tenant, c.cid, 'embed', NULL, me.now);
END $$;
