-- Detection of secrets and personal data, with the library's rules (redaction_rules.sql is made from them). In a
-- conversation whose settings ask for redaction, the library replaces them before it writes; a text that reaches the
-- database with one was not written through the library, and is refused. Each check is the function of the same name in
-- palaver/redaction/rules.

-- before_place: the text right before a place, as far as a check looks back
CREATE OR REPLACE FUNCTION palaver.before_place(said text, place integer, reach integer DEFAULT 48) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN substr(said, greatest(1, place - reach), least(place - 1, reach));

CREATE OR REPLACE FUNCTION palaver.fits(said text, pattern text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN said COLLATE "C" ~ palaver.redaction_pattern(pattern);

CREATE OR REPLACE FUNCTION palaver.digits_of(said text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN regexp_replace(said, '[^0-9]', '', 'g');

CREATE OR REPLACE FUNCTION palaver.letters_of(said text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN upper(regexp_replace(said, '[^A-Za-z0-9]', '', 'g') COLLATE "C");

-- ---- numbers --------------------------------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION palaver.passes_luhn(number text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN (SELECT sum(d.v - CASE WHEN d.v > 9 THEN 9 ELSE 0 END) % 10 = 0
    FROM (SELECT substr(reverse(number), n, 1)::integer * (2 - n % 2) AS v FROM generate_series(1, length(number)) AS n) AS d);

CREATE OR REPLACE FUNCTION palaver.is_card(said text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN palaver.fits(palaver.digits_of(said), 'issuers')
    AND palaver.digits_of(said) <> repeat(left(palaver.digits_of(said), 1), length(palaver.digits_of(said)))
    AND palaver.passes_luhn(palaver.digits_of(said));

CREATE OR REPLACE FUNCTION palaver.is_iban(said text) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  length_there integer := (iban_lengths() ->> upper(left(said, 2) COLLATE "C"))::integer;
  code text := letters_of(said);
  place integer := 0;
  number text;
BEGIN
  IF length_there IS NULL OR length(code) < length_there THEN
    RETURN false;
  END IF;
  FOR i IN 1 .. length_there LOOP  -- to the place of its last character
    place := place + 1;
    WHILE substr(said, place, 1) !~ '[A-Za-z0-9]' LOOP
      place := place + 1;
    END LOOP;
  END LOOP;
  IF substr(said, place + 1, 1) ~ '[A-Za-z0-9]' THEN
    RETURN false;
  END IF;
  code := left(code, length_there);
  SELECT string_agg(CASE WHEN ascii(l.letter) >= 65 THEN (ascii(l.letter) - 55)::text ELSE l.letter END, '' ORDER BY l.n)
    INTO number FROM string_to_table(substr(code, 5) || left(code, 4), NULL) WITH ORDINALITY AS l (letter, n);
  RETURN number::numeric % 97 = 1;
END $$;

CREATE OR REPLACE FUNCTION palaver.is_dni(said text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN substr('TRWAGMYFPDXBNJZSQVHLCKE', translate(left(palaver.letters_of(said), -1), 'XYZ', '012')::integer % 23 + 1, 1)
    = right(palaver.letters_of(said), 1);

CREATE OR REPLACE FUNCTION palaver.is_nino(said text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN upper(left(said, 2) COLLATE "C") NOT IN ('BG', 'GB', 'KN', 'NK', 'NT', 'TN', 'ZZ');

CREATE OR REPLACE FUNCTION palaver.is_nir(said text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN 97 - replace(replace(left(palaver.letters_of(said), -2), '2A', '19'), '2B', '18')::bigint % 97
    = right(palaver.letters_of(said), 2)::bigint;

-- ---- secrets --------------------------------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION palaver.is_random(said text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN left(said, 64) ~ '[0-9]' AND left(said, 64) COLLATE "C" ~ '[A-Za-z]'
    AND (SELECT -sum(f.share * log(2, f.share)) >= 3.0 FROM (SELECT count(*)::numeric / length(left(said, 64)) AS share
      FROM string_to_table(left(said, 64), NULL) AS l (letter) GROUP BY l.letter) AS f);

CREATE OR REPLACE FUNCTION palaver.is_mixed_random(said text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN palaver.is_random(said) AND said COLLATE "C" ~ '[a-z][A-Z]';

-- is_secret: an announced value with a random-looking part
CREATE OR REPLACE FUNCTION palaver.is_secret(said text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN (SELECT palaver.fits(v.value, 'uuid') OR coalesce((SELECT bool_or(palaver.is_random(p.part[1]))
      FROM regexp_matches(v.value, '[A-Za-z0-9+/]{10,}', 'g') AS p (part)), false)
    FROM (SELECT regexp_replace(said, palaver.redaction_pattern('name'), '') AS value) AS v);

-- is_password: a quoted value, a value that is not a dictionary word, or a word that ends the clause. `after` is the
-- rest of the text; `described` says that words and a colon precede the value ("password strength: medium")
CREATE OR REPLACE FUNCTION palaver.is_password(value text, after text, quoted boolean, described boolean) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  ends integer := regexp_instr(value COLLATE "C", redaction_pattern('value end'), 2);
BEGIN
  IF quoted THEN
    RETURN NOT fits(value, 'masked');
  END IF;
  IF ends > 0 THEN
    after := substr(value, ends) || after;
    value := left(value, ends - 1);
  END IF;
  ends := length(rtrim(value, '.,;:)]}>"''`»”?…'));
  after := substr(value, ends + 1) || after;
  value := left(value, ends);
  IF length(value) < 3 OR fits(value, 'masked') OR not_passwords() ? lower(value) THEN
    RETURN false;
  END IF;
  IF length(value) > 3 AND (value ~ '[0-9]' OR fits(value, 'symbol') OR value COLLATE "C" ~ '[a-z][A-Z]') THEN
    RETURN true;
  END IF;
  RETURN length(value) BETWEEN 5 AND 31 AND value !~ '[^A-Za-z\u00aa-\uffff]' AND NOT described
    AND fits(left(after, 64), 'sentence end');
END $$;

CREATE OR REPLACE FUNCTION palaver.is_bare_password(said text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN said ~ '[0-9]' AND said COLLATE "C" ~ '[A-Za-z\u00c0-\uffff]' AND strpos(said, '/') = 0
    AND NOT palaver.fits(said, 'masked');

-- ---- personal data --------------------------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION palaver.is_ipv6(said text) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  RETURN length(said) - length(replace(said, ':', '')) >= 2 AND said ~ '[0-9]' AND family(said::inet) = 6
    AND host(said::inet) <> '::1';
EXCEPTION WHEN data_exception THEN
  RETURN false;
END $$;

-- is_counted: whether the text around the digits shows that they are a price, a date, an order or a version
CREATE OR REPLACE FUNCTION palaver.is_counted(said text, first integer, past integer) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN palaver.fits(substr(said, past, 64), 'counted after') OR palaver.fits(substr(said, first, 64), 'date')
    OR (palaver.fits(palaver.before_place(said, first), 'counted before')
      AND NOT palaver.fits(palaver.before_place(said, first), 'phone before'));

CREATE OR REPLACE FUNCTION palaver.is_phone(said text, test text) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  number text := digits_of(said);
  groups text[] := regexp_split_to_array(trim(regexp_replace(said, '[^0-9]+', ' ', 'g')), ' ');
BEGIN
  CASE test
    WHEN 'is_anything' THEN
      RETURN true;
    WHEN 'is_international' THEN
      number := CASE WHEN said LIKE '00%' THEN substr(number, 3) ELSE digits_of(replace(said, '(0)', '')) END;
      RETURN fits(number, 'calling codes') AND length(number) <= 15;
    WHEN 'is_announced' THEN
      RETURN length(number) BETWEEN 7 AND 13 AND said !~ '^((19|20)[0-9]{2}[ -]?)+$';
    ELSE  -- is_national
      IF cardinality(groups) = 1 THEN
        RETURN fits(said, 'unbroken');
      END IF;
      RETURN NOT (groups[1] = '0' AND said NOT LIKE '(%') AND cardinality(groups) <= 6
        AND NOT EXISTS (SELECT 1 FROM unnest(groups[2:]) AS g WHERE length(g) < 2)
        AND said NOT LIKE '00%' AND said NOT LIKE '(00%';
  END CASE;
END $$;

-- ---- finding --------------------------------------------------------------------------------------------------------

-- is_finding: whether a match from `first` up to `past` is accepted by the check of its rule. `form` has the numbers of
-- its groups, `pattern` is the pattern that matched there
CREATE OR REPLACE FUNCTION palaver.is_finding(said text, "check" text, form jsonb, pattern text, first integer)
RETURNS boolean
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  part integer := coalesce((form ->> 'value')::integer, (form ->> 'quoted')::integer, 0);
  start integer := regexp_instr(said COLLATE "C", pattern, first, 1, 0, '', part);
  past integer := regexp_instr(said COLLATE "C", pattern, first, 1, 1, '', part);
  value text := substr(said, start, past - start);
  marks integer;
  found boolean;
BEGIN
  IF "check" LIKE 'check_phone:%' THEN
    past := start + length(rtrim(value, ' ().-/'));
    value := substr(said, start, past - start);
  END IF;
  found := CASE "check"
    WHEN 'accept' THEN true
    WHEN 'check_pem' THEN true
    WHEN 'check_text:is_anything' THEN true
    WHEN 'check_text:is_random' THEN is_random(value)
    WHEN 'check_text:is_mixed_random' THEN is_mixed_random(value)
    WHEN 'check_text:is_bare_password' THEN is_bare_password(value)
    WHEN 'check_text:is_card' THEN is_card(value)
    WHEN 'check_text:is_dni' THEN is_dni(value)
    WHEN 'check_text:is_nino' THEN is_nino(value)
    WHEN 'check_text:is_nir' THEN is_nir(value)
    WHEN 'check_text:is_ipv6' THEN is_ipv6(value)
    WHEN 'check_iban' THEN is_iban(value)
    WHEN 'check_secret' THEN is_secret(value)
    WHEN 'check_password' THEN is_password(value, substr(said, past, 320), form ? 'quoted',
      coalesce(regexp_substr(said COLLATE "C", pattern, first, 1, '', (form ->> 'filler')::integer), '') <> ''
      AND coalesce(regexp_substr(said COLLATE "C", pattern, first, 1, '', (form ->> 'colon')::integer), '') <> '')
    WHEN 'check_email' THEN NOT fits(before_place(said, start, 80), 'url login') AND NOT fits(substr(said, past, 80), 'ssh path')
    WHEN 'check_ipv4' THEN NOT fits(value, 'nobody') AND NOT fits(before_place(said, start), 'version before')
    ELSE is_phone(value, substr("check", 13)) AND NOT is_counted(said, start, past) END;
  IF NOT coalesce(found, false) THEN
    RETURN false;
  END IF;
  -- A span that overlaps a placeholder or is adjacent to one is not a finding.
  FOR i IN 1 .. 100 LOOP
    marks := regexp_instr(said, redaction_pattern('placeholder'), greatest(1, start - 13), i);
    EXIT WHEN marks = 0 OR marks > past;
    IF regexp_instr(said, redaction_pattern('placeholder'), greatest(1, start - 13), i, 1) >= start THEN
      RETURN false;
    END IF;
  END LOOP;
  RETURN true;
END $$;

-- find_secret: the kind of the first secret or personal data in a text; NULL when there is none. With `since`, only
-- those that begin there or later
CREATE OR REPLACE FUNCTION palaver.find_secret(said text, since integer DEFAULT 1) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  figures integer := length(digits_of(said));
  small text := lower(said COLLATE "C");
  letters text := redaction_pattern('letters');
  rule record;
  form jsonb;
  pattern text;
  place integer;
BEGIN
  FOR rule IN SELECT * FROM redaction_rules() LOOP
    rule.anywhere := replace(rule.anywhere, '@L', letters);
    CONTINUE WHEN figures < rule.figures OR (rule.words <> '[]'::jsonb
      AND NOT EXISTS (SELECT 1 FROM jsonb_array_elements_text(rule.words) AS w WHERE strpos(small, w) > 0));
    place := regexp_instr(said COLLATE "C", rule.anywhere, greatest(since, 1));
    <<candidates>>
    WHILE place > 0 LOOP
      FOR count IN 0 .. rule.most LOOP
        FOR form IN SELECT f FROM jsonb_array_elements(rule.forms) AS f LOOP
          pattern := replace(replace(form ->> 'pattern', '{@}', format('{%s}', count)), '@L', letters);
          IF regexp_instr(said COLLATE "C", pattern, place) = place THEN  -- Python would look no further
            IF is_finding(said, rule."check", form, pattern, place) THEN
              RETURN rule.kind;
            END IF;
            place := regexp_instr(said COLLATE "C", rule.anywhere, place + 1);
            CONTINUE candidates;
          END IF;
        END LOOP;
      END LOOP;
      place := regexp_instr(said COLLATE "C", rule.anywhere, place + 1);
    END LOOP;
  END LOOP;
  RETURN NULL;
END $$;

-- ---- refusing -------------------------------------------------------------------------------------------------------

-- is_redacted: whether the settings of a conversation ask for redaction
CREATE OR REPLACE FUNCTION palaver.is_redacted(settings text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN coalesce(settings::jsonb -> 'redact' NOT IN ('false', 'null', '0', '""', '[]', '{}'), false);

-- is_watched: whether texts for a conversation with these settings are searched. Not those of the application: it writes
-- through the library, whose redactor may be another one
CREATE OR REPLACE FUNCTION palaver.is_watched(settings text) RETURNS boolean LANGUAGE sql STABLE PARALLEL SAFE
  RETURN palaver.asking_role() IN ('authenticated', 'anon') AND palaver.is_redacted(settings);

-- texts_in: the texts of a JSON value, the names of fields included, and short texts together with their name, which may
-- announce a secret
CREATE OR REPLACE FUNCTION palaver.texts_in(value jsonb) RETURNS SETOF text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  RETURN QUERY SELECT x #>> '{}' FROM jsonb_path_query(value, 'strict $.** ? (@.type() == "string")') AS x;
  RETURN QUERY SELECT unnest(ARRAY[f.name, CASE WHEN jsonb_typeof(f.one) = 'string' AND length(f.one #>> '{}') <= 1024
      THEN right(f.name, 1024) || ': ' || (f.one #>> '{}') END])
    FROM jsonb_path_query(value, 'strict $.** ? (@.type() == "object")') AS o, jsonb_each(o) AS f (name, one);
END $$;

-- open_fields: the fields of a part of a content that are redacted, apart from its text, URL and file name. Those that only
-- its provider can read are not, and neither are the bytes of a file
CREATE OR REPLACE FUNCTION palaver.open_fields(part jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN CASE WHEN part ->> 'type' <> 'reasoning' THEN (SELECT jsonb_object_agg(f.key, f.value) FROM jsonb_each(part) AS f
    WHERE f.key <> ALL ('{type,attachment,media_type,signature,text,url,filename}'::text[])
      AND left(f.value #>> '{}', 200) !~* '^data:.*;base64,') END;

-- texts_of: the texts of a turn that the library redacts
CREATE OR REPLACE FUNCTION palaver.texts_of(content text, is_parts smallint, tool_calls text, tool_results text,
  sources text, metadata text, attachments text) RETURNS SETOF text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  IF is_parts = 0 THEN
    RETURN NEXT content;
  ELSE
    RETURN QUERY SELECT s FROM jsonb_array_elements(content::jsonb) AS p,
      unnest(ARRAY[p ->> 'text', p ->> 'url', p ->> 'filename']) AS s
      WHERE left(s, 200) !~* '^data:.*;base64,';
    RETURN QUERY SELECT s FROM jsonb_array_elements(content::jsonb) AS p, texts_in(open_fields(p)) AS s;
  END IF;
  RETURN QUERY SELECT s FROM jsonb_array_elements(tool_calls::jsonb) AS o, texts_in(o -> 'arguments') AS s;
  RETURN QUERY SELECT s FROM jsonb_array_elements(tool_results::jsonb) AS o, texts_in(o -> 'content') AS s;
  RETURN QUERY SELECT s FROM texts_in(sources::jsonb) AS s;
  RETURN QUERY SELECT s FROM texts_in(metadata::jsonb) AS s;
  RETURN QUERY SELECT f ->> 'filename' FROM jsonb_array_elements(attachments::jsonb) AS f;
END $$;

CREATE OR REPLACE FUNCTION palaver.not_redacted(kind text) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  PERFORM fail('PV033', kind, 'is in the text, and this conversation is redacted:'
    || ' write through the library or the server, which replace it');
END $$;

-- check_texts: refuse texts with something that the library would have redacted
CREATE OR REPLACE FUNCTION palaver.check_texts(texts text[]) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE kind text;
BEGIN
  SELECT f.kind INTO kind FROM unnest(texts) AS s (said), LATERAL (SELECT find_secret(s.said) AS kind) AS f
  WHERE s.said IS NOT NULL AND f.kind IS NOT NULL LIMIT 1;
  IF FOUND THEN
    PERFORM not_redacted(kind);
  END IF;
END $$;

-- check_redacted: the same for a turn. A key that will be stored as its hash (`hash_key`) is not given here
CREATE OR REPLACE FUNCTION palaver.check_redacted(content text, is_parts smallint, tool_calls text, tool_results text,
  sources text, metadata text, attachments text, key text) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  PERFORM check_texts(array_append(ARRAY(SELECT texts_of(content, is_parts, tool_calls, tool_results, sources, metadata,
    attachments)), key));
END $$;

-- check_identity: refuse a name that holds a secret. Names are never changed: two people would become one
CREATE OR REPLACE FUNCTION palaver.check_identity(field text, name text) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE kind text := find_secret(name);
BEGIN
  IF kind IS NOT NULL THEN
    PERFORM fail('PV031', field, format('holds what looks like a secret or personal data (%s), and this conversation is'
      ' redacted: names are never changed, so use an id that holds none', kind));
  END IF;
END $$;

-- check_speaker: the same for the actor of a turn, unless the conversation has that name already
CREATE OR REPLACE FUNCTION palaver.check_speaker(tenant text, cid bigint, name text) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  IF NOT EXISTS (SELECT 1 FROM conversations o WHERE o.tenant = check_speaker.tenant AND o.cid = check_speaker.cid
      AND (o.owner = name OR o.agent = name OR name = ANY (o.members))) THEN
    PERFORM check_identity('actor', name);
  END IF;
END $$;

-- check_details_redacted: the same for the title, the metadata and the names of a conversation that are new to it
CREATE OR REPLACE FUNCTION palaver.check_details_redacted(title text, metadata text, owner text, agent text,
  participants text, known text[]) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  PERFORM check_texts(array_append(ARRAY(SELECT texts_in(metadata::jsonb)), title));
  PERFORM check_identity(n.field, n.name) FROM (
    SELECT 'owner' AS field, check_details_redacted.owner AS name UNION ALL SELECT 'agent', check_details_redacted.agent
    UNION ALL SELECT 'participants', p FROM unnest(members_of(check_details_redacted.participants)) AS p) AS n
  WHERE n.name IS NOT NULL AND n.name <> ALL (known);
END $$;

-- check_piece: the same for the next piece of a stream, together with the end of what came before
CREATE OR REPLACE FUNCTION palaver.check_piece(before text, piece text) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE kind text := find_secret(coalesce(before, '') || piece, length(coalesce(before, '')) - 1024);
BEGIN
  IF kind IS NOT NULL THEN
    PERFORM not_redacted(kind);
  END IF;
END $$;
