-- Turns: append, replace, read, and switch between branches.

CREATE OR REPLACE FUNCTION palaver.files_of(attachments text) RETURNS text[]
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
  SELECT array_agg(ARRAY[file ->> 'filename', file ->> 'sha256'] ORDER BY n)
  FROM jsonb_array_elements(attachments::jsonb) WITH ORDINALITY AS x (file, n)
$$;

-- same_request: whether a retry sends what the first call sent; token counts, times and the ids of uploads may
-- differ
CREATE OR REPLACE FUNCTION palaver.same_request(draft palaver.turns, t palaver.turns) RETURNS boolean
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
  SELECT ROW(draft.role, draft.actor, draft.is_parts, draft.content, draft.tool_calls, draft.tool_results,
      draft.sources, draft.metadata, files_of(draft.attachments))
    IS NOT DISTINCT FROM ROW(t.role, t.actor, t.is_parts, coalesce(t.content, ''), t.tool_calls, t.tool_results,
      t.sources, t.metadata, files_of(t.attachments))
$$;

-- stored_before: the turn that an earlier attempt of the same call stored
CREATE OR REPLACE FUNCTION palaver.stored_before(tenant text, cid bigint, conversation text, draft palaver.turns)
RETURNS palaver.turns
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE t palaver.turns;
BEGIN
  SELECT * INTO t FROM turns o WHERE o.tenant = stored_before.tenant AND o.cid = stored_before.cid
    AND o.idempotency_key IN (draft.idempotency_key, key_hash(conversation, draft.idempotency_key));
  IF t.status = 'forgotten' THEN
    PERFORM fail('PV004', t.id);
  ELSIF t.id IS NOT NULL AND (ROW(draft.role, draft.actor) IS DISTINCT FROM ROW(t.role, t.actor)
      OR (draft.status = 'complete' AND NOT same_request(draft, t))) THEN
    PERFORM fail('PV012', t.id);
  END IF;
  RETURN t;
END $$;

-- stored_key: the idempotency key that is stored: its hash, where the draft says that it holds a secret (`hash_key`)
CREATE OR REPLACE FUNCTION palaver.stored_key(conversation text, key text, draft jsonb) RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
  RETURN CASE WHEN coalesce((draft ->> 'hash_key')::boolean, false) THEN palaver.key_hash(conversation, key) ELSE key END;

-- open_key: the idempotency key, if it is stored as it is
CREATE OR REPLACE FUNCTION palaver.open_key(key text, draft jsonb) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN CASE WHEN NOT coalesce((draft ->> 'hash_key')::boolean, false) THEN key END;

