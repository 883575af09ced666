-- After the migration, when no call of the version before is under way that would look for these.

-- step: drop_append_at_end
DROP FUNCTION IF EXISTS palaver.append_at_end(palaver.asker, text, jsonb, bigint);

-- step: drop_work_made
DROP FUNCTION IF EXISTS palaver.work_made(text, bigint, boolean, bigint);
