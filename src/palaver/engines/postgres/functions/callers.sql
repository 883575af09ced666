-- For those who come over HTTP: who they are, and what takes more than one transaction elsewhere.

-- signed_in: who is asking, in the database's own words, and the schema that it has
CREATE OR REPLACE FUNCTION palaver_api.signed_in(who jsonb)
RETURNS TABLE (tenant text, "user" text, sight text, workspace text, rights text, version integer)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE me asker := enter(who, 'read');
BEGIN
  RETURN QUERY SELECT me.tenant, me."user", me.sight, me.workspace, me.rights, schema_version();
END $$;

-- whole: every row of a conversation, from one moment: writers wait for the lock
CREATE OR REPLACE FUNCTION palaver_api.whole(who jsonb, conversation text)
RETURNS TABLE (conversation_row jsonb, event_rows jsonb, turn_rows jsonb, attachment_rows jsonb,
  working_memory_rows jsonb, fact_rows jsonb)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'read');
  c palaver.conversations := find(me, conversation);
BEGIN
  SELECT * INTO c FROM conversations o WHERE o.tenant = c.tenant AND o.cid = c.cid FOR SHARE;
  c := find(me, conversation);  -- it may be gone by now
  RETURN QUERY SELECT to_jsonb(c),
    (SELECT jsonb_agg(e ORDER BY e.n) FROM events e WHERE e.tenant = c.tenant AND e.cid = c.cid),
    (SELECT jsonb_agg(t ORDER BY t.seq) FROM turns t WHERE t.tenant = c.tenant AND t.cid = c.cid),
    (SELECT jsonb_agg(a) FROM palaver_api.attachment_records(who, conversation) a),
    (SELECT jsonb_agg(jsonb_build_object('memory', w.memory))
      FROM palaver_api.working_memory_records(who, conversation) AS w (memory)),
    (SELECT jsonb_agg(f) FROM palaver_api.fact_records(who, conversation) f);
END $$;
