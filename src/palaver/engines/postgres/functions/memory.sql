-- Summaries, working memory and facts. Everything that a context needs is returned as JSON, in one row.

-- turn_json: a turn as an array, in the order of TurnRow, without its salt
CREATE OR REPLACE FUNCTION palaver.turn_json(t palaver.turns) RETURNS json LANGUAGE sql STABLE PARALLEL SAFE
  RETURN json_build_array((t).tid, (t).id, (t).seq, (t).position, (t).parent, (t).slot, (t).active, (t).superseded_by,
    (t).status, (t).role, (t).actor, (t).is_parts, (t).content, (t).tool_calls, (t).tool_results, (t).attachments,
    (t).sources, (t).prompt_tokens, (t).completion_tokens, (t).token_count, (t).model, (t).adapter, (t).finish_reason,
    (t).metadata, (t).idempotency_key, NULL, encode((t).content_hash, 'hex'), (t).created);

-- info_json: the fields of a ConversationInfo as 0.1.0 reads them. Later fields are columns of their own
CREATE OR REPLACE FUNCTION palaver.info_json(c palaver.conversations) RETURNS json LANGUAGE sql STABLE PARALLEL SAFE
  RETURN json_build_array((c).id, (c).tenant, (c).owner, (c).key, (c).workspace, (c).agent, (c).model, (c).title,
    (c).preview, (c).participants, (c).metadata, (c).settings, (c).turn_count, (c).token_count,
    (c).next_seq, (c).next_n - 1, (c).ttl, (c).expires_at, (c).created, (c).updated);

CREATE OR REPLACE FUNCTION palaver.summary_json(s palaver.summaries) RETURNS json LANGUAGE sql STABLE PARALLEL SAFE
  RETURN json_build_array((s).id, (s).level, (s).from_seq, (s).through_seq, (s).text, (s).model, (s).token_count,
    (s).turns, (s).created);

-- fact_json: the fields of a Fact as 0.1.0 reads them
CREATE OR REPLACE FUNCTION palaver.fact_json(f palaver.facts) RETURNS json LANGUAGE sql STABLE PARALLEL SAFE
  RETURN json_build_array((f).id, (f).subject, (f).predicate, (f).object, (f).source_turn, (f).confidence,
    (f).valid_from, (f).invalidated_at, (f).invalidated_by, (f).by, (f).created);

-- ---- reading --------------------------------------------------------------------------------------------------------

-- tail: the end of the view, read backwards until the budget is used up. Of a thread that does not fit as a whole, no
-- more than `summarised` is read once turns with a summary are reached. Reads at most one turn too many; when that is a tool result, reading goes on to its call, because a tool
-- round can be shortened but not halved
CREATE OR REPLACE FUNCTION palaver.tail(c palaver.conversations, budget bigint, in_characters boolean, summarised bigint)
RETURNS SETOF palaver.turns
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  t palaver.turns;
  space bigint := budget;
  covered bigint := CASE WHEN summarised IS NULL OR in_characters OR c.token_count <= budget THEN -1
    ELSE c.summarized_position END;  -- before it, no more than `summarised` is read
  taken integer := 0;
BEGIN
  FOR t IN SELECT * FROM turns o WHERE o.tenant = c.tenant AND o.cid = c.cid AND o.active = 1
    ORDER BY o.position DESC
  LOOP
    CONTINUE WHEN t.status <> 'complete';
    IF t.position < covered THEN
      space := least(space, summarised - (budget - space));
      covered := -1;
    END IF;
    RETURN NEXT t;
    taken := taken + 1;
    space := space - 1 - CASE WHEN in_characters
      THEN coalesce(char_length(t.content), 0) + coalesce(char_length(t.tool_calls), 0)
        + coalesce(char_length(t.tool_results), 0)
      ELSE t.token_count END;
    EXIT WHEN (space < 0 AND t.role <> 'tool') OR taken >= 10000;
  END LOOP;
END $$;