-- bind_files: attach files to a turn, which must not belong to another one, and enqueue the extraction of their text
CREATE OR REPLACE FUNCTION palaver.bind_files(t palaver.turns, now bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE file text;
BEGIN
  FOR file IN SELECT f ->> 'id' FROM jsonb_array_elements(t.attachments::jsonb) AS f LOOP
    UPDATE attachments a SET tid = t.tid
    WHERE a.tenant = t.tenant AND a.cid = t.cid AND a.id = file AND a.tid IS NULL;
    IF NOT FOUND THEN
      PERFORM fail('PV005', file);
    END IF;
  END LOOP;
  IF t.attachments IS NOT NULL AND t.role <> 'tool' THEN
    PERFORM put_job(t.tenant, t.cid, 'files', NULL, now);
  END IF;
END $$;

-- insert_turn: insert a row. Columns are named one by one because Citus looks for the tenant in the statement itself
CREATE OR REPLACE FUNCTION palaver.insert_turn(t palaver.turns) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  INSERT INTO turns (
    tid, cid, seq, position, created, token_count, active, is_parts, tenant, id, status, role, actor, parent, slot,
    superseded_by, content, tool_calls, tool_results, attachments, sources, prompt_tokens, completion_tokens, model,
    adapter, finish_reason, metadata, idempotency_key, preview, salt, content_hash)
  VALUES (
    t.tid, t.cid, t.seq, t.position, t.created, t.token_count, t.active, t.is_parts, t.tenant, t.id, t.status,
    t.role, t.actor, t.parent, t.slot, t.superseded_by, t.content, t.tool_calls, t.tool_results, t.attachments,
    t.sources, t.prompt_tokens, t.completion_tokens, t.model, t.adapter, t.finish_reason, t.metadata,
    t.idempotency_key, t.preview, t.salt, t.content_hash);
  IF t.metadata IS NOT NULL THEN
    PERFORM index_metadata(t.tenant, t.cid, t.tid, t.metadata);
  END IF;
END $$;

-- store_turn: insert one turn at its place, with its index entries, and return it. The caller logs the event
CREATE OR REPLACE FUNCTION palaver.store_turn(c palaver.conversations, draft palaver.turns, words jsonb)
RETURNS palaver.turns
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE t palaver.turns := draft;
BEGIN
  t.tenant := c.tenant;
  t.cid := c.cid;
  t.tid := new_tid();
  t.seq := c.next_seq;
  t.id := stamp(t.id, t.seq);
  t.active := 1;
  t.superseded_by := NULL;
  t.created := coalesce(t.created, c.updated);
  IF t.role <> 'user' OR t.status <> 'complete' THEN
    t.preview := NULL;
  END IF;
  t.content_hash := CASE WHEN t.status = 'complete' THEN turn_hash(t) END;
  PERFORM insert_turn(t);
  PERFORM bind_files(t, c.updated);
  IF t.status = 'complete' THEN
    PERFORM index_turn(t, words);
  END IF;
  RETURN t;
END $$;

-- added: the conversation's counters after one more turn, at its end or at another place
CREATE OR REPLACE FUNCTION palaver.added(c palaver.conversations, t palaver.turns) RETURNS palaver.conversations
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  c.next_seq := c.next_seq + 1;
  c.turn_count := c.turn_count + 1;
  c.token_count := c.token_count + t.token_count;
  IF t.position > c.tip_position THEN
    c.tip_position := t.position;
    c.tip_slot := coalesce(t.slot, t.id);
  END IF;
  c.preview := coalesce(c.preview, t.preview);
  RETURN c;
END $$;

-- save_appends: write the rows of conversations after appends to each of them, and enqueue the jobs of the new text. The
-- caller has locked them, so they are found by their places (`ats`): a look-up that costs the planner no choice. With no
-- statistics, after an import, it would read all conversations of the tenant; the limit makes it expect one row
CREATE OR REPLACE FUNCTION palaver.save_appends(me palaver.asker, ats tid[], seqs bigint[], numbers bigint[],
  tips bytea[], places bigint[], slots text[], clocks bigint[], turns bigint[], tokens bigint[], lines text[],
  passages bigint[], terms bigint[], embeds boolean[]) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp SET plan_cache_mode = force_generic_plan
  SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off AS $$
DECLARE
  cid bigint;
  embed boolean;
  due boolean;
  saved integer := 0;
BEGIN
  FOR cid, embed, due IN
    UPDATE conversations o SET next_seq = u.seq, next_n = u.number, tip_hash = u.tip, tip_position = u.place,
      tip_slot = u.slot, updated = u.clock, minute = u.clock / 60000000, turn_count = o.turn_count + u.turns,
      token_count = o.token_count + u.tokens, preview = u.line, expires_at = u.clock + o.ttl, to_embed = true,
      passage_count = o.passage_count + u.passages, passage_terms = o.passage_terms + u.terms
    FROM (SELECT * FROM unnest(ats, seqs, numbers, tips, places, slots, clocks, turns, tokens, lines, passages, terms,
        embeds) AS x (at, seq, number, tip, place, slot, clock, turns, tokens, line, passages, terms, embed)
      LIMIT cardinality(ats)) AS u
    WHERE o.tenant = me.tenant AND o.ctid = u.at
    RETURNING o.cid, u.embed, o.turn_count - o.summarized_turns >= o.compact_turns
      OR o.token_count - o.summarized_tokens >= o.compact_tokens
  LOOP
    saved := saved + 1;
    IF due OR embed THEN
      PERFORM work_made(me.tenant, cid, embed, due, me.now);
    END IF;
  END LOOP;
  IF saved <> cardinality(ats) THEN  -- never: their rows are locked
    RAISE serialization_failure;
  END IF;
  RETURN true;
END $$;

-- append_calls: append turns at the end of conversations. A call has a conversation, drafts, perhaps `expected_seq`, and
-- `who` where that differs from the scope of all, which has entered already. `drafts` are rows of `turns`, each with its
-- `words` (see `index_turn`); values that the caller has already are not sent back. This is the hot path: flat code with
-- scalars, because each statement and each call of another function costs as much as a small insert. Successive calls
-- for one conversation read and write its row once, and the turns of several calls are inserted by one statement per
-- table, where one caller may write them all: `collected` holds those that are not inserted yet. Such a caller's
-- conversations are also locked by one statement, and written by one (`together`)
CREATE OR REPLACE FUNCTION palaver.append_calls(me palaver.asker, who jsonb, calls jsonb) RETURNS SETOF palaver.turns
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp
  SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
  asking jsonb := who;
  call jsonb;
  next jsonb;
  again boolean := false;   -- the next call is for the same conversation, by the same caller
  joined boolean := false;  -- the turns of the next call may be inserted together with these
  collect boolean;
  conversation text;
  expected_seq bigint;
  drafts jsonb;
  draft jsonb;
  words jsonb;
  t palaver.turns;
  plain boolean;  -- without tools, files, sources, a key and metadata
  before palaver.turns;
  said text;
  due boolean;
  to_embed boolean;
  gone bigint;
  ends bigint;
  settings text;
  cid bigint;
  begun bigint;
  first bigint;
  seq bigint;
  number bigint;
  place bigint;
  above text;
  clock bigint;
  tip bytea;
  line text;
  tokens bigint;
  passages_added bigint;
  terms_added bigint;
  watched boolean;
  collected palaver.turns[];  -- NULL: none, because an empty array costs more
  collected_passages palaver.passages[];
  collected_events palaver.events[];
  keys text[];  -- idempotency keys of this call, and of collected turns
  together boolean := false;
  done boolean;  -- of no interest: an assignment, because PERFORM would run a query
  locked CURSOR (tenant text, ids text[]) FOR
    SELECT c.* FROM unnest(locked.ids) AS u (id), LATERAL (
      SELECT o.ctid, o.id, o.cid, o.next_seq, o.next_n, o.tip_position, o.tip_slot, o.updated, o.tip_hash, o.preview,
        o.to_embed, o.gone, o.expires_at, o.settings
      FROM conversations o WHERE o.tenant = locked.tenant AND o.id = u.id FOR NO KEY UPDATE) AS c;
  at tid;
  id text;
  ats tid[]; seqs bigint[]; numbers bigint[]; tips bytea[]; places bigint[]; slots text[]; clocks bigint[];
  turns_added bigint[]; tokens_added bigint[]; lines text[]; passages_of bigint[]; terms_of bigint[]; embeds boolean[];
BEGIN
  IF calls -> 0 ->> 'conversation' <> calls -> -1 ->> 'conversation' AND me.sight = 'tenant' AND NOT is_distributed()
      AND NOT jsonb_path_exists(calls, '$[*].who') THEN
    together := true;
    OPEN locked (me.tenant, ARRAY(  -- in the order in which the library sorts calls
      SELECT DISTINCT (x ->> 'conversation') COLLATE "C" FROM jsonb_array_elements(calls) AS x ORDER BY 1));
  END IF;
  FOR n IN 0 .. jsonb_array_length(calls) LOOP  -- the last time without a call
    call := coalesce(next, calls -> n);
    next := calls -> (n + 1);
    drafts := call -> 'drafts';
    IF collected IS NOT NULL AND (NOT joined OR keys IS NOT NULL AND CASE jsonb_typeof(drafts) WHEN 'array'
        THEN jsonb_array_length(drafts) > 1 OR drafts -> 0 ->> 'idempotency_key' = ANY (keys) ELSE true END) THEN
      INSERT INTO turns SELECT * FROM unnest(collected);
      INSERT INTO passages (tenant, cid, tid, part, size, terms)
      SELECT p.tenant, p.cid, p.tid, p.part, p.size, p.terms FROM unnest(collected_passages) AS p;
      INSERT INTO events SELECT * FROM unnest(collected_events);
      FOREACH t IN ARRAY collected LOOP
        IF t.attachments IS NOT NULL THEN
          PERFORM bind_files(t, me.now);
        END IF;
      END LOOP;
      collected := NULL; collected_passages := NULL; collected_events := NULL;
    END IF;
    IF collected IS NULL THEN
      keys := NULL;
    END IF;
    IF call IS NULL THEN
      IF ats IS NOT NULL THEN
        done := save_appends(me, ats, seqs, numbers, tips, places, slots, clocks, turns_added, tokens_added, lines,
          passages_of, terms_of, embeds);
      END IF;
      IF together THEN
        CLOSE locked;  -- the transaction may append again
      END IF;
      EXIT;
    END IF;
    IF asking IS DISTINCT FROM coalesce(call -> 'who', who) THEN
      asking := coalesce(call -> 'who', who);
      me := enter(asking, 'write');
    END IF;
    conversation := call ->> 'conversation';
    expected_seq := (call ->> 'expected_seq')::bigint;
    IF together AND NOT again THEN
      FETCH locked INTO at, id, cid, begun, number, place, above, clock, tip, line, to_embed, gone, ends, settings;
      IF NOT FOUND OR id IS DISTINCT FROM conversation THEN  -- there is none, or the calls are in another order
        CLOSE locked;
        together := false;
        IF ats IS NOT NULL THEN
          done := save_appends(me, ats, seqs, numbers, tips, places, slots, clocks, turns_added, tokens_added, lines,
            passages_of, terms_of, embeds);
          ats := NULL;
        END IF;
      END IF;
    END IF;
    IF NOT again THEN
      IF NOT together THEN
        SELECT o.cid, o.next_seq, o.next_n, o.tip_position, o.tip_slot, o.updated, o.tip_hash, o.preview, o.to_embed,
          o.gone, o.expires_at, o.settings
        INTO cid, begun, number, place, above, clock, tip, line, to_embed, gone, ends, settings
        FROM conversations o WHERE o.tenant = me.tenant AND o.id = conversation FOR NO KEY UPDATE;
      END IF;
      IF NOT FOUND OR gone IS NOT NULL OR ends <= me.now THEN
        PERFORM missing(me, conversation);
      END IF;
      IF me.sight <> 'tenant' THEN
        said := set_config('palaver.cid', cid::text, true);  -- an assignment, because PERFORM would run a query
      END IF;
      watched := settings IS NOT NULL AND is_watched(settings);
      seq := begun;
      tokens := 0;
      passages_added := 0;
      terms_added := 0;
    END IF;
    IF (CASE jsonb_typeof(drafts) WHEN 'array' THEN jsonb_array_length(drafts) <= 1000 END) IS NOT TRUE THEN
      PERFORM check_drafts(drafts);
    END IF;
    again := coalesce(next ->> 'conversation' = conversation AND next -> 'who' IS NOT DISTINCT FROM call -> 'who', false);
    joined := again OR next IS NOT NULL AND me.sight = 'tenant' AND next -> 'who' IS NOT DISTINCT FROM call -> 'who';
    -- A query costs more than the values of one row. Citus would copy its rows, which row level security rejects.
    collect := (joined OR collected IS NOT NULL OR jsonb_array_length(drafts) > 1) AND NOT is_distributed();
    first := seq;
    FOR i IN 0 .. jsonb_array_length(drafts) - 1 LOOP
      draft := drafts -> i;
      t := jsonb_populate_record(NULL::palaver.turns, draft);
      t.status := 'complete';
      plain := COALESCE(t.tool_calls, t.tool_results, t.attachments, t.sources, t.model, t.adapter, t.finish_reason,
        t.idempotency_key, t.metadata) IS NULL AND COALESCE(t.prompt_tokens, t.completion_tokens) IS NULL;
      IF (plain AND is_plain(t.role, t.id, t.salt, t.is_parts, t.content, t.actor, t.token_count, t.created, t.preview,
          me."user", me.rights)) IS NOT TRUE THEN
        PERFORM check_draft(me, t);
      END IF;
      IF watched THEN
        PERFORM check_speaker(me.tenant, cid, t.actor), check_redacted(t.content, t.is_parts, t.tool_calls,
          t.tool_results, t.sources, t.metadata, t.attachments, open_key(t.idempotency_key, draft));
      END IF;
      IF t.idempotency_key IS NOT NULL THEN
        IF t.idempotency_key = ANY (keys) THEN
          PERFORM fail('PV031', 'idempotency_key', 'must be different for each turn of a batch');
        END IF;
        before := stored_before(me.tenant, cid, conversation, t);
        IF before.id IS NOT NULL THEN
          RETURN NEXT before;
          CONTINUE;
        END IF;
        keys := array_append(keys, t.idempotency_key);
        t.idempotency_key := stored_key(conversation, t.idempotency_key, draft);
      END IF;
      IF expected_seq <> first THEN
        PERFORM fail('PV011', expected_seq::text, first::text);
      END IF;
      clock := next_time(me.now, clock);
      place := place + 1;
      t.tenant := me.tenant;
      t.cid := cid;
      t.tid := new_tid();
      t.seq := seq;
      t.id := stamp(t.id, seq);
      t.position := place;
      t.parent := above;
      t.slot := NULL;
      t.active := 1;
      t.superseded_by := NULL;
      t.created := coalesce(t.created, clock);
      IF t.role <> 'user' THEN
        t.preview := NULL;
      END IF;
      t.content_hash := turn_hash(t);
      IF collect THEN
        collected := array_append(collected, t);
      ELSE
        INSERT INTO turns (
          tid, cid, seq, position, created, token_count, active, is_parts, tenant, id, status, role, actor, parent, slot,
          superseded_by, content, tool_calls, tool_results, attachments, sources, prompt_tokens, completion_tokens,
          model, adapter, finish_reason, metadata, idempotency_key, preview, salt, content_hash)
        VALUES (
          t.tid, t.cid, t.seq, t.position, t.created, t.token_count, t.active, t.is_parts, t.tenant, t.id, t.status,
          t.role, t.actor, t.parent, t.slot, t.superseded_by, t.content, t.tool_calls, t.tool_results, t.attachments,
          t.sources, t.prompt_tokens, t.completion_tokens, t.model, t.adapter, t.finish_reason, t.metadata,
          t.idempotency_key, t.preview, t.salt, t.content_hash);
        IF t.attachments IS NOT NULL THEN
          PERFORM bind_files(t, me.now);
        END IF;
      END IF;
      IF NOT plain AND t.metadata IS NOT NULL THEN
        PERFORM index_metadata(t.tenant, t.cid, t.tid, t.metadata);
      END IF;
      words := draft -> 'words';
      IF (CASE jsonb_typeof(words) WHEN 'array' THEN jsonb_array_length(words) = 1 AND words -> 0 ->> 0 ~ '^[0-9]{1,7}$'
          AND jsonb_typeof(words -> 0 -> 1) = 'string' END) THEN  -- most turns
        terms_added := terms_added + (words -> 0 ->> 0)::bigint;
      ELSE
        terms_added := terms_added + check_words(words);
      END IF;
      FOR part IN 0 .. jsonb_array_length(words) - 1 LOOP
        IF collect THEN
          collected_passages := array_append(collected_passages, ROW(t.tenant, NULL, t.cid, t.tid, part,
            (words -> part ->> 0)::integer, (words -> part ->> 1)::tsvector)::palaver.passages);
        ELSE
          INSERT INTO passages (tenant, cid, tid, part, size, terms)
          VALUES (t.tenant, t.cid, t.tid, part, (words -> part ->> 0)::integer, (words -> part ->> 1)::tsvector);
        END IF;
      END LOOP;
      said := CASE WHEN t.actor <> me."user" THEN jsonb_build_object('by', me."user")::text END;
      tip := event_hash(tip, number, 'append', t.id, t.actor, clock, said, t.content_hash);
      IF collect THEN
        collected_events := array_append(collected_events, ROW(t.tenant, t.cid, number, 'append', t.id, t.actor, clock,
          said, t.content_hash, tip)::palaver.events);
      ELSE
        INSERT INTO events (tenant, cid, n, kind, turn, actor, at, payload, content_hash, hash)
        VALUES (t.tenant, t.cid, number, 'append', t.id, t.actor, clock, said, t.content_hash, tip);
      END IF;
      seq := seq + 1;
      number := number + 1;
      above := t.id;
      line := coalesce(line, t.preview);
      tokens := tokens + t.token_count;
      passages_added := passages_added + jsonb_array_length(words);
      t.content := NULL;
      IF NOT plain THEN
        t.tool_calls := NULL; t.tool_results := NULL; t.attachments := NULL; t.sources := NULL; t.metadata := NULL;
      END IF;
      RETURN NEXT t;
    END LOOP;
    CONTINUE WHEN again OR seq = begun;
    IF together THEN
      ats := array_append(ats, at);
      seqs := array_append(seqs, seq);
      numbers := array_append(numbers, number);
      tips := array_append(tips, tip);
      places := array_append(places, place);
      slots := array_append(slots, above);
      clocks := array_append(clocks, clock);
      turns_added := array_append(turns_added, seq - begun);
      tokens_added := array_append(tokens_added, tokens);
      lines := array_append(lines, line);
      passages_of := array_append(passages_of, passages_added);
      terms_of := array_append(terms_of, terms_added);
      embeds := array_append(embeds, NOT to_embed);
      CONTINUE;
    END IF;
    UPDATE conversations o SET next_seq = seq, next_n = number, tip_hash = tip, tip_position = place, tip_slot = above,
      updated = clock, minute = clock / 60000000, turn_count = o.turn_count + (seq - begun),
      token_count = o.token_count + tokens, preview = line, expires_at = clock + o.ttl,
      to_embed = true, passage_count = o.passage_count + passages_added, passage_terms = o.passage_terms + terms_added
    WHERE o.tenant = me.tenant AND o.id = conversation
    RETURNING o.turn_count - o.summarized_turns >= o.compact_turns
      OR o.token_count - o.summarized_tokens >= o.compact_tokens INTO due;
    IF due OR NOT to_embed THEN
      PERFORM work_made(me.tenant, cid, NOT to_embed, due, me.now);
    END IF;
  END LOOP;
END $$;

-- append: append turns at the end, or replace one
CREATE OR REPLACE FUNCTION palaver_api.append(who jsonb, conversation text, drafts jsonb,
  expected_seq bigint DEFAULT NULL, replaces text DEFAULT NULL, discard_after boolean DEFAULT false)
RETURNS SETOF palaver.turns
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE me asker := enter(who, 'write');
BEGIN
  IF replaces IS NULL THEN
    RETURN QUERY SELECT * FROM append_calls(me, who, jsonb_build_array(jsonb_build_object(
      'conversation', conversation, 'drafts', drafts, 'expected_seq', expected_seq)));
  ELSE
    RETURN NEXT append_replacing(me, conversation, drafts -> 0, expected_seq, replaces, discard_after);
  END IF;
END $$;

-- append_together: several calls of `append` in one transaction, each with its conversation and drafts, and with its
-- own scope where that differs from `who`. Lock waits are short: after a timeout the caller retries each append
-- alone
CREATE OR REPLACE FUNCTION palaver_api.append_together(who jsonb, calls jsonb) RETURNS SETOF palaver.turns
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp SET lock_timeout = '20ms' AS $$
DECLARE me asker := enter(who, 'write');
BEGIN
  RETURN QUERY SELECT * FROM append_calls(me, who, calls);
END $$;

-- work_made: enqueue the jobs that new text needs. A `compact` job that waits already is only locked, so that no worker
-- takes it before this turn is committed: a long conversation would otherwise write its row again with each turn
CREATE OR REPLACE FUNCTION palaver.work_made(tenant text, cid bigint, embed boolean, due boolean, now bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  IF embed THEN
    PERFORM put_job(tenant, cid, 'embed', NULL, now);
  END IF;
  IF due THEN
    PERFORM 1 FROM jobs j WHERE j.tenant = work_made.tenant AND j.cid = work_made.cid AND j.kind = 'compact'
      AND j.dead = 0 AND j.lease_until = 0 FOR SHARE;
    IF NOT FOUND THEN
      PERFORM put_job(tenant, cid, 'compact', NULL, now);
    END IF;
  END IF;
END $$;

-- append_replacing: store a new version of a turn
CREATE OR REPLACE FUNCTION palaver.append_replacing(me palaver.asker, conversation text, draft jsonb,
  expected_seq bigint, replaces text, discard_after boolean) RETURNS palaver.turns
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  c palaver.conversations := open_thread(me, conversation);
  t palaver.turns := jsonb_populate_record(NULL::palaver.turns, draft);
  terms bigint := check_words(draft -> 'words');
  before palaver.turns;
BEGIN
  t.status := 'complete';
  PERFORM check_draft(me, t);
  IF is_watched(c.settings) THEN
    PERFORM check_speaker(c.tenant, c.cid, t.actor), check_redacted(t.content, t.is_parts, t.tool_calls,
      t.tool_results, t.sources, t.metadata, t.attachments, open_key(t.idempotency_key, draft));
  END IF;
  IF t.idempotency_key IS NOT NULL THEN
    before := stored_before(c.tenant, c.cid, c.id, t);
    IF before.id IS NOT NULL THEN
      RETURN before;
    END IF;
    t.idempotency_key := stored_key(c.id, t.idempotency_key, draft);
  END IF;
  IF expected_seq <> c.next_seq THEN
    PERFORM fail('PV011', expected_seq::text, c.next_seq::text);
  END IF;
  c := replace_turn(me, c, t, draft -> 'words', replaces, discard_after);
  PERFORM save_appended(c, jsonb_array_length(draft -> 'words'), terms, me.now);
  SELECT * INTO t FROM turns o WHERE o.tenant = c.tenant AND o.cid = c.cid AND o.seq = c.next_seq - 1;
  RETURN t;
END $$;

-- save_appended: like `save`, and also count the new passages and enqueue jobs
CREATE OR REPLACE FUNCTION palaver.save_appended(c palaver.conversations, passages bigint, terms bigint, now bigint)
RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE due boolean;
BEGIN
  UPDATE conversations o SET next_seq = c.next_seq, next_n = c.next_n, tip_hash = c.tip_hash,
    tip_position = c.tip_position, tip_slot = c.tip_slot, updated = c.updated, minute = c.updated / 60000000,
    turn_count = c.turn_count, token_count = c.token_count, preview = c.preview, expires_at = c.updated + c.ttl,
    passage_count = o.passage_count + save_appended.passages, passage_terms = o.passage_terms + terms
  WHERE o.tenant = c.tenant AND o.cid = c.cid
  RETURNING o.turn_count - o.summarized_turns >= o.compact_turns
    OR o.token_count - o.summarized_tokens >= o.compact_tokens INTO due;
  PERFORM work_made(c.tenant, c.cid, true, due, now);
END $$;

-- ---- replacing ------------------------------------------------------------------------------------------------------

-- replace_turn: store a new version of a turn at its place; with `discard_after`, also in place of every turn after
-- it
CREATE OR REPLACE FUNCTION palaver.replace_turn(me palaver.asker, c palaver.conversations, draft palaver.turns,
  words jsonb, replaces text, discard_after boolean) RETURNS palaver.conversations
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  old palaver.turns := kept_turn(c, replaces);
  loser palaver.turns;
  new_id text := stamp(draft.id, c.next_seq);
  t palaver.turns;
BEGIN
  IF old.active = 0 AND (old.status <> 'aborted' OR old.superseded_by <> old.id) THEN
    PERFORM fail('PV013', old.id, old.superseded_by);
  END IF;
  PERFORM check_place(c, old, discard_after);
  IF discard_after THEN
    PERFORM cut(c, old.position);
  ELSE
    PERFORM changed(me, c, old);
  END IF;
  FOR loser IN SELECT * FROM turns o WHERE o.tenant = c.tenant AND o.cid = c.cid AND o.active = 1
      AND (o.tid = old.tid OR (discard_after AND o.position >= old.position)) ORDER BY o.position LOOP
    IF loser.status = 'pending' THEN
      c := abort_turn(me, c, loser);
    ELSE
      c := shelve(c, loser.seq, new_id);
    END IF;
  END LOOP;
  PERFORM unlearn(c.cid, ARRAY[old.id]);
  IF old.status IN ('aborted', 'pending') THEN
    UPDATE turns o SET superseded_by = new_id WHERE o.tenant = old.tenant AND o.tid = old.tid;
  END IF;
  draft.position := old.position;
  draft.parent := old.parent;
  draft.slot := CASE WHEN NOT discard_after THEN coalesce(old.slot, old.id) END;
  c.updated := tick(me, c);
  t := store_turn(c, draft, words);
  c := find_tip(added(c, t));
  IF discard_after THEN
    PERFORM prune(me, c, old.position);
  END IF;
  c := log(me, c, CASE t.status WHEN 'complete' THEN 'append' ELSE 'open' END, t.actor, t.id,
    jsonb_build_object('replaces', replaces) || CASE WHEN discard_after THEN '{"discard_after": true}' ELSE '{}' END::jsonb,
    turn_hash(t));
  RETURN refresh_preview(c);
END $$;

-- check_place: fail when the place of an aborted turn has been taken since, or lies on another branch
CREATE OR REPLACE FUNCTION palaver.check_place(c palaver.conversations, old palaver.turns, discard_after boolean)
RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  rival text;
  above text := old.parent;
  first palaver.turns;
BEGIN
  IF old.active = 1 THEN
    RETURN;
  END IF;
  WHILE above IS NOT NULL LOOP
    first := turn_of(c, above);  -- a slot has the id of its first version
    EXIT WHEN EXISTS (SELECT 1 FROM turns t WHERE t.tenant = c.tenant AND t.cid = c.cid AND t.active = 1
      AND t.position = first.position AND coalesce(t.slot, t.id) = above);
    SELECT t.id INTO rival FROM turns t
    WHERE t.tenant = c.tenant AND t.cid = c.cid AND t.active = 1 AND t.position = first.position;
    EXIT WHEN rival IS NOT NULL;
    above := first.parent;
  END LOOP;
  IF rival IS NULL AND NOT discard_after THEN
    SELECT t.id INTO rival FROM turns t
    WHERE t.tenant = c.tenant AND t.cid = c.cid AND t.active = 1 AND t.position = old.position;
  END IF;
  IF rival IS NOT NULL THEN
    PERFORM fail('PV013', old.id, rival);
  END IF;
END $$;

-- shelve: take a turn out of the active branch, in favour of another one
CREATE OR REPLACE FUNCTION palaver.shelve(c palaver.conversations, turn_seq bigint, by text)
RETURNS palaver.conversations
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE weight bigint;
BEGIN
  UPDATE turns t SET active = 0, superseded_by = by
  WHERE t.tenant = c.tenant AND t.cid = c.cid AND t.seq = turn_seq AND t.active = 1 RETURNING t.token_count INTO weight;
  IF FOUND THEN
    c.turn_count := c.turn_count - 1;
    c.token_count := c.token_count - weight;
  END IF;
  RETURN c;
END $$;

-- abort_turn: end a pending turn as aborted; its text is kept, outside the active branch
CREATE OR REPLACE FUNCTION palaver.abort_turn(me palaver.asker, c palaver.conversations, t palaver.turns)
RETURNS palaver.conversations
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE hash bytea := turn_hash(t);
BEGIN
  DELETE FROM streams s WHERE s.tenant = t.tenant AND s.tid = t.tid;
  UPDATE turns o SET status = 'aborted', active = 0, content_hash = hash,
    superseded_by = CASE WHEN o.active = 1 THEN o.id ELSE o.superseded_by END
  WHERE o.tenant = t.tenant AND o.tid = t.tid;
  c.updated := tick(me, c);
  c := log(me, c, 'abort', t.actor, t.id, NULL, hash);
  IF t.active = 1 THEN
    c.turn_count := c.turn_count - 1;
    c.token_count := c.token_count - t.token_count;
    c := find_tip(c);
  END IF;
  RETURN c;
END $$;

-- ---- reading --------------------------------------------------------------------------------------------------------

-- cursor_of: the place of a turn: its position in the active branch, or its seq among all turns
CREATE OR REPLACE FUNCTION palaver.cursor_of(c palaver.conversations, id text, whole boolean) RETURNS bigint
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE t palaver.turns := turn_of(c, id);
BEGIN
  RETURN CASE WHEN whole THEN t.seq ELSE t.position END;
END $$;

-- history: the latest turns before a cursor, or the next ones after it, in reading order
CREATE OR REPLACE FUNCTION palaver_api.history(who jsonb, conversation text, most integer, before text DEFAULT NULL,
  after text DEFAULT NULL, since bigint DEFAULT NULL, until bigint DEFAULT NULL, whole boolean DEFAULT false,
  actors text[] DEFAULT NULL, roles text[] DEFAULT NULL) RETURNS SETOF palaver.turns
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'read');
  c palaver.conversations := find(me, conversation);
  last bigint := coalesce(CASE WHEN before IS NOT NULL THEN cursor_of(c, before, whole) END, 9223372036854775807);
  first bigint := coalesce(CASE WHEN after IS NOT NULL THEN cursor_of(c, after, whole) END, -1);
BEGIN
  IF whole AND after IS NOT NULL AND before IS NULL THEN
    RETURN QUERY SELECT t.* FROM turns t WHERE t.tenant = c.tenant AND t.cid = c.cid AND t.seq > first
      AND t.status <> 'forgotten' AND (since IS NULL OR t.created >= since) AND (until IS NULL OR t.created < until)
      AND (roles IS NULL OR t.role = ANY (roles)) AND (actors IS NULL OR t.actor = ANY (actors))
      ORDER BY t.seq LIMIT most;
  ELSIF whole THEN
    RETURN QUERY SELECT * FROM (SELECT t.* FROM turns t WHERE t.tenant = c.tenant AND t.cid = c.cid AND t.seq > first
      AND t.seq < last AND t.status <> 'forgotten' AND (since IS NULL OR t.created >= since)
      AND (until IS NULL OR t.created < until)
      AND (roles IS NULL OR t.role = ANY (roles)) AND (actors IS NULL OR t.actor = ANY (actors))
      ORDER BY t.seq DESC LIMIT most) AS latest ORDER BY latest.seq;
  ELSIF after IS NOT NULL AND before IS NULL THEN
    RETURN QUERY SELECT t.* FROM turns t WHERE t.tenant = c.tenant AND t.cid = c.cid AND t.active = 1
      AND t.position > first AND (since IS NULL OR t.created >= since) AND (until IS NULL OR t.created < until)
      AND (roles IS NULL OR t.role = ANY (roles)) AND (actors IS NULL OR t.actor = ANY (actors))
      ORDER BY t.position LIMIT most;
  ELSE
    RETURN QUERY SELECT * FROM (SELECT t.* FROM turns t WHERE t.tenant = c.tenant AND t.cid = c.cid AND t.active = 1
      AND t.position > first AND t.position < last AND (since IS NULL OR t.created >= since)
      AND (until IS NULL OR t.created < until)
      AND (roles IS NULL OR t.role = ANY (roles)) AND (actors IS NULL OR t.actor = ANY (actors))
      ORDER BY t.position DESC LIMIT most) AS latest ORDER BY latest.position;
  END IF;
END $$;

CREATE OR REPLACE FUNCTION palaver_api.turn(who jsonb, conversation text, turn text) RETURNS SETOF palaver.turns
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  RETURN NEXT kept_turn(find(enter(who, 'read'), conversation), turn);
END $$;

-- ---- branches -------------------------------------------------------------------------------------------------------

-- branches: all versions at the places that have inactive ones, or at the place of one turn
CREATE OR REPLACE FUNCTION palaver_api.branches(who jsonb, conversation text, turn text DEFAULT NULL)
RETURNS SETOF palaver.turns
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'read');
  c palaver.conversations := find(me, conversation);
  here palaver.turns;
