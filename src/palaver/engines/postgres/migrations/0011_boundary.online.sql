-- After the migration, when no call of the version before is under way that would look for these.

-- step: drop_forgotten
DROP FUNCTION IF EXISTS palaver.forgotten(palaver.asker, palaver.conversations, palaver.turns);

-- step: drop_unshelve
DROP FUNCTION IF EXISTS palaver.unshelve(palaver.conversations, bigint);
