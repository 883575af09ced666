-- The order of answers in conversations whose questions are answered one after the other, or refused while another one is
-- being answered.

-- take_answer_place: take a place, or renew it. `ahead` is how many others come first; with 0 the answer may be made now.
-- `question` is the seq of the question, NULL while that is not stored. With `alone`, no place is taken behind others.
-- `changed` says that others may come first now
CREATE OR REPLACE FUNCTION palaver_api.take_answer_place(who jsonb, conversation text, place text, lease bigint,
  question bigint DEFAULT NULL, alone boolean DEFAULT false) RETURNS TABLE (ahead bigint, changed boolean)
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'write');
  c palaver.conversations := open_thread(me, conversation);
  own palaver.answer_places;
  number bigint;
BEGIN
  -- A time further ahead than any lease was written before the clock was set back.
  DELETE FROM answer_places p WHERE p.tenant = c.tenant AND p.cid = c.cid
    AND (p.lease_until <= me.now OR p.lease_until > me.now + greatest(lease, 300000000));
  SELECT * INTO own FROM answer_places p WHERE p.tenant = c.tenant AND p.cid = c.cid AND p.id = place;
  number := coalesce(question, own.seq, c.next_seq);
  -- A question that is not stored yet may still get a lower number than this one, if it came before this one was stored.
  SELECT count(*) INTO ahead FROM answer_places p WHERE p.tenant = c.tenant AND p.cid = c.cid AND p.id <> place
    AND (alone OR p.started OR (p.stored AND (p.seq, p.id) < (number, place)) OR (NOT p.stored AND p.seq <= number));
  changed := question IS NOT NULL AND NOT coalesce(own.stored, false);
  IF alone AND ahead > 0 AND own.id IS NULL THEN
    RETURN NEXT;
    RETURN;
  END IF;
  INSERT INTO answer_places (tenant, cid, id, seq, stored, started, lease_until)
  VALUES (c.tenant, c.cid, place, number, question IS NOT NULL, ahead = 0 AND (alone OR question IS NOT NULL), me.now + lease)
  ON CONFLICT (tenant, cid, id) DO UPDATE SET seq = excluded.seq, stored = answer_places.stored OR excluded.stored,
    started = answer_places.started OR excluded.started, lease_until = excluded.lease_until;
  IF own.started THEN
    ahead := 0;
  END IF;
  RETURN NEXT;
END $$;

-- leave_answer_place: give a place up, so that the next question is answered
CREATE OR REPLACE FUNCTION palaver_api.leave_answer_place(who jsonb, conversation text, place text) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'write');
  c palaver.conversations := open_thread(me, conversation);
BEGIN
  DELETE FROM answer_places p WHERE p.tenant = c.tenant AND p.cid = c.cid AND p.id = place;
  RETURN FOUND;
END $$;