-- current: the message to answer; for one agent of several, the newest one of the others
CREATE OR REPLACE FUNCTION palaver.current(c palaver.conversations, viewer text) RETURNS SETOF palaver.turns
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  IF viewer IS NULL THEN
    RETURN QUERY SELECT * FROM turns t WHERE t.tenant = c.tenant AND t.cid = c.cid AND t.active = 1
      AND t.role = 'user' AND t.status = 'complete' ORDER BY t.position DESC LIMIT 1;
  ELSE
    RETURN QUERY SELECT * FROM turns t WHERE t.tenant = c.tenant AND t.cid = c.cid AND t.active = 1
      AND t.status = 'complete' AND t.role IN ('user', 'assistant') AND t.actor <> viewer AND t.tool_calls IS NULL
      ORDER BY t.position DESC LIMIT 1;
  END IF;
END $$;

-- shown_summaries: the widest summaries that end before `start`, and every one after it: a window may begin where
-- any of them ends. Reads few rows however long the conversation is: from the widest level down, and further only
-- where a wide one cannot be used
CREATE OR REPLACE FUNCTION palaver.shown_summaries(c palaver.conversations, start bigint)
RETURNS SETOF palaver.summaries
LANGUAGE sql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
  WITH RECURSIVE levels AS (
    SELECT l.level, last.through_seq FROM generate_series(0, (
      SELECT s.level FROM summaries s WHERE s.tenant = c.tenant AND s.cid = c.cid ORDER BY s.level DESC LIMIT 1)) AS l (level)
    CROSS JOIN LATERAL (SELECT s.through_seq FROM summaries s
      WHERE s.tenant = c.tenant AND s.cid = c.cid AND s.level = l.level ORDER BY s.from_seq DESC LIMIT 1) AS last
  ), tops AS (  -- of each level, where the next wider one ends: from there on, all of its summaries are read
    SELECT l.level, (SELECT coalesce(max(w.through_seq), 0) FROM levels w WHERE w.level > l.level) AS behind FROM levels l
  ), found AS (  -- OFFSET 0: one look into the index for each row. Joined as a whole, all summaries would be read
    SELECT s.* FROM tops l CROSS JOIN LATERAL (SELECT * FROM summaries s WHERE s.tenant = c.tenant AND s.cid = c.cid
      AND s.level = l.level AND s.from_seq >= l.behind OFFSET 0) AS s
    UNION ALL
    SELECT b.* FROM found f CROSS JOIN LATERAL (SELECT * FROM summaries b
      WHERE b.tenant = c.tenant AND b.cid = c.cid AND b.level = f.level - 1 AND b.from_seq >= f.from_seq
        AND b.from_seq < f.through_seq AND (f.stale = 1 OR f.through_seq > start) OFFSET 0) AS b
  )
  SELECT f.* FROM found f WHERE f.stale = 0 ORDER BY f.from_seq, f.through_seq DESC
$$;

-- context_reading: everything that a context is made from, in one snapshot. `refused` are the keys of rows that are left
-- out because the log says something else of them
CREATE OR REPLACE FUNCTION palaver_api.context_reading(who jsonb, conversation text, budget bigint, in_characters boolean,
  most_facts integer, viewer text, summarised bigint)
RETURNS TABLE (info text, tail text, current text, summaries text, working_memory text, facts text, revision bigint,
  summarized_position bigint, summarized_turns bigint, refused text[])
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
#variable_conflict use_column
DECLARE
  me asker := enter(who, 'read');
  c palaver.conversations := find(me, conversation);
  start bigint;
  wrong text[];
