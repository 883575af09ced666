-- After the migration, when no call of the version before is under way that would look for these.

-- step: drop_forgotten
DROP FUNCTION IF EXISTS palaver.forgotten(palaver.asker, palaver.conversations, palaver.turns);

-- step: drop_unshelve
DROP FUNCTION IF EXISTS palaver.unshelve(palaver.conversations, bigint);

-- The second wall around tokens without the right to write: one table after the other, so that no lock is held while
-- another is waited for.

-- step: restrict_conversations
SELECT palaver.restrict_writes('conversations');

-- step: restrict_turns
SELECT palaver.restrict_writes('turns');

-- step: restrict_streams
SELECT palaver.restrict_writes('streams');

-- step: restrict_answer_places
SELECT palaver.restrict_writes('answer_places');

-- step: restrict_attachments
SELECT palaver.restrict_writes('attachments');

-- step: restrict_file_passages
SELECT palaver.restrict_writes('file_passages');

-- step: restrict_doomed_blobs
SELECT palaver.restrict_writes('doomed_blobs');

-- step: restrict_events
SELECT palaver.restrict_writes('events');

-- step: restrict_passages
SELECT palaver.restrict_writes('passages');

-- step: restrict_summaries
SELECT palaver.restrict_writes('summaries');

-- step: restrict_working_memory
SELECT palaver.restrict_writes('working_memory');

-- step: restrict_facts
SELECT palaver.restrict_writes('facts');

-- step: restrict_marks
SELECT palaver.restrict_writes('marks');

-- step: restrict_embeddings
SELECT palaver.restrict_writes('embeddings');

-- step: restrict_embedded
SELECT palaver.restrict_writes('embedded');

-- step: restrict_jobs
SELECT palaver.restrict_writes('jobs');

-- step: restrict_requests
SELECT palaver.restrict_writes('requests');

-- step: restrict_request_quotes
SELECT palaver.restrict_writes('request_quotes');

-- step: restrict_counter_bounds
SELECT palaver.restrict_writes('counter_bounds');
