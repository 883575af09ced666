-- Budgets, what was used of them, and leases. For the application itself, whatever rights its caller has; a policy enforces
-- that, too. A user with a token cannot reach them.

-- budgets: the limits that a tenant's users and keys have in place of the defaults
CREATE OR REPLACE FUNCTION palaver_api.budgets(who jsonb) RETURNS TABLE (kind text, name text, limits text)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE me asker := enter(who, 'admin');
BEGIN
  RETURN QUERY SELECT b.kind, b.name, b.limits FROM budgets b WHERE b.tenant = me.tenant ORDER BY b.kind, b.name;
END $$;

-- put_budget: set the limits of a tenant, user or key; without limits, return to the defaults
CREATE OR REPLACE FUNCTION palaver_api.put_budget(who jsonb, kind text, name text, limits text DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE me asker := enter(who, 'admin');
BEGIN
  DELETE FROM budgets b WHERE b.tenant = me.tenant AND b.kind = put_budget.kind AND b.name = put_budget.name;
  IF put_budget.limits IS NOT NULL THEN
    INSERT INTO budgets AS b (tenant, kind, name, limits)
    VALUES (me.tenant, put_budget.kind, put_budget.name, put_budget.limits)
    ON CONFLICT ON CONSTRAINT budgets_pkey DO UPDATE SET limits = excluded.limits;
  END IF;
END $$;

-- spend: count charges, all of them or none. Returns the first account that would go over a limit. The accounts are locked in
-- one order, so that calls wait for each other and never block each other
CREATE OR REPLACE FUNCTION palaver_api.spend(who jsonb, charges jsonb)
RETURNS TABLE (over_kind text, over_name text, over_period text, measure text, used bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'admin');
  one jsonb;
  found jsonb;
  added bigint;
BEGIN
  FOR one IN SELECT c.value FROM jsonb_array_elements(charges) c
      ORDER BY c.value ->> 'kind', c.value ->> 'name', c.value ->> 'period' LOOP
    INSERT INTO budget_use (tenant, kind, name, period)
    VALUES (me.tenant, one ->> 'kind', one ->> 'name', one ->> 'period') ON CONFLICT DO NOTHING;
    SELECT to_jsonb(b) INTO found FROM budget_use b WHERE b.tenant = me.tenant AND b.kind = one ->> 'kind'
      AND b.name = one ->> 'name' AND b.period = one ->> 'period' FOR UPDATE;
    FOREACH measure IN ARRAY ARRAY['requests', 'tokens', 'dollars', 'bytes', 'conversations'] LOOP
      used := (found ->> measure)::bigint;
      added := (one -> 'amounts' ->> measure)::bigint;
      IF added > 0 AND used + added > (one -> 'limits' ->> measure)::bigint THEN
        over_kind := one ->> 'kind';
        over_name := one ->> 'name';
        over_period := one ->> 'period';
        RETURN NEXT;
        RETURN;
      END IF;
    END LOOP;
  END LOOP;
  FOR one IN SELECT c.value FROM jsonb_array_elements(charges) c LOOP
    UPDATE budget_use b SET requests = greatest(0, b.requests + (one -> 'amounts' ->> 'requests')::bigint),
      tokens = greatest(0, b.tokens + (one -> 'amounts' ->> 'tokens')::bigint),
      dollars = greatest(0, b.dollars + (one -> 'amounts' ->> 'dollars')::bigint),
      bytes = greatest(0, b.bytes + (one -> 'amounts' ->> 'bytes')::bigint),
      conversations = greatest(0, b.conversations + (one -> 'amounts' ->> 'conversations')::bigint)
    WHERE b.tenant = me.tenant AND b.kind = one ->> 'kind' AND b.name = one ->> 'name' AND b.period = one ->> 'period';
    IF one ->> 'period' LIKE '0rate/%' THEN  -- a window of a rate limit: the earlier ones are over
      DELETE FROM budget_use b WHERE b.tenant = me.tenant AND b.kind = one ->> 'kind' AND b.name = one ->> 'name'
        AND b.period LIKE '0rate/%' AND b.period < one ->> 'period';
    END IF;
  END LOOP;
END $$;

-- spent: what was used of some accounts
CREATE OR REPLACE FUNCTION palaver_api.spent(who jsonb, accounts jsonb) RETURNS TABLE (kind text, name text, period text,
  requests bigint, tokens bigint, dollars bigint, bytes bigint, conversations bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'admin');
  one jsonb;
BEGIN
  FOR one IN SELECT a.value FROM jsonb_array_elements(accounts) a LOOP
    RETURN QUERY SELECT b.kind, b.name, b.period, b.requests, b.tokens, b.dollars, b.bytes, b.conversations
      FROM budget_use b WHERE b.tenant = me.tenant AND b.kind = one ->> 'kind' AND b.name = one ->> 'name'
      AND b.period = one ->> 'period';
  END LOOP;
END $$;

-- measure_storage: sum the bytes of turns and files of the tenant, or of one owner, count the conversations, and store both.
-- The counts of days and months that are long over are deleted
CREATE OR REPLACE FUNCTION palaver_api.measure_storage(who jsonb, kind text, name text, before text, owner text DEFAULT NULL)
RETURNS TABLE (bytes bigint, conversations bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'admin');
  cids bigint[];
BEGIN
  cids := ARRAY(SELECT c.cid FROM conversations c WHERE c.tenant = me.tenant AND c.gone IS NULL
    AND (measure_storage.owner IS NULL OR c.owner = measure_storage.owner));
  conversations := cardinality(cids);
  bytes := coalesce((SELECT sum(octet_length(coalesce(t.content, '')) + octet_length(coalesce(t.tool_calls, ''))
      + octet_length(coalesce(t.tool_results, ''))) FROM turns t WHERE t.tenant = me.tenant AND t.cid = ANY (cids)), 0)
    + coalesce((SELECT sum(a.bytes) FROM attachments a WHERE a.tenant = me.tenant AND a.cid = ANY (cids)), 0);
  INSERT INTO budget_use (tenant, kind, name, period) VALUES (me.tenant, measure_storage.kind, measure_storage.name, 'total')
  ON CONFLICT DO NOTHING;
  UPDATE budget_use b SET bytes = measure_storage.bytes, conversations = measure_storage.conversations
  WHERE b.tenant = me.tenant AND b.kind = measure_storage.kind AND b.name = measure_storage.name AND b.period = 'total';
  DELETE FROM budget_use b WHERE b.tenant = me.tenant AND b.period < before AND b.period <> 'total';
  RETURN NEXT;
END $$;

-- take_lease: take work for one process, unless another one has it. A time further ahead than any lease was written before
-- the clock was set back
CREATE OR REPLACE FUNCTION palaver_api.take_lease(who jsonb, name text, micros bigint) RETURNS TABLE (taken boolean)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE me asker := enter(who, 'admin');
BEGIN
  INSERT INTO leases AS l (tenant, name, until) VALUES (me.tenant, take_lease.name, me.now + micros)
  ON CONFLICT ON CONSTRAINT leases_pkey DO UPDATE SET until = excluded.until
    WHERE l.until <= me.now OR l.until > me.now + greatest(micros, 86400000000);
  taken := FOUND;
  RETURN NEXT;
END $$;