BEGIN
  info := info_json(c);
  SELECT json_agg(turn_json(t) ORDER BY t.position), coalesce(min(t.position), 0),
    bool_or(CASE WHEN viewer IS NULL THEN t.role = 'user'
      ELSE t.role IN ('user', 'assistant') AND t.actor <> viewer AND t.tool_calls IS NULL END)::text
  INTO tail, start, current FROM tail(c, budget, in_characters, summarised) AS t;
  IF current IS DISTINCT FROM 'true' THEN  -- otherwise the tail contains it
    current := (SELECT turn_json(t) FROM current(c, viewer) AS t);
  ELSE
    current := NULL;
  END IF;
  SELECT json_agg(s.row) FILTER (WHERE s.fits), array_agg(s.key) FILTER (WHERE NOT s.fits) INTO summaries, refused FROM (
    SELECT summary_json(ROW(o.*)::palaver.summaries) AS row, k.key, fits(c.tenant, c.cid, k.key) AS fits
    FROM shown_summaries(c, start) AS o, LATERAL (SELECT 'summary/' || o.level || '/' || o.from_seq AS key) AS k) AS s;
  SELECT w.memory INTO working_memory FROM working_memory w WHERE w.tenant = c.tenant AND w.cid = c.cid;
  IF FOUND AND NOT fits(c.tenant, c.cid, 'notes') THEN
    working_memory := NULL;
    refused := array_append(refused, 'notes');
  END IF;
  SELECT json_agg(f.row ORDER BY f.fid) FILTER (WHERE f.fits), array_agg(f.key) FILTER (WHERE NOT f.fits)
  INTO facts, wrong FROM (
    SELECT o.fid, fact_json(ROW(o.*)::palaver.facts) AS row, 'fact/' || o.id AS key,
      fits(c.tenant, c.cid, 'fact/' || o.id) AS fits
    FROM (SELECT * FROM facts n WHERE n.tenant = c.tenant AND n.cid = c.cid AND n.invalidated_at IS NULL
      ORDER BY n.fid DESC LIMIT most_facts) AS o) AS f;
  refused := coalesce(refused, '{}') || coalesce(wrong, '{}');
  revision := c.revision;
  summarized_position := c.summarized_position;
  summarized_turns := c.summarized_turns;
  RETURN NEXT;
END $$;

-- ---- compaction -----------------------------------------------------------------------------------------------------

-- unsummarised: the turns after the last summary, up to `tokens` and never past a pending turn
CREATE OR REPLACE FUNCTION palaver_api.unsummarised(who jsonb, conversation text, tokens bigint)
RETURNS TABLE (info text, revision bigint, "position" bigint, turns text, stale text, working_memory text, facts text)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
#variable_conflict use_column
DECLARE
  me asker := enter(who, 'read');
  c palaver.conversations := find(me, conversation);
  t palaver.turns;
  space bigint := tokens;
  found json[] := '{}';
BEGIN
  FOR t IN SELECT * FROM turns o WHERE o.tenant = c.tenant AND o.cid = c.cid AND o.active = 1
    AND o.position >= c.summarized_position ORDER BY o.position LIMIT 10000
  LOOP
    EXIT WHEN t.status = 'pending' OR space < 0;
    found := array_append(found, turn_json(t));
    space := space - t.token_count;
  END LOOP;
  info := info_json(c);
  revision := c.revision;
  "position" := c.summarized_position;
  turns := to_json(found);
  stale := (SELECT json_agg(summary_json(ROW(s.*)::palaver.summaries) ORDER BY s.level, s.from_seq) FROM summaries s
    WHERE s.tenant = c.tenant AND s.cid = c.cid AND s.stale = 1);
  working_memory := (SELECT w.memory FROM working_memory w WHERE w.tenant = c.tenant AND w.cid = c.cid
    AND fits(c.tenant, c.cid, 'notes'));
  facts := (SELECT json_agg(fact_json(ROW(f.*)::palaver.facts) ORDER BY f.fid) FROM facts f
    WHERE f.tenant = c.tenant AND f.cid = c.cid AND f.invalidated_at IS NULL AND fits(c.tenant, c.cid, 'fact/' || f.id));
  RETURN NEXT;
END $$;

-- span: the complete turns of the view between two positions
CREATE OR REPLACE FUNCTION palaver_api.span(who jsonb, conversation text, from_seq bigint, through_seq bigint)
RETURNS SETOF palaver.turns
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'read');
  c palaver.conversations := find(me, conversation);
BEGIN
  RETURN QUERY SELECT * FROM turns t WHERE t.tenant = c.tenant AND t.cid = c.cid AND t.active = 1
    AND t.position >= from_seq AND t.position < through_seq AND t.status = 'complete' ORDER BY t.position;
END $$;

-- speakers: who spoke in each span of the view, or of turns whose words retention has removed; tools do not speak
CREATE OR REPLACE FUNCTION palaver_api.speakers(who jsonb, conversation text, starts bigint[], ends bigint[],
  retired boolean)
RETURNS TABLE (span bigint, actor text)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'read');
  c palaver.conversations := find(me, conversation);