BEGIN
  IF turn IS NOT NULL THEN
    here := turn_of(c, turn);
    RETURN QUERY SELECT t.* FROM turns t WHERE t.tenant = c.tenant AND t.cid = c.cid AND t.position = here.position
      AND t.active IN (0, 1) AND t.parent IS NOT DISTINCT FROM here.parent AND t.status IN ('complete', 'pending')
      ORDER BY t.seq;
    RETURN;
  END IF;
  RETURN QUERY SELECT t.* FROM turns t WHERE t.tenant = c.tenant AND t.cid = c.cid
    AND t.status IN ('complete', 'pending') AND (t.position, coalesce(t.parent, '')) IN (
      SELECT o.position, coalesce(o.parent, '') FROM turns o WHERE o.tenant = c.tenant AND o.cid = c.cid
        AND o.active = 0 AND o.status IN ('complete', 'pending'))
    ORDER BY t.position, t.parent NULLS FIRST, t.seq;
END $$;

-- version_of: the active version of a slot, or the one that was active last; `place` is the slot's position
CREATE OR REPLACE FUNCTION palaver.version_of(c palaver.conversations, place bigint, wanted_slot text)
RETURNS palaver.turns
LANGUAGE sql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
  WITH versions AS (
    SELECT t.* FROM turns t WHERE t.tenant = c.tenant AND t.cid = c.cid AND t.position = place AND t.active IN (0, 1)
      AND coalesce(t.slot, t.id) = wanted_slot AND (t.active = 1 OR t.status IN ('complete', 'pending'))
  ) SELECT v.*::palaver.turns FROM versions v
    ORDER BY v.active DESC, coalesce(v.superseded_by IN (SELECT id FROM versions), false), v.seq DESC LIMIT 1