BEGIN
  RETURN QUERY SELECT s.n, t.actor FROM unnest(starts, ends) WITH ORDINALITY AS s (first, behind, n)
    CROSS JOIN LATERAL (
      SELECT o.actor FROM turns o WHERE o.tenant = c.tenant AND o.cid = c.cid AND o.active = 1
        AND o.position >= s.first AND o.position < s.behind AND o.role <> 'tool'
      UNION
      SELECT o.actor FROM turns o WHERE retired AND o.tenant = c.tenant AND o.cid = c.cid AND o.active = 0
        AND o.position >= s.first AND o.position < s.behind AND o.role <> 'tool' AND o.status = 'forgotten'
        AND o.superseded_by IS NULL) AS t;
END $$;

-- summaries: the valid summaries, of one level or of all
CREATE OR REPLACE FUNCTION palaver_api.summaries(who jsonb, conversation text, level integer DEFAULT NULL)
RETURNS SETOF palaver.summaries
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'read');
  c palaver.conversations := find(me, conversation);
BEGIN
  RETURN QUERY SELECT * FROM summaries s WHERE s.tenant = c.tenant AND s.cid = c.cid AND s.stale = 0
    AND (summaries.level IS NULL OR s.level = summaries.level)
    AND fits(c.tenant, c.cid, 'summary/' || s.level || '/' || s.from_seq) ORDER BY s.from_seq, s.level;
END $$;

-- uncovered: the summaries of a level that no summary of the next level covers
CREATE OR REPLACE FUNCTION palaver_api.uncovered(who jsonb, conversation text, level integer)
RETURNS SETOF palaver.summaries
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'read');
  c palaver.conversations := find(me, conversation);
BEGIN
  RETURN QUERY SELECT * FROM summaries s WHERE s.tenant = c.tenant AND s.cid = c.cid AND s.level = uncovered.level
    AND s.stale = 0 AND s.from_seq >= (SELECT coalesce(max(w.through_seq), 0) FROM summaries w
      WHERE w.tenant = c.tenant AND w.cid = c.cid AND w.level = uncovered.level + 1)
    AND fits(c.tenant, c.cid, 'summary/' || s.level || '/' || s.from_seq)
  ORDER BY s.from_seq;
END $$;

-- put_summary: store a summary, unless the turns that it covers have changed since they were read
CREATE OR REPLACE FUNCTION palaver_api.put_summary(who jsonb, conversation text, draft jsonb)
RETURNS TABLE (stored boolean)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'write');
  c palaver.conversations := open_thread(me, conversation);
  s palaver.summaries := jsonb_populate_record(NULL::palaver.summaries, draft);
  first_time boolean := s.level = 0 AND s.from_seq >= c.summarized_position;
BEGIN
  stored := c.revision = (draft ->> 'revision')::bigint
    AND NOT (first_time AND s.from_seq <> c.summarized_position);
  IF NOT stored THEN
    RETURN NEXT;
    RETURN;
  END IF;
  PERFORM check_span(s.level, s.from_seq, s.through_seq, c.tip_position + 1), check_count('turns', s.turns),
    check_count('tokens', s.tokens), check_count('token_count', s.token_count), check_text('id', s.id, 512),
    check_text('model', s.model, 512), check_text('text', s.text, 5000000);
  c.updated := tick(me, c);
  INSERT INTO summaries (tenant, cid, level, from_seq, through_seq, id, turns, tokens, text, token_count, model, created)
  VALUES (c.tenant, c.cid, s.level, s.from_seq, s.through_seq, s.id, s.turns, s.tokens, s.text, s.token_count, s.model,
    c.updated)
  ON CONFLICT ON CONSTRAINT summaries_pkey DO UPDATE SET id = excluded.id, through_seq = excluded.through_seq,
    turns = excluded.turns, tokens = excluded.tokens, text = excluded.text, token_count = excluded.token_count,
    model = excluded.model, stale = 0, created = excluded.created;
  IF first_time THEN
    UPDATE conversations o SET summarized_position = s.through_seq, summarized_turns = o.summarized_turns + s.turns,
      summarized_tokens = o.summarized_tokens + s.tokens
    WHERE o.tenant = c.tenant AND o.cid = c.cid;
  ELSIF s.level = 0 THEN
    PERFORM recount(c);
  END IF;
  PERFORM touch(c.cid, ARRAY['summary/' || s.level || '/' || s.from_seq]);
  c := log(me, c, 'summarize', payload => jsonb_build_object(
    'level', s.level, 'from', s.from_seq, 'through', s.through_seq, 'model', s.model));
  PERFORM save(c);
  RETURN NEXT;
END $$;

-- drop_summary: delete a summary whose turns are gone
CREATE OR REPLACE FUNCTION palaver_api.drop_summary(who jsonb, conversation text, level integer, from_seq bigint)
RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'write');
  c palaver.conversations := open_thread(me, conversation);
BEGIN
  DELETE FROM summaries s WHERE s.tenant = c.tenant AND s.cid = c.cid AND s.level = drop_summary.level
    AND s.from_seq = drop_summary.from_seq;
  PERFORM recount(c), touch(c.cid, ARRAY['summary/' || drop_summary.level || '/' || drop_summary.from_seq]), save(c);
END $$;

-- ---- working memory and facts ---------------------------------------------------------------------------------------

-- put_working_memory: store the working memory, unless it or the turns that were read have changed since
CREATE OR REPLACE FUNCTION palaver_api.put_working_memory(who jsonb, conversation text, memory text,
  through_seq bigint, before text DEFAULT NULL, revision bigint DEFAULT NULL)
RETURNS TABLE (stored boolean)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'write');
  c palaver.conversations := open_thread(me, conversation);
BEGIN
  PERFORM check_memory(put_working_memory.memory);
  IF is_watched(c.settings) THEN
    PERFORM check_texts(ARRAY(SELECT n ->> 'text' FROM jsonb_path_query(put_working_memory.memory::jsonb,
      'strict $.** ? (@.type() == "object")') AS n WHERE n ? 'text'));
  END IF;
  stored := c.revision = coalesce(put_working_memory.revision, c.revision) AND before IS NOT DISTINCT FROM (
    SELECT w.memory FROM working_memory w WHERE w.tenant = c.tenant AND w.cid = c.cid AND fits(c.tenant, c.cid, 'notes'));
  IF stored THEN
    c.updated := tick(me, c);
    INSERT INTO working_memory (tenant, cid, memory, through_seq, updated)
    VALUES (c.tenant, c.cid, put_working_memory.memory, put_working_memory.through_seq, c.updated)
    ON CONFLICT ON CONSTRAINT working_memory_pkey DO UPDATE SET memory = excluded.memory,
      through_seq = excluded.through_seq, updated = excluded.updated;
    INSERT INTO derived_counts AS d (tenant, cid, memories) VALUES (c.tenant, c.cid, 1)
    ON CONFLICT ON CONSTRAINT derived_counts_pkey DO UPDATE SET memories = 1 WHERE d.memories = 0;
    PERFORM touch(c.cid, ARRAY['notes']);
    c := log(me, c, 'remember');
    PERFORM save(c);
  END IF;
  RETURN NEXT;
END $$;

CREATE OR REPLACE FUNCTION palaver_api.facts(who jsonb, conversation text, include_invalidated boolean)
RETURNS SETOF palaver.facts
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'read');
  c palaver.conversations := find(me, conversation);
BEGIN
  RETURN QUERY SELECT * FROM facts f WHERE f.tenant = c.tenant AND f.cid = c.cid
    AND (include_invalidated OR f.invalidated_at IS NULL) AND fits(c.tenant, c.cid, 'fact/' || f.id) ORDER BY f.fid;
END $$;

-- facts_where: the valid facts of the conversations that a recall looks at
CREATE OR REPLACE FUNCTION palaver_api.facts_where(who jsonb, conversation text DEFAULT NULL, owner text DEFAULT NULL)
RETURNS SETOF palaver.facts
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp
  SET plan_cache_mode = force_custom_plan AS $$
DECLARE me asker := enter(who, 'read');
BEGIN
  RETURN QUERY SELECT f.* FROM looked_at(me, conversation, owner) AS c
  JOIN facts f ON f.tenant = me.tenant AND f.cid = c.cid
  WHERE f.invalidated_at IS NULL AND fits(me.tenant, f.cid, 'fact/' || f.id) ORDER BY f.fid;
END $$;

-- put_facts: add facts that are not stored yet, mark those that they replace, and return the ids of the new ones.
-- `stored` is false, and nothing is stored, when the turns that were read have changed since
CREATE OR REPLACE FUNCTION palaver_api.put_facts(who jsonb, conversation text, new jsonb, replaced jsonb,
  revision bigint DEFAULT NULL)