$$;

-- next_slot: the slot below another that is on the active path, or was last
CREATE OR REPLACE FUNCTION palaver.next_slot(c palaver.conversations, place bigint, above text) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
  WITH siblings AS (
    SELECT t.*, t.active = 1 OR t.status IN ('complete', 'pending') AS usable FROM turns t
    WHERE t.tenant = c.tenant AND t.cid = c.cid AND t.position = place AND t.active IN (0, 1) AND t.parent = above
  ) SELECT coalesce(s.slot, s.id) FROM siblings s
    ORDER BY s.usable DESC, s.active DESC,
      s.usable AND coalesce(s.superseded_by IN (SELECT id FROM siblings), false), s.seq DESC LIMIT 1
$$;

-- path_through: the turns of the path through `target`, from the place where it leaves the active path (see
-- core/branches.py). A slot without any version left is skipped: it still connects to the one above it
CREATE OR REPLACE FUNCTION palaver.path_through(c palaver.conversations, target palaver.turns)
RETURNS TABLE (divergence bigint, path bigint[])
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  at_slot text := target.parent;
  first palaver.turns;
  version palaver.turns;
  place bigint;
BEGIN
  divergence := target.position;
  path := ARRAY[target.seq];
  WHILE at_slot IS NOT NULL LOOP
    first := turn_of(c, at_slot);  -- a slot has the id of its first version
    EXIT WHEN EXISTS (SELECT 1 FROM turns t WHERE t.tenant = c.tenant AND t.cid = c.cid AND t.active = 1
        AND t.position = first.position AND coalesce(t.slot, t.id) = at_slot)
      OR EXISTS (SELECT 1 FROM turns t WHERE t.tenant = c.tenant AND t.cid = c.cid AND t.active = 1
        AND t.position = first.position + 1 AND t.parent = at_slot);
    version := version_of(c, first.position, at_slot);
    IF version.id IS NOT NULL THEN
      path := version.seq || path;
    END IF;
    divergence := first.position;
    at_slot := first.parent;
  END LOOP;
  at_slot := coalesce(target.slot, target.id);
  place := target.position;
  LOOP
    place := place + 1;
    at_slot := next_slot(c, place, at_slot);
    EXIT WHEN at_slot IS NULL;
    version := version_of(c, place, at_slot);
    IF version.id IS NOT NULL THEN
      path := path || version.seq;
    END IF;
  END LOOP;
  RETURN NEXT;