RETURNS TABLE (stored boolean, added text[])
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'write');
  c palaver.conversations := open_thread(me, conversation);
  f palaver.facts;
  marked bigint;
  kept text[];  -- the facts that are replaced and are what the log says
  by_persons boolean;  -- corrections
BEGIN
  by_persons := NOT EXISTS (SELECT 1 FROM jsonb_array_elements(new) AS n (value) WHERE n.value ->> 'by' NOT LIKE 'person:%');
  stored := c.revision = coalesce(put_facts.revision, c.revision);
  added := '{}';
  IF stored THEN
    c.updated := tick(me, c);
    FOR f IN SELECT * FROM jsonb_populate_recordset(NULL::palaver.facts, new) LOOP
      PERFORM check_share('confidence', f.confidence), check_time('valid_from', f.valid_from),
        check_time('valid_to', coalesce(f.valid_to, 0)), check_time('learnt', coalesce(f.learnt, 0)),
        check_text('id', f.id, 512), check_text('by', f."by", 512), check_text('source_turn', f.source_turn, 512),
        check_text('subject', f.subject, 5000), check_text('predicate', f.predicate, 5000),
        check_text('object', f.object, 5000);
      CONTINUE WHEN EXISTS (SELECT 1 FROM facts o WHERE o.tenant = c.tenant AND o.cid = c.cid
        AND o.invalidated_at IS NULL AND o.subject = f.subject AND o.predicate = f.predicate AND o.object = f.object
        AND o.valid_to IS NOT DISTINCT FROM f.valid_to);
      INSERT INTO facts (tenant, cid, id, subject, predicate, object, source_turn, confidence, valid_from, by, created,
        valid_to, learnt)
      VALUES (c.tenant, c.cid, f.id, f.subject, f.predicate, f.object, f.source_turn, f.confidence, f.valid_from, f."by",
        c.updated, f.valid_to, f.learnt);
      added := array_append(added, f.id);
    END LOOP;
    kept := ARRAY(SELECT 'fact/' || (r.value ->> 0) FROM jsonb_array_elements(replaced) AS r (value)
      WHERE r.value ->> 1 = ANY (added) AND fits(c.tenant, c.cid, 'fact/' || (r.value ->> 0)));
    WITH pairs AS (
      SELECT r.value ->> 0 AS old, r.value ->> 1 AS "by" FROM jsonb_array_elements(replaced) AS r (value)
      WHERE r.value ->> 1 = ANY (added)
    ), done AS (
      UPDATE facts o SET invalidated_at = c.updated, invalidated_by = p."by", valid_to = (SELECT greatest(n.valid_from, o.valid_from) FROM facts n
        WHERE n.tenant = c.tenant AND n.cid = c.cid AND n.id = p."by")
      FROM pairs p
      WHERE o.tenant = c.tenant AND o.cid = c.cid AND o.id = p.old AND o.invalidated_at IS NULL)
    SELECT count(*) INTO marked FROM pairs;
    IF cardinality(added) > 0 THEN
      PERFORM count_facts(c, cardinality(added));
      PERFORM put_job(c.tenant, c.cid, 'embed', NULL, me.now),
        touch(c.cid, kept || ARRAY(SELECT 'fact/' || a FROM unnest(added) AS a));
      c := log(me, c, CASE WHEN by_persons THEN 'correct' ELSE 'extract_facts' END, payload => jsonb_build_object('new', cardinality(added), 'replaced', marked));
      PERFORM save(c);
    END IF;
  END IF;
  RETURN NEXT;
END $$;

CREATE OR REPLACE FUNCTION palaver_api.drop_fact(who jsonb, conversation text, id text) RETURNS TABLE (dropped boolean)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'write');
  c palaver.conversations := open_thread(me, conversation);
BEGIN
  DELETE FROM facts f WHERE f.tenant = c.tenant AND f.cid = c.cid AND f.id = drop_fact.id;
  dropped := FOUND;
  IF FOUND THEN
    PERFORM count_facts(c, -1);
    PERFORM revive(c, ARRAY[drop_fact.id]);
    c.updated := tick(me, c);
    c := log(me, c, 'forget_fact', payload => jsonb_build_object('fact', drop_fact.id));
    PERFORM save(c);
  END IF;
  RETURN NEXT;
END $$;