END $$;

-- switch: make the active path lead through a turn
CREATE OR REPLACE FUNCTION palaver_api.switch(who jsonb, conversation text, turn text) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'write');
  c palaver.conversations := open_thread(me, conversation);
  target palaver.turns := kept_turn(c, turn);
  way record;
BEGIN
  IF target.active = 1 THEN
    RETURN false;
  ELSIF target.status = 'aborted' THEN
    PERFORM fail('PV013', turn, NULL);
  END IF;
  SELECT * INTO way FROM path_through(c, target);
  PERFORM cut(c, way.divergence);
  -- Inactive siblings that no sibling has superseded so far are superseded by those that become active now.
  UPDATE turns r SET superseded_by = n.id FROM turns n
  WHERE n.tenant = c.tenant AND n.cid = c.cid AND n.seq = ANY (way.path) AND n.active = 0
    AND r.tenant = c.tenant AND r.cid = c.cid AND r.position = n.position AND r.parent IS NOT DISTINCT FROM n.parent
    AND r.active = 0 AND r.seq <> n.seq AND r.status IN ('complete', 'pending')
    AND NOT EXISTS (SELECT 1 FROM turns s WHERE s.tenant = c.tenant AND s.cid = c.cid AND s.position = r.position
      AND s.active IN (0, 1) AND s.parent IS NOT DISTINCT FROM r.parent AND s.id = r.superseded_by);
  WITH off AS (
    UPDATE turns t SET active = 0, superseded_by = (SELECT f.id FROM turns f
      WHERE f.tenant = c.tenant AND f.cid = c.cid AND f.seq = way.path[1])
    WHERE t.tenant = c.tenant AND t.cid = c.cid AND t.active = 1 AND t.position >= way.divergence
      AND t.seq <> ALL (way.path) RETURNING t.token_count
  ) SELECT c.turn_count - count(*), c.token_count - coalesce(sum(off.token_count), 0)
    INTO c.turn_count, c.token_count FROM off;
  WITH back AS (
    UPDATE turns t SET active = 1, superseded_by = NULL
    WHERE t.tenant = c.tenant AND t.cid = c.cid AND t.active = 0 AND t.seq = ANY (way.path) RETURNING t.token_count
  ) SELECT c.turn_count + count(*), c.token_count + coalesce(sum(back.token_count), 0)
    INTO c.turn_count, c.token_count FROM back;
  c := find_tip(c);
  PERFORM prune(me, c, way.divergence);
  c.updated := tick(me, c);
  c := refresh_preview(log(me, c, 'switch', NULL, turn));
  PERFORM save(c);
  RETURN true;
END $$;
