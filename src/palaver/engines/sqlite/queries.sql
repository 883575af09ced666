-- The statements of the SQLite engine, by name. {name} includes another statement of this file, or a list of columns from
-- queries.py.

-- allowed: the predicate for who may see a conversation `c`; it is defined only here
c.tenant = :tenant AND (
  :sight = 'tenant'
  OR c.owner = :user
  OR (:sight = 'workspace' AND c.workspace = :workspace)
  OR EXISTS (SELECT 1 FROM participants p WHERE p.actor = :user AND p.cid = c.cid)
)

-- visible: allowed, and neither deleted nor expired
{allowed} AND c.gone IS NULL AND (c.expires_at IS NULL OR c.expires_at > :now)

-- is_thread: whether a conversation is one of people, and not the log of a subject's memory
coalesce(c.key, '') NOT LIKE 'palaver:memory/%'

-- conversation_columns: the columns of a ConversationInfo
c.id, c.tenant, c.owner, c.key, c.workspace, c.agent, c.model, c.title, c.preview, c.participants, c.metadata,
c.settings, c.turn_count, c.token_count, c.summarized_position, c.next_seq, c.next_n - 1, c.ttl, c.expires_at,
c.created, c.updated

-- node_columns: the place of a turn in the tree, without its content
t.id, t.seq, t.position, t.parent, coalesce(t.slot, t.id), t.active, t.superseded_by, t.status

-- open_columns: the columns that a write needs to know of a conversation
c.cid, c.id, c.owner, c.next_seq, c.next_n, c.tip_hash, c.tip_position, c.tip_slot, c.updated, c.minute, c.turn_count,
c.token_count, c.preview, c.ttl

-- find: a conversation by its id
SELECT {open_columns} FROM conversations c WHERE c.id = :id AND {visible}

-- find_gone: check whether an id that was not found belongs to a deleted conversation, or to one that is being reset
SELECT coalesce(c.gone IS NULL AND c.expires_at = 2, 0) FROM conversations c
WHERE c.id = :id AND {allowed} AND (c.gone IS NOT NULL OR c.expires_at <= :now)

-- find_any: find a conversation for its log, which remains after deletion
SELECT c.cid FROM conversations c WHERE c.id = :id AND {allowed}

-- find_key: find a conversation by the application's key, expired ones included
SELECT c.cid, c.id, c.expires_at FROM conversations c
WHERE c.tenant = :tenant AND c.owner = :owner AND c.key = :key AND c.gone IS NULL

-- conversation: read the fields of one conversation
SELECT {conversation_columns} FROM conversations c WHERE c.cid = :cid

-- conversation_record: read the whole row for export and verify, with the actors of its participant rows
SELECT c.*, (SELECT json_group_array(CAST(p.actor AS TEXT)) FROM participants p WHERE p.cid = c.cid) AS members
FROM conversations c WHERE c.cid = :cid

-- create: insert a conversation
INSERT INTO conversations (tenant, id, owner, key, workspace, agent, model, title, participants, metadata, settings, ttl,
  expires_at, tip_hash, salt, content_hash, created, updated, minute)
VALUES (:tenant, :id, :owner, :key, :workspace, :agent, :model, :title, :participants, :metadata, :settings, :ttl,
  :expires_at, :tip_hash, :salt, :content_hash, :created, :created, :created / 60000000)

-- list: list conversations, newest first, starting at a cursor
SELECT {conversation_columns} FROM conversations c
WHERE {visible} AND {is_thread}
  AND (:owner IS NULL OR c.owner = :owner)
  AND (:in_workspace IS NULL OR c.workspace = :in_workspace)
  AND (:agent IS NULL OR c.agent = :agent)
  AND (:since IS NULL OR (c.updated >= :since AND c.minute >= :since / 60000000))
  AND (:until IS NULL OR (c.updated < :until AND c.minute <= :until / 60000000))
  AND (:members IS NULL OR c.owner IN (SELECT value FROM json_each(:members)) OR EXISTS (
    SELECT 1 FROM participants p WHERE p.cid = c.cid AND p.actor IN (SELECT value FROM json_each(:members))))
  AND (:before_updated IS NULL OR c.updated < :before_updated OR (c.updated = :before_updated AND c.id < :before_id))
  AND c.minute <= :before_minute
ORDER BY c.minute DESC, c.updated DESC, c.id DESC LIMIT :limit

-- details: read the fields that an update event covers
SELECT c.id, c.owner, c.key, c.workspace, c.agent, c.model, c.title, c.participants, c.metadata, c.settings, c.ttl,
  c.title_pid
FROM conversations c WHERE c.cid = :cid

-- save_details: store those fields after a change
UPDATE conversations SET workspace = :workspace, agent = :agent, model = :model, title = :title, title_pid = :title_pid,
  participants = :participants, metadata = :metadata, settings = :settings, ttl = :ttl, salt = :salt,
  content_hash = :content_hash
WHERE cid = :cid

-- save_title_pid: remember the title's passage in the text index
UPDATE conversations SET title_pid = :title_pid WHERE cid = :cid

-- save_conversation: store what every write changes, once per transaction
UPDATE conversations SET next_seq = ?, next_n = ?, tip_hash = ?, tip_position = ?, tip_slot = ?, updated = ?,
  turn_count = ?, token_count = ?, preview = ?
WHERE cid = ?

-- save_minute: move the coarse time that lists are sorted by
UPDATE conversations SET minute = :minute WHERE cid = :cid

-- save_expiry: extend the time to live
UPDATE conversations SET expires_at = :expires_at WHERE cid = :cid

-- add_participant: add one participant, for the predicate `allowed`
INSERT OR IGNORE INTO participants (actor, cid) VALUES (:actor, :cid)

-- drop_participants: remove them before they are replaced, and with the conversation
DELETE FROM participants WHERE cid = :cid

-- log: insert one event
INSERT INTO events (cid, n, kind, turn, actor, at, payload, content_hash, hash)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)

-- tip: find the last turn of the active branch
SELECT t.position, coalesce(t.slot, t.id) FROM turns t WHERE t.cid = :cid AND t.active = 1
ORDER BY t.position DESC LIMIT 1

-- add_turn: insert a turn; positional parameters, because naming them takes longer than the insert
INSERT INTO turns (cid, {new_turn_columns}) VALUES (?, {new_turn_values})

-- turn: read a turn by its id
SELECT {turn_columns} FROM turns t WHERE t.cid = :cid AND t.seq = :seq AND t.id = :id

-- turn_by_key: find the turn that an earlier try stored; the hashed key is what remains of a forgotten turn's key
SELECT {turn_columns} FROM turns t WHERE t.cid = :cid AND t.idempotency_key IN (:key, :hashed)

-- active_at: find the active turn at a position
SELECT t.id FROM turns t WHERE t.cid = :cid AND t.position = :position AND t.active = 1

-- active_from: read the turns that an edit discards
SELECT {turn_columns} FROM turns t WHERE t.cid = :cid AND t.position >= :position AND t.active = 1 ORDER BY t.position

-- deactivate: take a turn out of the active branch, displaced by another
UPDATE turns SET active = 0, superseded_by = :by WHERE cid = :cid AND seq = :seq AND active = 1 RETURNING token_count

-- activate: put a turn back into the active branch
UPDATE turns SET active = 1, superseded_by = NULL WHERE cid = :cid AND seq = :seq AND active = 0 RETURNING token_count

-- displace: record which retry replaced an aborted turn
UPDATE turns SET superseded_by = :by WHERE cid = :cid AND seq = :seq

-- said_by_users: read user turns in order, for the preview
SELECT t.is_parts, t.content FROM turns t
WHERE t.cid = :cid AND t.active = 1 AND t.role = 'user' AND t.status = 'complete' ORDER BY t.position

-- nodes_from: read the tree from a position on
SELECT {node_columns} FROM turns t WHERE t.cid = :cid AND t.active = 1 AND t.position >= :position
UNION ALL
SELECT {node_columns} FROM turns t WHERE t.cid = :cid AND t.active = 0 AND t.position >= :position

-- slot_nodes: read the versions in one slot
SELECT {node_columns} FROM ({turns_at}) t WHERE coalesce(t.slot, t.id) = :slot

-- versions: read the alternatives at one position, below one parent
SELECT {turn_columns} FROM ({turns_at}) t WHERE t.parent IS :parent AND t.status IN ('complete', 'pending')
ORDER BY t.seq

-- turns_at: read every turn at one position, through the two partial indexes
SELECT * FROM turns WHERE cid = :cid AND active = 1 AND position = :position
UNION ALL
SELECT * FROM turns WHERE cid = :cid AND active = 0 AND position = :position

-- branch_places: find the positions that have a turn outside the active path
SELECT DISTINCT t.position, t.parent FROM turns t
WHERE t.cid = :cid AND t.active = 0 AND t.status IN ('complete', 'pending') ORDER BY t.position

-- cursor: find the place of a turn
SELECT t.position, t.seq FROM turns t WHERE t.cid = :cid AND t.seq = :seq AND t.id = :id

-- history_active: read the active branch, backwards
SELECT {turn_columns} FROM turns t
WHERE t.cid = :cid AND t.active = 1 AND t.position < :before AND t.position > :after AND {history_filter}
ORDER BY t.position DESC LIMIT :limit

-- history_active_forwards: read the active branch from a cursor on
SELECT {turn_columns} FROM turns t
WHERE t.cid = :cid AND t.active = 1 AND t.position < :before AND t.position > :after AND {history_filter}
ORDER BY t.position LIMIT :limit

-- history_all: read every turn ever stored, latest first
SELECT {turn_columns} FROM turns t
WHERE t.cid = :cid AND t.seq < :before AND t.seq > :after AND t.status != 'forgotten' AND {history_filter}
ORDER BY t.seq DESC LIMIT :limit

-- history_all_forwards: read the same from a cursor on
SELECT {turn_columns} FROM turns t
WHERE t.cid = :cid AND t.seq < :before AND t.seq > :after AND t.status != 'forgotten' AND {history_filter}
ORDER BY t.seq LIMIT :limit

-- history_filter: the optional conditions of a history
(:since IS NULL OR t.created >= :since) AND (:until IS NULL OR t.created < :until)
AND (:roles IS NULL OR t.role IN (SELECT value FROM json_each(:roles)))
AND (:actors IS NULL OR t.actor IN (SELECT value FROM json_each(:actors)))

-- intervals: the intervals of values that a filter on metadata looks for, from JSON (core/filters.py). Numbers sort before
-- texts, and texts before the bytes of booleans
SELECT j.value ->> 0 AS n, j.value ->> 1 AS key,
  CASE j.value ->> 2 WHEN 'bool' THEN iif(j.value ->> 3, x'01', x'00') WHEN 'text' THEN coalesce(j.value ->> 3, '')
    ELSE coalesce(j.value ->> 3, -9e999) END AS low,
  CASE j.value ->> 2 WHEN 'bool' THEN iif(j.value ->> 4, x'01', x'00') WHEN 'text' THEN coalesce(j.value ->> 4, x'')
    ELSE coalesce(j.value ->> 4, 9e999) END AS high,
  j.value ->> 5 AS low_open, j.value ->> 6 AS high_open
FROM json_each(:intervals) j

-- is_inside: whether a value of metadata lies in an interval
m.key = i.key AND m.value >= i.low AND m.value <= i.high
AND (i.low_open = 0 OR m.value > i.low) AND (i.high_open = 0 OR m.value < i.high)

-- turns_with: find the turns of a conversation whose metadata meets all conditions; CROSS JOIN fixes the order
SELECT m.tid FROM ({intervals}) i CROSS JOIN turn_metadata m ON m.cid = :cid AND {is_inside}
GROUP BY m.tid HAVING count(DISTINCT i.n) = :conditions

-- conversations_with: find the conversations whose own metadata meets all conditions
SELECT m.cid FROM ({intervals}) i CROSS JOIN conversation_metadata m ON m.tenant = :tenant AND {is_inside}
GROUP BY m.cid HAVING count(DISTINCT i.n) = :conditions

-- turns_where: find the turns that a recall looks at and whose metadata meets all conditions, as one list
SELECT group_concat(tid) FROM (
  SELECT m.tid FROM conversations c CROSS JOIN ({intervals}) i CROSS JOIN turn_metadata m ON m.cid = c.cid AND {is_inside}
  WHERE {where} GROUP BY m.tid HAVING count(DISTINCT i.n) = :conditions
)

-- turn_filter: the conditions of a search on a turn
{history_filter} AND (:conditions = 0 OR :conditions = (
  SELECT count(DISTINCT i.n) FROM ({intervals}) i CROSS JOIN turn_metadata m ON m.tid = t.tid AND {is_inside}))

-- search_filtered: find matching passages of turns that meet a filter, newest first; titles are left out
SELECT p.cid, p.tid FROM text_index x
JOIN passages p ON p.pid = x.rowid
JOIN conversations c ON c.cid = p.cid
JOIN turns t ON t.tid = p.tid
WHERE x.text_index MATCH :match AND {visible} AND t.active = 1 AND {turn_filter}
ORDER BY x.rowid DESC LIMIT :limit

-- fitting_turns: find the turns of a list that meet a filter
SELECT t.tid FROM json_each(:tids) j CROSS JOIN turns t ON t.tid = j.value WHERE {turn_filter}

-- open_stream: insert the lease of a pending turn
INSERT INTO streams (tid, cid, lease_until, length) VALUES (:tid, :cid, :lease_until, :length)

-- stream: read the progress of a pending turn
SELECT s.next_chunk, s.length FROM streams s WHERE s.tid = :tid

-- extend_stream: count one chunk and renew the lease
UPDATE streams SET next_chunk = :next_chunk, length = :length, lease_until = max(lease_until, :lease_until)
WHERE tid = :tid

-- renew_stream: renew the lease
UPDATE streams SET lease_until = max(lease_until, :lease_until) WHERE tid = :tid

-- close_stream: remove the lease
DELETE FROM streams WHERE tid = :tid

-- extend_turn: append text to a pending turn
UPDATE turns SET content = content || :text WHERE tid = :tid

-- commit_turn: make a pending turn complete
UPDATE turns SET status = 'complete', tool_calls = :tool_calls, sources = :sources, prompt_tokens = :prompt_tokens,
  completion_tokens = :completion_tokens, token_count = :token_count, model = :model, adapter = :adapter,
  finish_reason = :finish_reason, metadata = :metadata, content_hash = :content_hash
WHERE tid = :tid

-- abort_turn: make a pending turn aborted; its text stays for the record
UPDATE turns SET status = 'aborted', active = 0, superseded_by = CASE WHEN active = 1 THEN id ELSE superseded_by END,
  content_hash = :content_hash
WHERE tid = :tid

-- expired_streams: find streams whose lease has ended
SELECT s.tid, c.tenant, c.id FROM streams s JOIN conversations c ON c.cid = s.cid
WHERE s.lease_until <= :now AND c.gone IS NULL AND (c.expires_at IS NULL OR c.expires_at > :now) LIMIT 100

-- pending_turn: read a pending turn by its row number
SELECT {turn_columns} FROM turns t WHERE t.tid = :tid

-- next_lease_end: find when the next lease ends
SELECT min(lease_until) FROM streams

-- last_pid: find the last passage number; passages are numbered consecutively
SELECT coalesce(max(pid), 0) FROM passages

-- add_passage: insert the row that describes an indexed passage
INSERT INTO passages (pid, cid, tid, part, size, terms) VALUES (?, ?, ?, ?, ?, ?)

-- index_passage: insert the passage into the index itself
INSERT INTO text_index (rowid, scope, terms) VALUES (?, ?, ?)

-- lost_passages: check whether a conversation has fewer passages than were indexed
SELECT 1 FROM conversations c WHERE c.cid = :cid AND c.passage_count > (
  SELECT count(*) FROM turns t JOIN passages p ON p.tid = t.tid WHERE t.cid = :cid)

-- passages_of: read the passages of one turn
SELECT pid, part, terms, size FROM passages WHERE tid = :tid

-- last_passages_of: read the last passages of one turn, by their numbers
SELECT pid, part, terms, size FROM passages WHERE tid = :tid ORDER BY pid DESC LIMIT :limit

-- count_passages_of: count the passages of one turn
SELECT count(*) FROM passages WHERE tid = :tid

-- is_large_share: check whether a number of passages is more than a part of the index
SELECT :mine * :share > (SELECT count(*) FROM (SELECT 1 FROM passages LIMIT :mine * :share))

-- turns_of_many_passages: find the turns of a conversation that have more passages than one transaction should remove
SELECT t.id FROM turns t JOIN passages p ON p.tid = t.tid WHERE t.cid = :cid GROUP BY t.tid HAVING count(*) > :most

-- title_passage: read the passage of a title
SELECT pid, part, terms, size FROM passages WHERE pid = :pid

-- unindex_passage: remove a passage; FTS5 needs exactly the words that were indexed
INSERT INTO text_index (text_index, rowid, scope, terms) VALUES ('delete', :pid, :scope, :terms)

-- drop_passage: delete the row that describes a passage
DELETE FROM passages WHERE pid = :pid

-- flush_index: make FTS5 write its pending changes, which it otherwise keeps until the commit
INSERT INTO text_index (text_index) VALUES ('flush')

-- set_secure_delete: switch FTS5's own overwriting of deleted words off (0) or on (1)
INSERT INTO text_index (text_index, rank) VALUES ('secure-delete', :on)

-- mark_unmerged: remember that deleted words are in the index until it is merged
INSERT INTO meta (name, value) VALUES ('unmerged', 1) ON CONFLICT (name) DO UPDATE SET value = value + 1

-- unmerged: read that mark
SELECT value FROM meta WHERE name = 'unmerged'

-- drop_unmerged: remove it, unless more was deleted since it was read
DELETE FROM meta WHERE name = 'unmerged' AND value = :mark

-- merge_index: merge up to this number of pages of the index; a negative number begins a merge of all of it
INSERT INTO text_index (text_index, rank) VALUES ('merge', :pages)

-- count_all_passages: count the passages of a conversation, and of all
SELECT c.passage_count, (SELECT count(*) FROM passages) FROM conversations c WHERE c.cid = :cid

-- separators: per segment of the index, find the separator that leads to a removed term and was made from it
WITH RECURSIVE segments (id) AS (
  SELECT min(segid) FROM text_index_idx
  UNION ALL
  SELECT (SELECT min(segid) FROM text_index_idx WHERE segid > id) FROM segments WHERE id IS NOT NULL
), wanted (term) AS (SELECT CAST('0' || value AS BLOB) FROM json_each(:terms))
SELECT DISTINCT x.segid, x.term, x.pgno FROM segments s, wanted w, text_index_idx x
WHERE x.segid = s.id AND length(x.term) > 1
  AND x.term = (SELECT max(term) FROM text_index_idx WHERE segid = s.id AND term <= w.term)
  AND x.term = substr(w.term, 1, length(x.term))

-- leaf: read a page of the text index
SELECT block FROM text_index_data WHERE id = :id

-- save_separator: replace a separator with the term that its leaf begins with now
UPDATE text_index_idx SET term = :first WHERE segid = :segid AND term = :term

-- backlog: count how many turns the text index is behind, at most
SELECT coalesce((SELECT max(tid) FROM turns), 0) - (SELECT value FROM meta WHERE name = 'indexed_tid')

-- index_progress: read how far the text index has come, and how far it can come
SELECT value, coalesce((SELECT max(tid) FROM turns), 0) FROM meta WHERE name = 'indexed_tid'

-- next_part: read which passage of a turn's own words comes next; those of its files have higher numbers
SELECT coalesce(max(part) + 1, 0) FROM passages WHERE tid = :tid AND part < :files

-- indexed_tid: read how far the text index has come
SELECT value FROM meta WHERE name = 'indexed_tid'

-- save_indexed_tid: store how far it has come, after a batch
UPDATE meta SET value = :tid WHERE name = 'indexed_tid'

-- lower_indexed_tid: lower it after turns were deleted, because their numbers may be used again
UPDATE meta SET value = min(value, (SELECT coalesce(max(tid), 0) FROM turns)) WHERE name = 'indexed_tid'

-- analyzer: read the version of the rules that the indexed words were made by
SELECT value FROM meta WHERE name = 'analyzer'

-- save_analyzer: store that version
INSERT OR REPLACE INTO meta (name, value) VALUES ('analyzer', :analyzer)

-- languages_progress: read which turns may still be indexed as English only: those after the first number, through the
-- second one
SELECT (SELECT value FROM meta WHERE name = 'languages_tid'), (SELECT value FROM meta WHERE name = 'languages_through')

-- save_languages_progress: store them
INSERT OR REPLACE INTO meta (name, value) VALUES ('languages_tid', :tid), ('languages_through', :through)

-- to_complete: read the next turns that may be indexed as English only
SELECT t.tid, t.cid, t.is_parts, t.content, c.tenant, c.owner FROM turns t JOIN conversations c ON c.cid = t.cid
WHERE t.tid > :tid AND t.tid <= :through AND t.status = 'complete' ORDER BY t.tid LIMIT :limit

-- index_passage_again: insert a passage into the index under the number that it had
INSERT INTO text_index (rowid, scope, terms) VALUES (:pid, :scope, :terms)

-- save_passage_terms: store the terms of a passage that was indexed again under its number
UPDATE passages SET terms = :terms, size = :size WHERE pid = :pid

-- empty_index: empty the index before it is rebuilt
INSERT INTO text_index (text_index) VALUES ('delete-all')

-- empty_passages: delete the rows that describe its passages
DELETE FROM passages

-- index_ends: read the last passage and the last entry of the index, which have the same number, and whether it is being
-- filled again
SELECT coalesce((SELECT max(pid) FROM passages), 0), coalesce((SELECT max(id) FROM text_index_docsize), 0),
  EXISTS (SELECT 1 FROM meta WHERE name = 'rebuilding')

-- mark_rebuilding: remember that the index was damaged and is being filled again
INSERT OR REPLACE INTO meta (name, value) VALUES ('rebuilding', 1)

-- rebuilding: check whether it is being filled again
SELECT 1 FROM meta WHERE name = 'rebuilding'

-- mark_rebuilt: every turn is in it again
DELETE FROM meta WHERE name = 'rebuilding'

-- mark_index_damaged: remember that the index was found damaged, for all processes
INSERT OR REPLACE INTO meta (name, value) VALUES ('index_damaged', 1)

-- mark_index_sound: it was emptied, to be filled again
DELETE FROM meta WHERE name = 'index_damaged'

-- restart_embedders: let embedders go through all passages again, because these have other numbers now
UPDATE meta SET value = 0 WHERE name LIKE 'embedded_pid/%'

-- index_size: count the passages of turns that should be in the index, those that are, and the entries of the index
SELECT (SELECT coalesce(sum(c.passage_count), 0) FROM conversations c),
  (SELECT count(*) FROM passages p WHERE p.tid IS NOT NULL), (SELECT count(*) FROM passages),
  (SELECT count(*) FROM text_index_docsize)

-- titles: read the titles, to index them again
SELECT c.cid, c.tenant, c.owner, c.title FROM conversations c WHERE c.title IS NOT NULL

-- to_index: read the next turns that are not indexed, and whether their conversation is being deleted
SELECT t.tid, t.cid, t.id, t.status, t.is_parts, coalesce(t.content, ''), c.tenant, c.owner, coalesce(c.expires_at <= 2, 0) FROM turns t
JOIN conversations c ON c.cid = t.cid WHERE t.tid > :tid ORDER BY t.tid LIMIT :limit

-- search: find matching passages that the scope may see, newest first
SELECT p.cid, p.tid FROM text_index x
JOIN passages p ON p.pid = x.rowid
JOIN conversations c ON c.cid = p.cid
LEFT JOIN turns t ON t.tid = p.tid
WHERE x.text_index MATCH :match AND {visible} AND (p.tid IS NULL OR t.active = 1)
ORDER BY x.rowid DESC LIMIT :limit

-- turn_by_tid: read a turn by its row number
SELECT {turn_columns}, c.id FROM turns t JOIN conversations c ON c.cid = t.cid WHERE t.tid = :tid

-- tool_turns_after: read later turns with tool results, and with calls that may use an id again
SELECT {turn_columns} FROM turns t
WHERE t.cid = :cid AND t.seq > :seq AND (t.tool_results IS NOT NULL OR t.tool_calls IS NOT NULL) ORDER BY t.seq

-- remembered: read every turn that still has content
SELECT {turn_columns} FROM turns t WHERE t.cid = :cid AND t.status != 'forgotten' ORDER BY t.seq

-- stub: reduce a turn to its stub; with `keep_salt` a copy of the words kept elsewhere can still be proved
UPDATE turns SET status = 'forgotten', active = 0, idempotency_key = :idempotency_key,
  salt = CASE WHEN :keep_salt THEN salt END, {forgotten_fields}
WHERE tid = :tid

-- before_position: read summarised turns, on every branch
SELECT {turn_columns} FROM turns t
WHERE t.cid = :cid AND t.position < :position AND t.status IN ('complete', 'aborted') ORDER BY t.seq LIMIT :limit

-- older_than: find turns from before a time, in conversations that the scope may see
SELECT t.tid, c.id, t.id FROM turns t NOT INDEXED CROSS JOIN conversations c ON c.cid = t.cid
WHERE t.tid > :after AND {visible} AND t.created < :before AND t.status IN ('complete', 'aborted')
ORDER BY t.tid LIMIT :limit

-- retired_and_older: find retired turns from before a time that a summary still covers
SELECT c.id, t.id FROM summaries s JOIN conversations c ON c.cid = s.cid
JOIN turns t ON t.cid = s.cid AND t.active = 0 AND t.position >= s.from_seq AND t.position < s.through_seq
WHERE {visible} AND s.level = 0 AND s.stale = 0 AND t.status = 'forgotten' AND t.created < :before
  AND NOT EXISTS (SELECT 1 FROM turns k
    WHERE k.cid = s.cid AND k.active = 1 AND k.position >= s.from_seq AND k.position < s.through_seq)
LIMIT :limit

-- forgotten_by: check whether a turn was forgotten, and not only retired
SELECT 1 FROM events e WHERE e.cid = :cid AND e.turn = :turn AND e.kind = 'forget' LIMIT 1

-- unsalt: remove the salt, so that the turn's hash proves nothing any more
UPDATE turns SET salt = NULL WHERE tid = :tid

-- doom_turn_blobs: list the files of a turn for deletion after the commit
INSERT OR IGNORE INTO doomed_blobs (path) SELECT path FROM attachments WHERE cid = :cid AND tid = :tid

-- drop_turn_attachments: delete the rows of those files
DELETE FROM attachments WHERE cid = :cid AND tid = :tid

-- doom_blobs: list every file of a conversation for deletion
INSERT OR IGNORE INTO doomed_blobs (path) SELECT path FROM attachments WHERE cid = :cid

-- drop_attachments: delete the rows of those files
DELETE FROM attachments WHERE cid = :cid

-- drop_streams: end all streams of a conversation
DELETE FROM streams WHERE cid = :cid

-- drop_turns: delete all turns of a conversation
DELETE FROM turns WHERE cid = :cid

-- leave_tombstone: clear the fields of a deleted conversation; its row and its log remain
UPDATE conversations SET key = NULL, workspace = NULL, agent = NULL, model = NULL, title = NULL, title_pid = NULL,
  preview = NULL, participants = '[]', metadata = NULL, settings = NULL, ttl = NULL, expires_at = NULL, salt = NULL,
  content_hash = NULL, turn_count = 0, token_count = 0, tip_position = -1, tip_slot = NULL, gone = :at
WHERE cid = :cid

-- expired: find expired conversations that the scope may see
SELECT c.id FROM conversations c WHERE {allowed} AND c.gone IS NULL AND c.expires_at <= :now LIMIT :limit

-- find_expired: find one of them, for deletion
SELECT {open_columns} FROM conversations c WHERE c.tenant = :tenant AND c.id = :id AND c.gone IS NULL

-- hidden: find a conversation that is being deleted in slices, and in which way
SELECT c.owner, c.expires_at FROM conversations c
WHERE c.id = :id AND {allowed} AND c.gone IS NULL AND c.expires_at <= 2

-- find_hidden: open one of them, unless it is finished already
SELECT {open_columns} FROM conversations c
WHERE c.tenant = :tenant AND c.id = :id AND c.gone IS NULL AND c.expires_at = :code

-- all_hidden: find all of them that the scope may see
SELECT c.cid, c.id, c.expires_at FROM conversations c WHERE {allowed} AND c.gone IS NULL AND c.expires_at <= 2

-- hide: hide a conversation before it is deleted in slices; a reset keeps its key and its time to live
UPDATE conversations SET expires_at = :code, key = CASE WHEN :code = 2 THEN key END, ttl = CASE WHEN :code = 2 THEN ttl END
WHERE cid = :cid

-- is_large: check whether a conversation has more rows than one transaction should delete
SELECT 1 FROM conversations c WHERE c.cid = :cid AND (c.passage_count > 4 * :most
  OR (SELECT count(*) FROM (SELECT 1 FROM turns WHERE cid = :cid LIMIT :most + 1)) > :most
  OR (SELECT count(*) FROM (SELECT 1 FROM requests WHERE cid = :cid LIMIT :most + 1)) > :most
  OR (SELECT count(*) FROM (SELECT 1 FROM facts WHERE cid = :cid LIMIT 4 * :most + 1)) > 4 * :most
  OR (SELECT count(*) FROM (SELECT 1 FROM summaries WHERE cid = :cid LIMIT 4 * :most + 1)) > 4 * :most)

-- turns_to_unindex: read the next turns of a round
SELECT {turn_columns} FROM turns t WHERE t.cid = :cid AND t.seq > :after AND t.seq % :step = :rest
ORDER BY t.seq LIMIT :limit

-- next_turns: read the next turns, forgotten ones included
SELECT {turn_columns} FROM turns t WHERE t.cid = :cid AND t.seq > :after ORDER BY t.seq LIMIT :limit

-- drop_turn: delete one turn
DELETE FROM turns WHERE tid = :tid

-- drop_some_bodies: delete a few of the bodies that may contain a turn
UPDATE requests SET body = NULL WHERE rid IN (
  SELECT r.rid FROM requests r WHERE r.cid = :cid AND r.body IS NOT NULL AND r.next_seq > :seq LIMIT :limit)
RETURNING rid

-- drop_some_request_quotes: delete the quotes of the next requests, before the requests
DELETE FROM request_quotes WHERE rid IN (SELECT r.rid FROM requests r WHERE r.cid = :cid ORDER BY r.rid LIMIT :limit)

-- drop_some_requests: delete the next requests
DELETE FROM requests WHERE rid IN (SELECT r.rid FROM requests r WHERE r.cid = :cid ORDER BY r.rid LIMIT :limit)
RETURNING rid

-- drop_some_facts: delete the next facts
DELETE FROM facts WHERE fid IN (SELECT f.fid FROM facts f WHERE f.cid = :cid LIMIT :limit) RETURNING fid

-- drop_some_summaries: delete the next summaries
DELETE FROM summaries WHERE sid IN (SELECT s.sid FROM summaries s WHERE s.cid = :cid LIMIT :limit) RETURNING sid

-- drop_some_vectors: delete the next vectors
DELETE FROM embeddings WHERE eid IN (SELECT e.eid FROM embeddings e WHERE e.cid = :cid LIMIT :limit) RETURNING eid

-- drop_some_marks: delete the next marks
DELETE FROM marks WHERE tid IN (SELECT m.tid FROM marks m WHERE m.cid = :cid LIMIT :limit) RETURNING tid

-- doom_some_blobs: list the next files for deletion
INSERT OR IGNORE INTO doomed_blobs (path)
SELECT a.path FROM attachments a WHERE a.cid = :cid ORDER BY a.aid LIMIT :limit

-- drop_some_attachments: delete the rows of those files
DELETE FROM attachments WHERE aid IN (SELECT a.aid FROM attachments a WHERE a.cid = :cid ORDER BY a.aid LIMIT :limit)
RETURNING aid

-- mark_unscrubbed: remember that old bytes may be in the WAL and in gaps; the number changes with every deletion
INSERT INTO meta (name, value) VALUES ('scrub', 1) ON CONFLICT (name) DO UPDATE SET value = value + 1

-- unscrubbed: check for that mark
SELECT 1 FROM meta WHERE name = 'scrub'

-- blobs_to_delete: read the files that are to be deleted
SELECT path FROM doomed_blobs LIMIT :limit

-- blob_deleted: remove a deleted file from that list
DELETE FROM doomed_blobs WHERE path = :path

-- add_attachment: insert a stored file
INSERT INTO attachments (cid, tid, id, owner, filename, media_type, bytes, sha256, path, created)
VALUES (:cid, :tid, :id, :owner, :filename, :media_type, :bytes, :sha256, :path, :created)

-- attachment: read a file by its id
SELECT a.id, a.filename, a.media_type, a.bytes, a.sha256, a.path, a.owner, t.id FROM attachments a
LEFT JOIN turns t ON t.tid = a.tid WHERE a.cid = :cid AND a.id = :id

-- attachments: list the newest files of a conversation
SELECT a.id, a.filename, a.media_type, a.bytes, a.sha256, a.path, a.owner, t.id FROM attachments a
LEFT JOIN turns t ON t.tid = a.tid WHERE a.cid = :cid
  AND (:before IS NULL OR a.aid < (SELECT aid FROM attachments WHERE cid = :cid AND id = :before))
ORDER BY a.aid DESC LIMIT :limit

-- loose_files: find files that were never attached to a turn
SELECT c.id, a.aid, a.id, a.path FROM attachments a JOIN conversations c ON c.cid = a.cid
WHERE a.tid IS NULL AND a.created < :before AND {visible} LIMIT :limit

-- doom_blob: list one of them for deletion after the commit
INSERT OR IGNORE INTO doomed_blobs (path) VALUES (:path)

-- drop_attachment: delete its row
DELETE FROM attachments WHERE aid = :aid

-- orphans: find paths in the folder of a conversation, even a deleted one, that belong to no row
SELECT p.path FROM (
  SELECT value AS path, substr(value, instr(value, '/') + 1) AS inside FROM json_each(:paths)
) p JOIN conversations c ON c.id = substr(p.inside, 1, instr(p.inside, '/') - 1) AND {allowed}
WHERE NOT EXISTS (SELECT 1 FROM attachments a WHERE a.cid = c.cid AND a.path = p.path)
  AND NOT EXISTS (SELECT 1 FROM doomed_blobs d WHERE d.path = p.path)

-- unread_files: find attached files whose text was not extracted; full results of tools are not searched
SELECT a.id, a.filename, a.media_type, a.bytes, a.sha256, a.path, a.owner, t.id FROM attachments a
JOIN turns t ON t.tid = a.tid WHERE a.cid = :cid AND a.characters IS NULL AND t.role != 'tool'
ORDER BY a.aid LIMIT :limit

-- file_to_read: find one of them, and its place among the files of its turn
SELECT a.aid, a.tid, (SELECT count(*) FROM attachments b WHERE b.cid = a.cid AND b.tid = a.tid AND b.aid < a.aid)
FROM attachments a WHERE a.cid = :cid AND a.id = :id AND a.tid IS NOT NULL AND a.characters IS NULL

-- save_read: store that a file was read, and with what result
UPDATE attachments SET characters = :characters, problem = :problem WHERE aid = :aid

-- unread_all: make all files unread, because the index is rebuilt
UPDATE attachments SET characters = NULL, problem = NULL WHERE characters IS NOT NULL

-- drop_file_passages: delete all extracted text, because the index is rebuilt
DELETE FROM file_passages

-- read_all_again: enqueue the reading of all files
INSERT INTO jobs (cid, kind, run_at, created) SELECT DISTINCT cid, 'files', :now, :now FROM attachments
WHERE tid IS NOT NULL ON CONFLICT (cid, kind) DO UPDATE SET created = max(jobs.created + 1, excluded.created), dead = 0

-- add_file_passage: insert a passage of extracted text
INSERT INTO file_passages (aid, tid, part, text) VALUES (:aid, :tid, :part, :text)

-- file_read: read whether a file was read
SELECT a.aid, a.characters, a.problem FROM attachments a WHERE a.cid = :cid AND a.id = :id

-- file_passages: read the extracted text of a file
SELECT f.text FROM file_passages f WHERE f.aid = :aid ORDER BY f.part

-- file_terms: read the stems of each passage of the files of some turns
SELECT p.tid, p.part, p.terms FROM json_each(:tids) j CROSS JOIN passages p ON p.tid = j.value
WHERE p.part >= :first ORDER BY p.tid, p.part

-- file_quote: read one passage and its file
SELECT a.id, a.filename, f.text, a.cid FROM file_passages f JOIN attachments a ON a.aid = f.aid
JOIN conversations c ON c.cid = a.cid WHERE f.tid = :tid AND f.part = :part AND {visible}

-- bind_attachment: attach a file to a turn, unless it is attached already
UPDATE attachments SET tid = :tid WHERE cid = :cid AND id = :id AND tid IS NULL RETURNING aid

-- events: read the log, filtered
SELECT e.n, e.kind, e.turn, e.actor, e.at, e.payload, e.content_hash, e.hash FROM events e
WHERE e.cid = :cid AND e.n > :after
  AND (:turn IS NULL OR e.turn = :turn)
  AND (:since IS NULL OR e.at >= :since) AND (:until IS NULL OR e.at < :until)
  AND (:kinds IS NULL OR e.kind IN (SELECT value FROM json_each(:kinds)))
  AND (:actors IS NULL OR e.actor IN (SELECT value FROM json_each(:actors)))
ORDER BY e.n LIMIT :limit

-- event_records: read the log as stored
SELECT e.* FROM events e WHERE e.cid = :cid AND e.n > :after AND e.n <= :through ORDER BY e.n

-- turn_records: read the turns as stored
SELECT t.* FROM turns t WHERE t.cid = :cid AND t.seq >= :from_seq AND t.seq < :before_seq ORDER BY t.seq

-- attachment_records: read the files as stored
SELECT a.*, t.id AS turn FROM attachments a LEFT JOIN turns t ON t.tid = a.tid WHERE a.cid = :cid ORDER BY a.aid

-- working_memory_records: read the working memory as stored
SELECT w.memory, w.through_seq, p.salt, p.n AS proof FROM working_memory w
LEFT JOIN proofs p ON p.cid = w.cid AND p.key = 'notes' WHERE w.cid = :cid

-- fact_records: read the facts as stored
SELECT {fact_columns}, p.salt, p.n AS proof FROM facts f
LEFT JOIN proofs p ON p.cid = f.cid AND p.key = 'fact/' || f.id WHERE f.cid = :cid ORDER BY f.fid

-- known: read whether a conversation id exists in this tenant, and how far its log goes
SELECT next_n, tip_hash, gone IS NOT NULL OR coalesce(expires_at <= 1, 0) FROM conversations
WHERE tenant = :tenant AND id = :id

-- stats: count conversations, turns, tokens and events that the scope may see
SELECT count(*), coalesce(sum(c.turn_count), 0), coalesce(sum(c.token_count), 0), coalesce(sum(c.next_n - 1), 0)
FROM conversations c WHERE {visible} AND {is_thread}

-- attachment_stats: count files that the scope may see
SELECT count(*), coalesce(sum(a.bytes), 0) FROM attachments a JOIN conversations c ON c.cid = a.cid WHERE {visible}

-- stream_stats: count open streams that the scope may see
SELECT count(*) FROM streams s JOIN conversations c ON c.cid = s.cid WHERE {visible}

-- file_stats: count unfinished deletions in this file
SELECT (SELECT count(*) FROM doomed_blobs), (SELECT count(*) FROM meta WHERE name = 'scrub')

-- ---- memory

-- bump: count a change of the view that is not an append
UPDATE conversations SET revision = revision + 1 WHERE cid = :cid

-- memory_head: read how far memory has come
SELECT revision, summarized_position, summarized_turns, summarized_tokens FROM conversations WHERE cid = :cid

-- tail: read the active branch backwards; the reader stops when it has enough
SELECT {turn_columns} FROM turns t WHERE t.cid = :cid AND t.active = 1 ORDER BY t.position DESC

-- newest_user_turn: find the current message
SELECT {turn_columns} FROM turns t
WHERE t.cid = :cid AND t.active = 1 AND t.role = 'user' AND t.status = 'complete' ORDER BY t.position DESC LIMIT 1

-- newest_other_turn: find the current message for one agent of several
SELECT {turn_columns} FROM turns t
WHERE t.cid = :cid AND t.active = 1 AND t.status = 'complete' AND t.role IN ('user', 'assistant')
  AND t.actor != :viewer AND t.tool_calls IS NULL ORDER BY t.position DESC LIMIT 1

-- summary_columns: the columns of a Summary
s.id, s.level, s.from_seq, s.through_seq, s.text, s.model, s.token_count, s.turns, s.created

-- all_summaries: read all valid summaries
SELECT {summary_columns} FROM summaries s WHERE s.cid = :cid AND s.stale = 0 ORDER BY s.from_seq, s.level

-- shown_summaries: read the widest summaries that end before `start`, and all after it: a window may begin where
-- any of those ends. Reads few rows in any conversation: narrower levels only where a wide summary is stale or too long
WITH RECURSIVE levels (level, at) AS (
  SELECT max(s.level), 0 FROM summaries s WHERE s.cid = :cid
  UNION ALL
  SELECT l.level - 1, max(l.at, coalesce((
    SELECT s.through_seq FROM summaries s WHERE s.cid = :cid AND s.level = l.level ORDER BY s.from_seq DESC LIMIT 1), 0))
  FROM levels l WHERE l.level > 0
), found (sid, level, from_seq, through_seq, stale) AS (
  SELECT s.sid, s.level, s.from_seq, s.through_seq, s.stale
  FROM levels l CROSS JOIN summaries s ON s.cid = :cid AND s.level = l.level AND s.from_seq >= l.at
  UNION ALL
  SELECT b.sid, b.level, b.from_seq, b.through_seq, b.stale
  FROM found f CROSS JOIN summaries b ON b.cid = :cid AND b.level = f.level - 1 AND b.from_seq >= f.from_seq
    AND b.from_seq < f.through_seq
  WHERE f.stale OR f.through_seq > :start
)
SELECT {summary_columns} FROM found f CROSS JOIN summaries s ON s.sid = f.sid WHERE f.stale = 0
ORDER BY f.from_seq, f.through_seq DESC

-- stale_summaries: read the summaries that must be written again
SELECT {summary_columns} FROM summaries s WHERE s.cid = :cid AND s.stale = 1 ORDER BY s.level, s.from_seq

-- level: read the summaries of one level, in order
SELECT {summary_columns} FROM summaries s WHERE s.cid = :cid AND s.level = :level AND s.stale = 0
  AND s.from_seq >= :from AND s.through_seq <= :through ORDER BY s.from_seq

-- uncovered: read the summaries of a level that no summary of the next level covers
SELECT {summary_columns} FROM summaries s WHERE s.cid = :cid AND s.level = :level AND s.stale = 0
  AND s.from_seq >= (SELECT coalesce(max(w.through_seq), 0) FROM summaries w WHERE w.cid = :cid AND w.level = :level + 1)
ORDER BY s.from_seq

-- add_summary: insert a summary, or replace the one of the same span
INSERT INTO summaries (cid, id, level, from_seq, through_seq, turns, tokens, text, token_count, model, created)
VALUES (:cid, :id, :level, :from_seq, :through_seq, :turns, :tokens, :text, :token_count, :model, :created)
ON CONFLICT (cid, level, from_seq) DO UPDATE SET id = excluded.id, through_seq = excluded.through_seq,
  turns = excluded.turns, tokens = excluded.tokens, text = excluded.text, token_count = excluded.token_count,
  model = excluded.model, stale = 0, created = excluded.created

-- drop_summary: delete a summary whose turns are deleted
DELETE FROM summaries WHERE cid = :cid AND level = :level AND from_seq = :from_seq

-- advance: move the position where the next summary starts
UPDATE conversations SET summarized_position = :position, summarized_turns = summarized_turns + :turns,
  summarized_tokens = summarized_tokens + :tokens
WHERE cid = :cid

-- recount_summarized: count what lies after the last summary; the rest is summarised. The end of a view is short
UPDATE conversations SET
  summarized_turns = :turn_count - (SELECT count(*) FROM turns t
    WHERE t.cid = :cid AND t.active = 1 AND t.position >= summarized_position),
  summarized_tokens = :token_count - (SELECT coalesce(sum(t.token_count), 0) FROM turns t
    WHERE t.cid = :cid AND t.active = 1 AND t.position >= summarized_position)
WHERE cid = :cid

-- spoil: make the summaries stale that cover a changed position: at most one on each level
WITH RECURSIVE levels (level) AS (
  SELECT max(s.level) FROM summaries s WHERE s.cid = :cid
  UNION ALL
  SELECT level - 1 FROM levels WHERE level > 0
)
UPDATE summaries SET stale = 1, text = '', token_count = 0 WHERE through_seq > :position AND sid IN (
  SELECT (SELECT s.sid FROM summaries s WHERE s.cid = :cid AND s.level = l.level AND s.from_seq <= :position
    ORDER BY s.from_seq DESC LIMIT 1) FROM levels l WHERE l.level IS NOT NULL)
RETURNING level, from_seq

-- drop_summaries_beyond: delete summaries of turns that left the view
DELETE FROM summaries WHERE cid = :cid AND through_seq > :position RETURNING level, from_seq

-- reset_summarized: set the summarised position from the summaries that are left
UPDATE conversations
SET summarized_position = (SELECT coalesce(max(through_seq), 0) FROM summaries WHERE cid = :cid AND level = 0)
WHERE cid = :cid

-- forget_summaries: delete all summaries of a conversation
DELETE FROM summaries WHERE cid = :cid

-- restart_memory: reset the summarised counts of a conversation
UPDATE conversations SET summarized_position = 0, summarized_turns = 0, summarized_tokens = 0, fact_count = 0,
  vector_count = 0, has_memory = 0 WHERE cid = :cid

-- span: read the turns of the view in a span
SELECT {turn_columns} FROM turns t
WHERE t.cid = :cid AND t.active = 1 AND t.position >= :from AND t.position < :through ORDER BY t.position

-- speakers: find who spoke in a span of the view, or of turns whose words retention has removed; tools do not speak
SELECT t.actor FROM turns t
WHERE t.cid = :cid AND t.active = 1 AND t.position >= :from AND t.position < :through AND t.role != 'tool'
UNION
SELECT t.actor FROM turns t
WHERE :retired AND t.cid = :cid AND t.active = 0 AND t.position >= :from AND t.position < :through AND t.role != 'tool'
  AND t.status = 'forgotten' AND t.superseded_by IS NULL

-- working_memory: read the working memory
SELECT memory, through_seq FROM working_memory WHERE cid = :cid

-- save_working_memory: store the working memory
INSERT INTO working_memory (cid, memory, through_seq, updated) VALUES (:cid, :memory, :through_seq, :updated)
ON CONFLICT (cid) DO UPDATE SET memory = excluded.memory, through_seq = excluded.through_seq, updated = excluded.updated

-- drop_working_memory: delete it with the conversation
DELETE FROM working_memory WHERE cid = :cid

-- fact_columns: the columns of a Fact
f.id, f.subject, f.predicate, f.object, f.source_turn, f.confidence, f.valid_from, f.invalidated_at, f.invalidated_by,
f.by, f.created, f.valid_to, f.learnt

-- facts: read the valid facts, or all
SELECT {fact_columns} FROM facts f WHERE f.cid = :cid AND (:all OR f.invalidated_at IS NULL) ORDER BY f.fid

-- recent_facts: read the newest valid facts
SELECT * FROM (
  SELECT {fact_columns}, f.fid FROM facts f WHERE f.cid = :cid AND f.invalidated_at IS NULL ORDER BY f.fid DESC LIMIT :limit)
ORDER BY fid

-- facts_where: read the valid facts of the conversations that a recall searches
SELECT {fact_columns}, f.cid FROM facts f JOIN conversations c ON c.cid = f.cid WHERE {where} AND f.invalidated_at IS NULL
ORDER BY f.fid

-- facts_to_embed: find valid facts without a vector of this embedder
SELECT c.tenant, c.id, f.id, f.subject || ' ' || f.predicate || ' ' || f.object FROM facts f
JOIN conversations c ON c.cid = f.cid
WHERE f.invalidated_at IS NULL AND (f.model IS NULL OR f.model < :model OR f.model > :model) LIMIT :limit

-- put_fact_vector: store the vector of a fact
UPDATE facts SET model = :model, vector = :vector
WHERE id = :id AND cid = (SELECT c.cid FROM conversations c WHERE c.tenant = :tenant AND c.id = :conversation)

-- fact_vectors: read the vectors of one embedder in the conversations that a recall searches
SELECT f.id, f.vector FROM facts f JOIN conversations c ON c.cid = f.cid
WHERE {where} AND f.invalidated_at IS NULL AND f.model = :model

-- add_fact: insert a fact, unless the same one was stored since the caller read them
INSERT INTO facts (cid, id, subject, predicate, object, source_turn, confidence, valid_from, by, created, valid_to, learnt)
SELECT :cid, :id, :subject, :predicate, :object, :source_turn, :confidence, :valid_from, :by, :created, :valid_to, :learnt
WHERE NOT EXISTS (SELECT 1 FROM facts f WHERE f.cid = :cid AND f.invalidated_at IS NULL
  AND f.subject = :subject AND f.predicate = :predicate AND f.object = :object AND f.valid_to IS :valid_to)
RETURNING id

-- invalidate_fact: mark a fact as replaced; it held until its replacement did
UPDATE facts SET invalidated_at = :at, invalidated_by = :by,
  valid_to = (SELECT max(n.valid_from, facts.valid_from) FROM facts n WHERE n.cid = :cid AND n.id = :by)
WHERE cid = :cid AND id = :id AND invalidated_at IS NULL

-- drop_fact: delete a fact
DELETE FROM facts WHERE cid = :cid AND id = :id RETURNING id

-- drop_facts_of_turn: delete the facts whose source is forgotten
DELETE FROM facts WHERE cid = :cid AND source_turn = :turn RETURNING id

-- drop_facts_out_of_view: delete the facts whose source is on another branch now
DELETE FROM facts WHERE cid = :cid AND source_turn IN (
  SELECT t.id FROM turns t WHERE t.cid = :cid AND t.active = 0 AND t.position >= :position AND t.status != 'forgotten')
RETURNING id

-- replaced_facts: find the facts that deleted ones had replaced
SELECT id FROM facts WHERE cid = :cid AND invalidated_by IN (SELECT value FROM json_each(:gone))

-- revive_facts: make facts valid again whose replacement is deleted
UPDATE facts SET invalidated_at = NULL, invalidated_by = NULL, valid_to = NULL
WHERE cid = :cid AND invalidated_by IN (SELECT value FROM json_each(:gone))

-- drop_facts: delete all facts of a conversation
DELETE FROM facts WHERE cid = :cid

-- mark: mark a turn as a standing instruction or a preference
INSERT INTO marks (tid, standing) SELECT t.tid, :standing FROM turns t WHERE t.tid = :tid AND t.status = 'complete'
ON CONFLICT (tid) DO UPDATE SET standing = max(standing, excluded.standing)

-- bump_marked: count new marks, so that cached profiles notice them
UPDATE conversations SET marked = marked + 1
WHERE cid IN (SELECT t.cid FROM turns t JOIN json_each(:tids) j ON t.tid = j.value)

-- unmark: delete the mark of a turn
DELETE FROM marks WHERE tid = :tid

-- drop_marks: delete all marks of a conversation
DELETE FROM marks WHERE cid = :cid

-- drop_vectors_of_turn: delete the vectors of a turn
DELETE FROM embeddings WHERE tid = :tid RETURNING cid

-- count_vectors: count the vectors that a conversation should have
UPDATE conversations SET vector_count = max(0, vector_count + :count) WHERE cid = :cid

-- count_facts: count the facts that a conversation should have
UPDATE conversations SET fact_count = max(0, fact_count + :count) WHERE cid = :cid

-- mark_memory: record whether a conversation should have a working memory
UPDATE conversations SET has_memory = :has WHERE cid = :cid

-- drop_vectors: delete all vectors of a conversation
DELETE FROM embeddings WHERE cid = :cid

-- count_passages: count what the text index holds of a conversation
UPDATE conversations SET passage_count = passage_count + :count, passage_terms = passage_terms + :terms WHERE cid = :cid

-- forget_passage_counts: reset those counts before the index is rebuilt
UPDATE conversations SET passage_count = 0, passage_terms = 0 WHERE passage_count != 0

-- ---- damage and repair

-- expected: read how much of memory a conversation should have, and how much is there
SELECT c.has_memory, EXISTS (SELECT 1 FROM working_memory w WHERE w.cid = c.cid), c.fact_count,
  (SELECT count(*) FROM facts f WHERE f.cid = c.cid), c.vector_count,
  (SELECT count(*) FROM embeddings e WHERE e.cid = c.cid), c.summarized_position
FROM conversations c WHERE c.cid = :cid

-- missing_memory: count what is missing in the memory of a conversation; summaries may be, if their spans do not add up.
-- Every context asks, so only the last summaries of turns and a limited number of facts are counted. Background work
-- looks at all of them (damaged_conversations)
SELECT c.has_memory - EXISTS (SELECT 1 FROM working_memory w WHERE w.cid = c.cid),
  min(c.fact_count, 1000) - (SELECT count(*) FROM (SELECT 1 FROM facts f WHERE f.cid = c.cid LIMIT 1000)),
  (SELECT c.summarized_position - CASE WHEN count(*) < 400 THEN 0 ELSE min(last.from_seq) END
      > coalesce(sum(last.through_seq - last.from_seq), 0)
    FROM (SELECT s.from_seq, s.through_seq FROM summaries s WHERE s.cid = c.cid AND s.level = 0
      AND s.from_seq < c.summarized_position ORDER BY s.from_seq DESC LIMIT 400) AS last)
FROM conversations c WHERE c.cid = :cid

-- damaged_conversations: find conversations in which rows of memory are missing, or summaries do not follow one another;
-- those that are being deleted (see `hide`) are left out
SELECT c.cid, c.tenant, c.id FROM conversations c WHERE c.gone IS NULL AND coalesce(c.expires_at, 9) > 2 AND (
  c.has_memory > EXISTS (SELECT 1 FROM working_memory w WHERE w.cid = c.cid)
  OR c.fact_count > (SELECT count(*) FROM facts f WHERE f.cid = c.cid)
  OR c.vector_count > (SELECT count(*) FROM embeddings e WHERE e.cid = c.cid)
  OR c.summarized_position > (SELECT coalesce(sum(s.through_seq - s.from_seq), 0) FROM summaries s
    WHERE s.cid = c.cid AND s.level = 0))
ORDER BY c.cid

-- summary_places: read where the summaries of a conversation are, without their text
SELECT s.sid, s.level, s.from_seq, s.through_seq, s.stale FROM summaries s WHERE s.cid = :cid
ORDER BY s.level, s.from_seq, s.through_seq

-- numbered_summaries: read the summaries with their row numbers
SELECT {summary_columns}, s.sid FROM summaries s WHERE s.cid = :cid AND s.stale = 0

-- numbered_facts: read the facts with their row numbers
SELECT {fact_columns}, f.fid FROM facts f WHERE f.cid = :cid

-- fact_numbers: read the row numbers of the facts
SELECT f.fid FROM facts f WHERE f.cid = :cid

-- spoil_damaged: make a damaged summary stale; its words are gone
UPDATE summaries SET id = :id, stale = 1, text = '', model = '', token_count = 0, turns = max(0, turns),
  tokens = max(0, tokens), created = :now WHERE sid = :sid

-- drop_damaged_summary: delete a summary whose place is damaged
DELETE FROM summaries WHERE sid = :sid

-- add_stale_summary: insert a place for a summary that was lost
INSERT INTO summaries (cid, id, level, from_seq, through_seq, turns, tokens, text, token_count, model, stale, created)
SELECT :cid, :id, :level, :from, :through, count(*), coalesce(sum(t.token_count), 0), '', 0, '', 1, :now FROM turns t
WHERE t.cid = :cid AND t.active = 1 AND t.status = 'complete' AND t.position >= :from AND t.position < :through

-- has_turns: check whether a span of the view has turns
SELECT 1 FROM turns t WHERE t.cid = :cid AND t.active = 1 AND t.status = 'complete' AND t.position >= :from
  AND t.position < :through LIMIT 1

-- set_fact_aside: keep the bytes of a damaged fact
INSERT INTO set_aside (cid, source, at, data)
SELECT f.cid, 'facts', :now, CAST(f.subject || x'1f' || f.predicate || x'1f' || f.object AS BLOB) FROM facts f
WHERE f.fid = :fid

-- set_memory_aside: keep the bytes of a damaged working memory
INSERT INTO set_aside (cid, source, at, data)
SELECT w.cid, 'working_memory', :now, CAST(w.memory AS BLOB) FROM working_memory w WHERE w.cid = :cid

-- memory_bytes: read a working memory that may not be text
SELECT CAST(memory AS BLOB) FROM working_memory WHERE cid = :cid

-- drop_damaged_fact: delete a fact that cannot be read
DELETE FROM facts WHERE fid = :fid

-- save_fact_count: count the facts that are there, after a repair
UPDATE conversations SET fact_count = (SELECT count(*) FROM facts f WHERE f.cid = :cid) WHERE cid = :cid

-- save_vector_count: count the vectors that are there, after a repair
UPDATE conversations SET vector_count = (SELECT count(*) FROM embeddings e WHERE e.cid = :cid) WHERE cid = :cid

-- all_vectors: read the vectors of a conversation
SELECT e.eid, e.model, e.vector FROM embeddings e WHERE e.cid = :cid

-- drop_vector: delete a vector that is damaged
DELETE FROM embeddings WHERE eid = :eid

-- number_of: read the number of a conversation
SELECT c.cid FROM conversations c WHERE c.tenant = :tenant AND c.id = :id AND c.gone IS NULL

-- all_conversations: list the conversations of all tenants, but for those that are being deleted
SELECT c.cid, c.tenant, c.id FROM conversations c WHERE c.gone IS NULL AND coalesce(c.expires_at, 9) > 2 ORDER BY c.cid

-- restart_embedders_at: let embedders go through the passages of a conversation again
UPDATE meta SET value = min(value, (SELECT coalesce(min(p.pid), 1) - 1 FROM turns t JOIN passages p ON p.tid = t.tid
  WHERE t.cid = :cid)) WHERE name LIKE 'embedded_pid/%'

-- count_set_aside: count the damaged rows that are kept for people to look at
SELECT c.tenant, c.id, a.source, count(*) FROM set_aside a JOIN conversations c ON c.cid = a.cid
GROUP BY c.tenant, c.id, a.source

-- drop_set_aside: delete the damaged rows of a conversation that are kept, because they may quote a forgotten turn
DELETE FROM set_aside WHERE cid = :cid

-- files_without_words: find files whose extracted text is lost
SELECT a.aid, a.cid FROM attachments a WHERE a.characters > 0 AND NOT EXISTS (
  SELECT 1 FROM file_passages f WHERE f.aid = a.aid)

-- unindexed: read the newest turns that are not in the text index, of conversations that a search looks at
SELECT t.tid, t.cid, t.is_parts, t.content FROM turns t NOT INDEXED JOIN conversations c ON c.cid = t.cid
WHERE t.tid > :after AND t.active = 1 AND t.status = 'complete' AND {where} ORDER BY t.tid DESC LIMIT :limit

-- ---- recall

-- where: the predicate for the conversations that a recall searches
{visible} AND (:conversation IS NULL OR c.id = :conversation) AND (:owner IS NULL OR c.owner = :owner)

-- count_passages_there: count the passages of the conversations that a recall searches
SELECT count(*) FROM conversations c CROSS JOIN turns t ON t.cid = c.cid CROSS JOIN passages p ON p.tid = t.tid WHERE {where}

-- recall_stamp: compute the stamp that shows whether a cached profile is still valid
SELECT coalesce(sum(c.passage_count), 0), coalesce(sum(c.passage_terms), 0),
  count(*), coalesce(sum(c.revision), 0), coalesce(sum(c.cid), 0), coalesce(sum(c.cid * c.cid), 0),
  coalesce(sum(c.marked), 0)
FROM conversations c WHERE {where}

-- shape: the columns that recall knows of a turn, without its words
t.tid, t.cid, t.position, t.created, max(t.token_count, t.attachments IS NOT NULL), t.role, t.actor,
  coalesce(m.standing, 0), t.status

-- profile: read the shape of every turn
SELECT {shape} FROM turns t JOIN conversations c ON c.cid = t.cid LEFT JOIN marks m ON m.tid = t.tid
WHERE {where} AND t.active = 1 AND t.status = 'complete' AND t.tid > :after
ORDER BY t.cid, t.position

-- profile_marked: read the shapes of marked turns, by conversation; CROSS JOIN fixes the order
SELECT {shape} FROM conversations c CROSS JOIN marks m ON m.cid = c.cid CROSS JOIN turns t ON t.tid = m.tid
WHERE {where} AND t.active = 1 AND t.status = 'complete' AND t.tid <= :after

-- newest_turn: read the highest row number of a turn
SELECT coalesce(max(tid), 0) FROM turns

-- profile_news: read the shapes of the newest turns in the file, for when they are few
SELECT {shape} FROM turns t NOT INDEXED CROSS JOIN conversations c ON c.cid = t.cid LEFT JOIN marks m ON m.tid = t.tid
WHERE {where} AND t.active = 1 AND t.status = 'complete' AND t.tid > :after
ORDER BY t.cid, t.position

-- first_pending: find the first pending turn; from there on a profile must be read again
SELECT coalesce(min(s.tid), :end) FROM streams s JOIN conversations c ON c.cid = s.cid WHERE {where}

-- postings: find the passages with one stem, as two joined lists: thousands of rows would cost more than finding them
SELECT group_concat(tid), group_concat(size) FROM (
  SELECT p.tid, p.size FROM text_index x JOIN passages p ON p.pid = x.rowid JOIN conversations c ON c.cid = p.cid
  WHERE x.text_index MATCH :match AND p.tid IS NOT NULL AND {where} ORDER BY x.rowid DESC LIMIT :limit
)

-- has_one_tenant: check whether all conversations of the file are of one tenant
SELECT (SELECT min(tenant) FROM conversations) IS (SELECT max(tenant) FROM conversations)

-- conversation_postings: find the same inside one conversation, whose word is part of the match
SELECT group_concat(tid), group_concat(size) FROM (
  SELECT p.tid, p.size FROM text_index x JOIN passages p ON p.pid = x.rowid
  WHERE x.text_index MATCH :match AND p.tid IS NOT NULL ORDER BY x.rowid DESC LIMIT :limit
)

-- vector_stamp: count the vectors after a number, and find the newest; of all models, so that the index suffices
SELECT count(*), coalesce(max(e.eid), 0) FROM embeddings e WHERE e.cid = :cid AND e.eid > :after

-- vectors: read the vectors of one conversation after a number
SELECT e.eid, e.tid, e.vector FROM embeddings e WHERE e.cid = :cid AND e.eid > :after AND e.model = :model ORDER BY e.eid

-- turns_by_number: read turns of the view by row number; CROSS JOIN fixes the order
SELECT {turn_columns}, c.id FROM json_each(:tids) j
CROSS JOIN turns t ON t.tid = j.value CROSS JOIN conversations c ON c.cid = t.cid
WHERE t.active = 1 AND t.status = 'complete' AND {visible}

-- conversations_where: read the conversations of a recall, and how often their views changed other than by appends
SELECT c.cid, c.revision, c.vector_count FROM conversations c WHERE {where}

-- ---- the outbox

-- to_embed: read the next passages that a model has not embedded; words only where they will be used. The last columns
-- are the conversation, and whether there is a vector: progress is set back when others were lost
SELECT p.pid, p.part, t.tid, t.id, t.role, t.is_parts,
  CASE WHEN f.text IS NOT NULL THEN f.text WHEN p.part < :most AND t.status = 'complete' THEN t.content END, t.metadata,
  c.tenant, c.id, EXISTS (SELECT 1 FROM embeddings e WHERE e.tid = p.tid AND e.part = p.part AND e.model = :model)
FROM passages p LEFT JOIN turns t ON t.tid = p.tid LEFT JOIN conversations c ON c.cid = t.cid
LEFT JOIN file_passages f ON p.part >= :files AND f.tid = p.tid AND f.part = p.part
WHERE p.pid > :after ORDER BY p.pid LIMIT :limit

-- passage_turns: read which turns these passages belong to now
SELECT p.pid, t.id FROM passages p LEFT JOIN turns t ON t.tid = p.tid WHERE p.pid BETWEEN :first AND :last

-- embedded_pid: read how far a model has come
SELECT value FROM meta WHERE name = :name

-- save_embedded_pid: store how far it has come
INSERT OR REPLACE INTO meta (name, value) VALUES (:name, :pid)

-- forget_other_embedders: delete the progress of other embedders, so that they would start again
DELETE FROM meta WHERE name LIKE 'embedded_pid/%' AND name != :name

-- lower_embedded_pids: lower their progress after passages were deleted, because their numbers may be used again
UPDATE meta SET value = min(value, (SELECT coalesce(max(pid), 0) FROM passages)) WHERE name LIKE 'embedded_pid/%'

-- add_vector: insert a vector, if its turn still exists
INSERT INTO embeddings (cid, tid, part, model, vector)
SELECT t.cid, t.tid, :part, :model, :vector FROM turns t WHERE t.tid = :tid AND t.status = 'complete'
  AND NOT EXISTS (SELECT 1 FROM embeddings e WHERE e.tid = :tid AND e.part = :part AND e.model = :model)
RETURNING cid

-- drop_other_vectors: delete vectors of other embedders
DELETE FROM embeddings WHERE eid IN (SELECT eid FROM embeddings WHERE model != :model LIMIT :limit) RETURNING cid

-- drop_vectors_by: delete vectors of these embedders
DELETE FROM embeddings WHERE eid IN (
  SELECT eid FROM embeddings WHERE model IN (SELECT value FROM json_each(:models)) LIMIT :limit) RETURNING cid

-- restart_embedder: reset the progress of an embedder, some of whose vectors are deleted
UPDATE meta SET value = 0 WHERE name = :name

-- forget_embedder: delete the progress of an embedder without vectors
DELETE FROM meta WHERE name = :name

-- add_job: insert a job, once per conversation and kind; the smaller argument wins. `created` increases so that a worker
-- that has the job sees that there is more to do. A job that was set aside is tried again
INSERT INTO jobs (cid, kind, run_at, argument, created) VALUES (:cid, :kind, :now, :argument, :now)
ON CONFLICT (cid, kind) DO UPDATE SET created = max(created + 1, excluded.created), dead = 0,
  argument = min(coalesce(argument, excluded.argument), coalesce(excluded.argument, argument))

-- claim_job: take the job that has waited longest, with a lease
UPDATE jobs SET lease_until = :lease_until, attempts = attempts + 1 WHERE jid = (
  SELECT j.jid FROM jobs j WHERE {job_due} AND {job_known} ORDER BY j.run_at LIMIT 1)
RETURNING jid, cid, kind, argument, attempts, created

-- job_due: the predicate for jobs that are due and have no lease; times further ahead than any that we write are from
-- before the clock was set back
j.dead = 0 AND (j.run_at <= :now OR j.run_at > :farthest) AND (j.lease_until <= :now OR j.lease_until > :farthest)

-- job_known: a job of another kind was enqueued by a newer version, and is left to its workers
j.kind IN (SELECT value FROM json_each(:kinds))

-- claimed_conversation: read the conversation of a job
SELECT c.tenant, c.id FROM conversations c WHERE c.cid = :cid AND c.gone IS NULL

-- finish_job: delete a finished job, unless it was enqueued again or another worker has it now
DELETE FROM jobs WHERE jid = :jid AND attempts = :attempts AND created = :asked

-- reopen_job: make a job due again that was enqueued again while it ran; it goes to the end of the queue
UPDATE jobs SET lease_until = 0, attempts = 0, run_at = :now WHERE jid = :jid AND attempts = :attempts

-- release_job: give a job back without counting the attempt
UPDATE jobs SET lease_until = 0, attempts = attempts - 1 WHERE jid = :jid AND attempts = :attempts

-- renew_job: renew the lease of a job
UPDATE jobs SET lease_until = :lease_until WHERE jid = :jid AND attempts = :attempts

-- retry_job: run a failed job later, or set it aside
UPDATE jobs SET run_at = :run_at, lease_until = 0, error = :error, dead = :dead
WHERE jid = :jid AND attempts = :attempts

-- drop_job: delete a job of a deleted conversation
DELETE FROM jobs WHERE jid = :jid

-- drop_jobs: delete all jobs of a conversation
DELETE FROM jobs WHERE cid = :cid

-- next_job: find when the next job is due
SELECT min(CASE WHEN {job_due} THEN :now ELSE max(j.run_at, j.lease_until) END) FROM jobs j
WHERE j.dead = 0 AND {job_known}

-- job_stats: count jobs by kind
SELECT kind, dead, count(*), min(run_at), max(attempts), max(error) FROM jobs GROUP BY kind, dead

-- health: read the schema version, count waiting jobs and those set aside, find when the oldest became due; jobs of a
-- migration have no time
SELECT (SELECT user_version FROM pragma_user_version), count(*) FILTER (WHERE j.dead = 0),
  count(*) FILTER (WHERE j.dead = 1), min(nullif(j.run_at, 0)) FILTER (WHERE {job_due} AND {job_known}) FROM jobs j

-- triggers: read what decides about compaction
SELECT turn_count - summarized_turns, token_count - summarized_tokens, settings FROM conversations WHERE cid = :cid

-- add_request: insert a request to a model, or add its response
INSERT INTO requests (cid, id, turn, purpose, at, model, adapter, next_seq, body, explanation, response)
VALUES (:cid, :id, :turn, :purpose, :at, :model, :adapter, :next_seq, :body, :explanation, :response)
ON CONFLICT (cid, id) DO UPDATE SET turn = coalesce(excluded.turn, turn), response = excluded.response
RETURNING rid

-- add_request_quote: record that a request quotes a turn of another conversation
INSERT OR IGNORE INTO request_quotes (turn, rid) VALUES (:turn, :rid)

-- quotable: check that a turn still has its content
SELECT 1 FROM turns t JOIN conversations c ON c.cid = t.cid
WHERE c.tenant = :tenant AND c.id = :conversation AND c.gone IS NULL AND t.seq = :seq AND t.id = :turn
  AND t.status != 'forgotten'

-- event_with_hash: check that an event is the one that an archive ends with
SELECT 1 FROM events WHERE cid = :cid AND n = :n AND hash = :hash

-- count_to_archive: count the events and requests that an archive takes
SELECT (SELECT count(*) FROM events WHERE cid = :cid AND n <= :n),
  (SELECT count(*) FROM requests WHERE cid = :cid AND at < :before)

-- archive_events: delete events that are in an archive
DELETE FROM events WHERE cid = :cid AND n <= :n

-- archive_quotes: delete the quotes of archived requests, before the requests
DELETE FROM request_quotes WHERE rid IN (SELECT rid FROM requests WHERE cid = :cid AND at < :before)

-- archive_requests: delete requests that are in an archive
DELETE FROM requests WHERE cid = :cid AND at < :before

-- latest_events: read the log backwards, for a reader that stops early
SELECT kind, at FROM events WHERE cid = :cid ORDER BY n DESC

-- drop_old_bodies: delete all but the newest bodies
UPDATE requests SET body = NULL WHERE cid = :cid AND body IS NOT NULL AND rid <= (
  SELECT rid FROM requests WHERE cid = :cid AND body IS NOT NULL ORDER BY rid DESC LIMIT 1 OFFSET :bodies
)

-- requests: read the latest requests, of one turn or before another request
SELECT r.id, r.turn, r.purpose, r.at, r.model, r.adapter, r.body, r.explanation, r.response FROM requests r
WHERE r.cid = :cid AND (:turn IS NULL OR r.turn = :turn)
  AND (:before IS NULL OR r.rid < (SELECT rid FROM requests WHERE cid = :cid AND id = :before))
ORDER BY r.rid DESC LIMIT :limit

-- latest_requests: read the requests backwards, for a reader that stops early
SELECT purpose, at FROM requests WHERE cid = :cid ORDER BY rid DESC

-- in_use: check whether a conversation has a request that is not an extraction
SELECT 1 FROM requests WHERE cid = :cid AND purpose <> 'extract' LIMIT 1

-- drop_bodies_after: delete bodies that may contain a forgotten turn
UPDATE requests SET body = NULL WHERE cid = :cid AND next_seq > :seq AND body IS NOT NULL

-- drop_bodies_quoting: delete bodies in other conversations that quote it
UPDATE requests SET body = NULL WHERE rid IN (SELECT rid FROM request_quotes WHERE turn = :turn)

-- drop_bodies_quoting_any: delete bodies in other conversations that quote any turn of this one
UPDATE requests SET body = NULL
WHERE rid IN (SELECT q.rid FROM request_quotes q JOIN turns t ON t.id = q.turn WHERE t.cid = :cid)

-- drop_request_quotes: delete the quotes of a conversation's requests, before the requests
DELETE FROM request_quotes WHERE rid IN (SELECT rid FROM requests WHERE cid = :cid)

-- drop_requests: delete all requests of a conversation
DELETE FROM requests WHERE cid = :cid

-- mark_title: record whether a job (1) or a caller (0) wrote the title
UPDATE conversations SET title_made = :made WHERE cid = :cid

-- title_made: check whether there is a title that a job wrote
SELECT 1 FROM conversations WHERE cid = :cid AND title_made = 1 AND title IS NOT NULL

-- counter_bound: read what is known of a model's tokenizer
SELECT model, ratio, samples FROM counter_bounds WHERE tenant = :tenant AND model = :model

-- save_counter_bound: store it after another answer
INSERT INTO counter_bounds (tenant, model, ratio, samples, updated) VALUES (:tenant, :model, :ratio, :samples, :now)
ON CONFLICT (tenant, model) DO UPDATE SET ratio = excluded.ratio, samples = excluded.samples, updated = excluded.updated

-- put_key: insert an API key
INSERT INTO api_keys (tenant, hash, name, scope, created, expires_at)
VALUES (:tenant, :hash, :name, :scope, :created, :expires_at)

-- api_key: read the key with this hash
SELECT k.hash, k.name, k.scope, k.created, k.expires_at, k.revoked_at FROM api_keys k
WHERE k.tenant = :tenant AND k.hash = :hash

-- api_keys: read all keys of a tenant, oldest first
SELECT k.hash, k.name, k.scope, k.created, k.expires_at, k.revoked_at FROM api_keys k
WHERE k.tenant = :tenant ORDER BY k.created, k.hash

-- has_key: check whether any key is valid now
SELECT 1 FROM api_keys k WHERE k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > :now) LIMIT 1

-- revoke_key: revoke a key; the row stays, so that the log has a name for it
UPDATE api_keys SET revoked_at = :now WHERE tenant = :tenant AND hash = :hash AND revoked_at IS NULL

-- last_key_event: read the event that the next one is chained to
SELECT e.n, e.at, e.hash FROM key_events e WHERE e.tenant = :tenant ORDER BY e.n DESC LIMIT 1

-- log_key: insert one event of the keys' log
INSERT INTO key_events (tenant, n, kind, key, actor, at, payload, hash)
VALUES (:tenant, :n, :kind, :key, :actor, :at, :payload, :hash)

-- key_events: read the keys' log, in order
SELECT e.n, e.kind, e.key, e.actor, e.at, e.payload, NULL, e.hash FROM key_events e
WHERE e.tenant = :tenant AND e.n > :after ORDER BY e.n LIMIT :limit

-- usage: sum tokens by day, owner and model, of answers and of memory work
SELECT date(u.at / 1000000, 'unixepoch') AS day, u.owner, u.model, count(*), sum(u.prompt), sum(u.completion)
FROM (
  SELECT t.created AS at, c.owner AS owner, coalesce(t.model, '') AS model, coalesce(t.prompt_tokens, 0) AS prompt,
    coalesce(t.completion_tokens, 0) AS completion
  FROM turns t JOIN conversations c ON c.cid = t.cid
  WHERE (t.prompt_tokens IS NOT NULL OR t.completion_tokens IS NOT NULL) AND {visible}
  UNION ALL
  SELECT r.at, c.owner, r.model, coalesce(json_extract(r.response, '$.usage.prompt'), 0),
    coalesce(json_extract(r.response, '$.usage.completion'), 0)
  FROM requests r JOIN conversations c ON c.cid = r.cid
  WHERE r.purpose <> 'generate' AND r.response IS NOT NULL AND {visible}
) u
WHERE (:since IS NULL OR u.at >= :since) AND (:until IS NULL OR u.at < :until)
GROUP BY day, u.owner, u.model ORDER BY day DESC, u.owner, u.model LIMIT :limit

-- tips: read the last event of every log, deleted conversations included
SELECT c.id, c.next_n - 1, c.tip_hash FROM conversations c
WHERE {allowed} AND c.id > :after ORDER BY c.id LIMIT :limit

-- put_seal: insert a signature over the end of a log
INSERT OR IGNORE INTO seals (tenant, conversation, n, tip, seal, at)
VALUES (:tenant, :conversation, :n, :tip, :seal, :at)

-- seals: read the signatures over one log
SELECT s.n, s.tip, s.seal, s.at FROM seals s
WHERE s.tenant = :tenant AND s.conversation = :conversation ORDER BY s.n

-- unsealed: find the ends of logs that are not signed yet
SELECT c.id, c.next_n - 1, c.tip_hash FROM conversations c
WHERE c.tenant = :tenant AND NOT EXISTS (
  SELECT 1 FROM seals s WHERE s.tenant = c.tenant AND s.conversation = c.id AND s.n = c.next_n - 1)
LIMIT :limit

-- tenants: list the tenants that have conversations
SELECT DISTINCT c.tenant FROM conversations c

-- drop_expired_places: remove the places of askers that are gone
DELETE FROM answer_places WHERE cid = :cid AND (lease_until <= :now OR lease_until > :farthest)

-- answer_place: read the place of one asker
SELECT seq, stored, started FROM answer_places WHERE cid = :cid AND id = :id

-- places_ahead: count the answers that come before one. A question that is not stored yet may still get a lower number
SELECT count(*) FROM answer_places WHERE cid = :cid AND id <> :id
  AND (:alone OR started OR (stored AND (seq, id) < (:seq, :id)) OR (NOT stored AND seq <= :seq))

-- take_place: take a place, or renew it
INSERT INTO answer_places (cid, id, seq, stored, started, lease_until)
VALUES (:cid, :id, :seq, :stored, :started, :lease_until)
ON CONFLICT (cid, id) DO UPDATE SET seq = excluded.seq, stored = max(stored, excluded.stored),
  started = max(started, excluded.started), lease_until = excluded.lease_until

-- leave_place: remove the place of one asker
DELETE FROM answer_places WHERE cid = :cid AND id = :id

-- drop_places: remove all places of a conversation
DELETE FROM answer_places WHERE cid = :cid

-- ---- erasing a person ------------------------------------------------------------------------------------------------

-- erasures: list who was erased, or is being erased
SELECT digest, salt, started, at, user, key, conversations FROM erasures WHERE tenant = :tenant ORDER BY started, digest

-- put_erasure: store one, in place of an earlier one of the same person
INSERT INTO erasures (tenant, digest, salt, started, at, user, key, conversations)
VALUES (:tenant, :digest, :salt, :started, :at, :user, :key, :conversations)
ON CONFLICT (tenant, digest) DO UPDATE SET started = excluded.started, at = excluded.at, user = excluded.user,
  key = excluded.key, conversations = excluded.conversations

-- note_erased: note for the receipt what an erasure deletes
INSERT OR IGNORE INTO erased_items (tenant, digest, kind, item) VALUES (:tenant, :digest, :kind, :item)

-- erased_items: read what was noted
SELECT kind, item FROM erased_items WHERE tenant = :tenant AND digest = :digest ORDER BY kind, item

-- drop_erased_items: delete the notes when the receipt is made
DELETE FROM erased_items WHERE tenant = :tenant AND digest = :digest

-- conversation_names: list conversations, deleted ones included, with everybody whom their rows name and since when
SELECT c.id, c.gone IS NOT NULL, c.owner, c.created, c.updated, (
  SELECT json_group_object(named.name, named.since) FROM (
    SELECT name, min(since) AS since FROM (
      SELECT c.owner AS name, c.created AS since
      UNION ALL SELECT p.actor, c.updated FROM participants p WHERE p.cid = c.cid
      UNION ALL SELECT t.actor, min(t.created) FROM turns t WHERE t.cid = c.cid GROUP BY t.actor
      UNION ALL SELECT a.owner, min(a.created) FROM attachments a WHERE a.cid = c.cid GROUP BY a.owner
      UNION ALL SELECT e.actor, min(e.at) FROM events e WHERE e.cid = c.cid GROUP BY e.actor
      UNION ALL SELECT json_extract(e.payload, '$.by'), e.at FROM events e WHERE e.cid = c.cid
        AND e.payload LIKE '%"by"%' AND json_valid(e.payload)
      UNION ALL SELECT j.atom, c.updated FROM working_memory w,
        json_tree(CASE WHEN json_valid(w.memory) THEN w.memory ELSE '{}' END) j
        WHERE w.cid = c.cid AND j.key IN ('by', 'actor') AND j.type = 'text'
    ) GROUP BY name
  ) AS named WHERE named.name IS NOT NULL
)
FROM conversations c WHERE {allowed} AND c.id > :after ORDER BY c.id LIMIT :limit

-- find_even_deleted: a conversation by its id, deleted or not, whose log is to be changed
SELECT {open_columns} FROM conversations c WHERE c.id = :id AND {allowed}

-- turns_to_erase: find turns that a user said or that have a user's file, unless only their stub is left. Of a retired
-- turn the memory is left; a reset took that away as well
SELECT {turn_columns} FROM turns t
WHERE t.cid = :cid AND t.created < :before
  AND (t.actor = :user OR t.tid IN (SELECT a.tid FROM attachments a WHERE a.cid = :cid AND a.owner = :user))
  AND (t.status <> 'forgotten' OR (
    t.id NOT IN (SELECT e.turn FROM events e WHERE e.cid = :cid AND e.kind = 'forget' AND e.turn IS NOT NULL)
    AND (NOT EXISTS (SELECT 1 FROM events e WHERE e.cid = :cid AND e.kind = 'reset')
      OR t.id IN (SELECT e.turn FROM events e WHERE e.cid = :cid AND e.kind = 'retire' AND e.n > (
        SELECT max(r.n) FROM events r WHERE r.cid = :cid AND r.kind = 'reset')))))
ORDER BY t.seq LIMIT :limit

-- rename_speaker: put a pseudonym into a turn that is being forgotten, or is already
UPDATE turns SET actor = :actor WHERE tid = :tid

-- bodies_naming: find requests whose bodies name a user: a prompt names those who take part
SELECT rid FROM requests WHERE cid = :cid AND body IS NOT NULL AND instr(body, :user) > 0

-- drop_body: delete one of these bodies
UPDATE requests SET body = NULL WHERE rid = :rid

-- files_to_erase: find a user's files that no turn has
SELECT a.aid, a.id, a.path FROM attachments a
WHERE a.cid = :cid AND a.owner = :user AND a.tid IS NULL AND a.created < :before LIMIT :limit

-- events_naming: find events after a number that name a user
SELECT e.n FROM events e
WHERE e.cid = :cid AND e.n > :after AND e.at < :before AND (e.actor = :user
  OR (e.payload LIKE '%"by"%' AND json_valid(e.payload) AND json_extract(e.payload, '$.by') = :user))
ORDER BY e.n LIMIT :limit

-- event_to_erase: read one of them, with the hash of the event before it
SELECT e.kind, e.turn, e.actor, e.at, e.payload, e.content_hash, e.hash,
  (SELECT p.hash FROM events p WHERE p.cid = e.cid AND p.n = e.n - 1)
FROM events e WHERE e.cid = :cid AND e.n = :n

-- archived_hash: the hash of the last event that an archive took, from the event that says so
SELECT json_extract(e.payload, '$.hash') FROM events e
WHERE e.cid = :cid AND e.kind = 'archive' AND json_extract(e.payload, '$.through') = :n

-- replace_names: put pseudonyms into an event; its hash stays
UPDATE events SET actor = :actor, payload = :payload WHERE cid = :cid AND n = :n

-- stubs_naming: find what is left of forgotten turns that a user said
SELECT {turn_columns} FROM turns t
WHERE t.cid = :cid AND t.actor = :user AND t.status = 'forgotten' AND t.created < :before ORDER BY t.seq LIMIT :limit

-- rename_owner_of_deleted: put a pseudonym into the row that is left of a deleted conversation
UPDATE conversations SET owner = :owner WHERE cid = :cid AND gone IS NOT NULL

-- key_events_naming: find events of keys by a user or about the user's keys, each with the hash of the event before it
SELECT e.n, e.kind, e.key, e.actor, e.at, e.payload, e.hash,
  (SELECT p.hash FROM key_events p WHERE p.tenant = e.tenant AND p.n = e.n - 1)
FROM key_events e
WHERE e.tenant = :tenant AND e.at < :before AND (e.actor = :user
  OR (e.payload IS NOT NULL AND e.key IN (SELECT value FROM json_each(:ids))
    AND json_extract(e.payload, '$.name') IS NOT :name))
ORDER BY e.n LIMIT :limit

-- replace_names_of_key: put pseudonyms into an event of a key; its hash stays
UPDATE key_events SET actor = :actor, payload = :payload WHERE tenant = :tenant AND n = :n

-- drop_key: delete a key of an erased user
DELETE FROM api_keys WHERE tenant = :tenant AND hash = :hash

-- proof: read the salt of a row's hash and the event that has the hash
SELECT p.salt, p.n, e.payload FROM proofs p LEFT JOIN events e ON e.cid = p.cid AND e.n = p.n
WHERE p.cid = :cid AND p.key = :key

-- is_covered: check whether the log knows every derived row: a new conversation says so in its first event
SELECT 1 FROM proofs WHERE cid = :cid AND key = ''
UNION ALL SELECT 1 FROM events WHERE cid = :cid AND n = 1 AND json_extract(payload, '$.proof') = 1

-- save_proof: store the salt of a row's hash and the number of its event
INSERT INTO proofs (cid, key, n, salt) VALUES (:cid, :key, :n, :salt)
ON CONFLICT (cid, key) DO UPDATE SET n = excluded.n, salt = excluded.salt

-- move_proof: store that a later event has the hash of a row, too
UPDATE proofs SET n = :n WHERE cid = :cid AND key = :key

-- drop_proof: delete the salt of a row that is deleted
DELETE FROM proofs WHERE cid = :cid AND key = :key RETURNING key

-- proof_keys: name the derived rows that the log knows
SELECT key FROM proofs WHERE cid = :cid AND key != ''

-- drop_proofs: delete the salts of all derived rows of a conversation
DELETE FROM proofs WHERE cid = :cid AND key != ''

-- drop_all_proofs: delete them with the conversation
DELETE FROM proofs WHERE cid = :cid

-- summary_values: read the columns of a summary that its hash covers
SELECT id, level, from_seq, through_seq, turns, tokens, text, token_count, model, stale, created FROM summaries
WHERE cid = :cid AND level = :level AND from_seq = :from_seq

-- notes_values: read the columns of the working memory that its hash covers
SELECT memory, through_seq FROM working_memory WHERE cid = :cid

-- fact_values: read the columns of a fact that its hash covers
SELECT id, subject, predicate, object, source_turn, CAST(confidence * 9007199254740992 AS INTEGER), valid_from,
  invalidated_at, invalidated_by, by, created, valid_to, learnt
FROM facts WHERE cid = :cid AND id = :id

-- file_values: read what the hash of a file's text covers
SELECT a.characters, a.problem,
  (SELECT group_concat(part || ':' || length(text), ',') FROM (SELECT part, text FROM file_passages f
    WHERE f.aid = a.aid AND f.tid = a.tid ORDER BY part)) AS pieces,
  (SELECT coalesce(group_concat(text, ''), '') FROM (SELECT text FROM file_passages f
    WHERE f.aid = a.aid AND f.tid = a.tid ORDER BY part)) AS text
FROM attachments a WHERE a.cid = :cid AND a.id = :id AND a.characters IS NOT NULL

-- request_values: read the columns of a request that its hash covers
SELECT id, turn, purpose, at, model, adapter, next_seq, explanation, response FROM requests WHERE cid = :cid AND id = :id

-- body_values: read the body of a request
SELECT body FROM requests WHERE cid = :cid AND id = :id AND body IS NOT NULL

-- derived_keys: name every derived row of a conversation
SELECT 'notes' AS key FROM working_memory WHERE cid = :cid
UNION ALL SELECT 'summary/' || level || '/' || from_seq FROM summaries WHERE cid = :cid
UNION ALL SELECT 'fact/' || id FROM facts WHERE cid = :cid
UNION ALL SELECT 'file/' || id FROM attachments WHERE cid = :cid AND characters IS NOT NULL
UNION ALL SELECT 'request/' || id FROM requests WHERE cid = :cid
UNION ALL SELECT 'body/' || id FROM requests WHERE cid = :cid AND body IS NOT NULL
UNION ALL SELECT 'item/' || id FROM items WHERE cid = :cid
UNION ALL SELECT 'source/' || item || '/' || turn FROM item_sources WHERE cid = :cid

-- unproven_keys: name derived rows that the log does not know
SELECT key FROM ({derived_keys}) WHERE key NOT IN (SELECT key FROM proofs WHERE cid = :cid) LIMIT :limit

-- proofs_before: read what the log says of derived rows in events that are archived
SELECT p.key, p.salt, json_extract(e.payload, '$.rows') FROM proofs p JOIN events e ON e.cid = p.cid AND e.n = p.n
WHERE p.cid = :cid AND p.n <= :n AND p.key != '' ORDER BY p.key

-- requests_before: find the requests that an archive takes
SELECT id FROM requests WHERE cid = :cid AND at < :before

-- files_of_turn: find the files of a turn whose text was extracted
SELECT id FROM attachments WHERE cid = :cid AND tid = :tid AND characters IS NOT NULL

-- summary_records: read the summaries as stored, each with the salt of its hash
SELECT s.id, s.level, s.from_seq, s.through_seq, s.turns, s.tokens, s.text, s.token_count, s.model, s.stale, s.created,
  p.salt, p.n AS proof
FROM summaries s LEFT JOIN proofs p ON p.cid = s.cid AND p.key = 'summary/' || s.level || '/' || s.from_seq
WHERE s.cid = :cid ORDER BY s.level, s.from_seq

-- file_records: read the text of files as stored
SELECT a.id, a.characters, a.problem, p.salt, p.n AS proof,
  (SELECT group_concat(part || ':' || length(text), ',') FROM (SELECT part, text FROM file_passages f
    WHERE f.aid = a.aid AND f.tid = a.tid ORDER BY part)) AS pieces,
  (SELECT coalesce(group_concat(text, ''), '') FROM (SELECT text FROM file_passages f
    WHERE f.aid = a.aid AND f.tid = a.tid ORDER BY part)) AS text
FROM attachments a LEFT JOIN proofs p ON p.cid = a.cid AND p.key = 'file/' || a.id
WHERE a.cid = :cid AND (a.characters IS NOT NULL OR EXISTS (SELECT 1 FROM file_passages f WHERE f.aid = a.aid))
ORDER BY a.aid

-- request_records: read the requests as stored, each with the salts of its hashes
SELECT r.id, r.turn, r.purpose, r.at, r.model, r.adapter, r.next_seq, r.explanation, r.response, r.body, p.salt,
  p.n AS proof, b.salt AS body_salt, b.n AS body_proof
FROM requests r LEFT JOIN proofs p ON p.cid = r.cid AND p.key = 'request/' || r.id
LEFT JOIN proofs b ON b.cid = r.cid AND b.key = 'body/' || r.id
WHERE r.cid = :cid ORDER BY r.rid

-- ---- budgets and leases ----------------------------------------------------------------------------------------------

-- budgets: read the limits that a tenant's users and keys have in place of the defaults
SELECT kind, name, limits FROM budgets WHERE tenant = :tenant ORDER BY kind, name

-- put_budget: set the limits of a tenant, user or key
INSERT INTO budgets (tenant, kind, name, limits) VALUES (:tenant, :kind, :name, :limits)
ON CONFLICT (tenant, kind, name) DO UPDATE SET limits = excluded.limits

-- drop_budget: return to the default limits
DELETE FROM budgets WHERE tenant = :tenant AND kind = :kind AND name = :name

-- budget_use: read what was used in one period
SELECT requests, tokens, dollars, bytes, conversations FROM budget_use
WHERE tenant = :tenant AND kind = :kind AND name = :name AND period = :period

-- add_to_budget: count a call; after a correction no count is below zero
INSERT INTO budget_use (tenant, kind, name, period, requests, tokens, dollars, bytes, conversations)
VALUES (:tenant, :kind, :name, :period, max(0, :requests), max(0, :tokens), max(0, :dollars), max(0, :bytes), max(0, :conversations))
ON CONFLICT (tenant, kind, name, period) DO UPDATE SET requests = max(0, requests + :requests),
  tokens = max(0, tokens + :tokens), dollars = max(0, dollars + :dollars), bytes = max(0, bytes + :bytes),
  conversations = max(0, conversations + :conversations)

-- measure_storage: sum the bytes of turns and files of a tenant, or of one owner, and count the conversations
SELECT coalesce(sum(coalesce((SELECT sum(octet_length(coalesce(t.content, '')) + octet_length(coalesce(t.tool_calls, ''))
    + octet_length(coalesce(t.tool_results, ''))) FROM turns t WHERE t.cid = c.cid), 0)
  + coalesce((SELECT sum(a.bytes) FROM attachments a WHERE a.cid = c.cid), 0)), 0), count(*)
FROM conversations c WHERE c.tenant = :tenant AND c.gone IS NULL AND (:owner IS NULL OR c.owner = :owner)

-- drop_old_windows: delete the earlier windows of a rate limit
DELETE FROM budget_use WHERE tenant = :tenant AND kind = :kind AND name = :name AND period >= :first AND period < :period

-- set_storage: store a measurement
INSERT INTO budget_use (tenant, kind, name, period, bytes, conversations)
VALUES (:tenant, :kind, :name, :period, :bytes, :conversations)
ON CONFLICT (tenant, kind, name, period) DO UPDATE SET bytes = excluded.bytes, conversations = excluded.conversations

-- drop_old_use: delete the counts of days and months that are long over
DELETE FROM budget_use WHERE tenant = :tenant AND period < :before

-- erase_budgets: delete the budgets of an erased user, and of that user's keys
DELETE FROM budgets WHERE tenant = :tenant
  AND ((kind = 'user' AND name = :user) OR (kind = 'key' AND name IN (SELECT value FROM json_each(:keys))))

-- erase_budget_use: delete what an erased user and that user's keys have used
DELETE FROM budget_use WHERE tenant = :tenant
  AND ((kind = 'user' AND name = :user) OR (kind = 'key' AND name IN (SELECT value FROM json_each(:keys))))

-- take_lease: take work for one process, unless another one has it
INSERT INTO leases (tenant, name, until) VALUES (:tenant, :name, :until)
ON CONFLICT (tenant, name) DO UPDATE SET until = excluded.until WHERE leases.until <= :now OR leases.until > :farthest
RETURNING until

-- ---- memory of subjects

-- item_values: read the columns of an item that its hash covers
SELECT id, kind, subject, predicate, object, CAST(confidence * 9007199254740992 AS INTEGER), valid_from, valid_to, learnt,
  ended_at, ended_by, origin, status, said_by, by, created
FROM items WHERE cid = :cid AND id = :id

-- source_values: read the columns of a source that its hash covers
SELECT item, conversation, turn, said FROM item_sources WHERE cid = :cid AND item = :item AND turn = :turn

-- item_columns: the columns of a MemoryItem, as they are now: an item whose successor is gone holds again
i.id, i.kind, i.subject, i.predicate, i.object, i.confidence, i.valid_from, coalesce(i.valid_to, e.valid_from), i.learnt,
CASE WHEN i.ended_by IS NULL OR e.id IS NOT NULL THEN i.ended_at END, e.id, i.origin, i.status, i.said_by, i.by, i.created

-- wanted_items: the condition of the statements that read items `i`, with their successors `e`
(:ended OR i.ended_at IS NULL OR (i.ended_by IS NOT NULL AND e.id IS NULL)) AND (:status IS NULL OR i.status = :status)
ORDER BY i.iid DESC LIMIT :limit

-- items: read items, newest first. The index gives their order, so they are not sorted
SELECT {item_columns} FROM items i INDEXED BY items_newest LEFT JOIN items e ON e.cid = i.cid AND e.id = i.ended_by
WHERE i.cid = :cid AND {wanted_items}

-- items_of_kind: the same for one kind
SELECT {item_columns} FROM items i INDEXED BY items_of_kind LEFT JOIN items e ON e.cid = i.cid AND e.id = i.ended_by
WHERE i.cid = :cid AND i.kind = :kind AND {wanted_items}

-- items_with_ids: the same for some
SELECT {item_columns} FROM items i LEFT JOIN items e ON e.cid = i.cid AND e.id = i.ended_by
WHERE i.cid = :cid AND i.id IN (SELECT value FROM json_each(:ids)) AND {wanted_items}

-- item_words: read the words of all approved items that have not ended, to rank them
SELECT i.id, i.kind, i.subject, i.predicate, i.object FROM items i LEFT JOIN items e ON e.cid = i.cid AND e.id = i.ended_by
WHERE i.cid = :cid AND i.status = 'approved' AND (i.ended_at IS NULL OR (i.ended_by IS NOT NULL AND e.id IS NULL))
ORDER BY i.iid DESC LIMIT :limit

-- sources_of: read the sources of items, with the titles of conversations that the scope may see
SELECT s.item, s.conversation, s.turn, s.said,
  (SELECT c.title FROM conversations c WHERE c.id = s.conversation AND {visible})
FROM item_sources s WHERE s.cid = :cid AND s.item IN (SELECT value FROM json_each(:ids)) ORDER BY s.said, s.turn

-- add_item: insert an item
INSERT INTO items (cid, id, kind, subject, predicate, object, confidence, valid_from, valid_to, learnt, origin, status,
  said_by, by, created)
VALUES (:cid, :id, :kind, :subject, :predicate, :object, :confidence, :valid_from, :valid_to, :learnt, :origin, :status,
  :said_by, :by, :created)

-- has_item: whether there is an item
SELECT 1 FROM items WHERE cid = :cid AND id = :id

-- is_said: whether a turn is in the active branch, so that it can be a source
SELECT 1 FROM turns t JOIN conversations c ON c.cid = t.cid
WHERE c.tenant = :tenant AND c.id = :conversation AND c.gone IS NULL AND t.seq = :seq AND t.id = :turn AND t.active = 1
  AND t.status = 'complete'

-- add_source: note that a turn says what an item says
INSERT INTO item_sources (cid, item, conversation, turn, said) VALUES (:cid, :item, :conversation, :turn, :said)
ON CONFLICT (cid, item, turn) DO NOTHING RETURNING turn

-- end_item: end an item, because another one took its place or because it no longer holds
UPDATE items SET ended_at = :at, ended_by = :by WHERE cid = :cid AND id = :id RETURNING id

-- approve_item: approve a proposed item
UPDATE items SET status = 'approved' WHERE cid = :cid AND id = :id AND status = 'proposed' RETURNING id

-- drop_item: delete an item
DELETE FROM items WHERE cid = :cid AND id = :id RETURNING id

-- drop_sources: delete the sources of an item
DELETE FROM item_sources WHERE cid = :cid AND item = :item RETURNING turn

-- drop_items: delete all items of a subject
DELETE FROM items WHERE cid = :cid

-- drop_item_sources: delete all their sources
DELETE FROM item_sources WHERE cid = :cid

-- drop_some_items: delete the next items
DELETE FROM items WHERE iid IN (SELECT i.iid FROM items i WHERE i.cid = :cid LIMIT :limit) RETURNING iid

-- items_of_author: find the items that a person wrote or said about the subject
SELECT id FROM items WHERE cid = :cid AND (by = :author OR said_by = :author)

-- unlearn_turn: delete what names a turn as a source
DELETE FROM item_sources WHERE turn = :turn RETURNING cid, item, turn

-- unlearn_out_of_view: delete the sources that are on another branch now
DELETE FROM item_sources WHERE turn IN (
  SELECT t.id FROM turns t WHERE t.cid = :cid AND t.active = 0 AND t.position >= :position AND t.status != 'forgotten')
RETURNING cid, item, turn

-- unlearn_conversation: delete the sources that are in a conversation
DELETE FROM item_sources WHERE conversation = :conversation RETURNING cid, item, turn

-- drop_unsaid_item: delete an item that no turn says any more
DELETE FROM items WHERE cid = :cid AND id = :item AND origin != 'manual'
  AND NOT EXISTS (SELECT 1 FROM item_sources s WHERE s.cid = :cid AND s.item = :item)
RETURNING id

-- item_records: read the items as stored, each with the salt of its hash
SELECT i.*, p.salt, p.n AS proof FROM items i LEFT JOIN proofs p ON p.cid = i.cid AND p.key = 'item/' || i.id
WHERE i.cid = :cid ORDER BY i.iid

-- source_records: read the sources as stored, each with the salt of its hash
SELECT s.item, s.conversation, s.turn, s.said, p.salt, p.n AS proof FROM item_sources s
LEFT JOIN proofs p ON p.cid = s.cid AND p.key = 'source/' || s.item || '/' || s.turn WHERE s.cid = :cid
ORDER BY s.item, s.turn

-- ---- replication ----------------------------------------------------------------------------------------------------

-- all_turns: read every turn, forgotten ones included
SELECT {turn_columns} FROM turns t WHERE t.cid = :cid ORDER BY t.seq

-- hide_all_turns: take all turns out of the view, before each gets its place in a copy from elsewhere
UPDATE turns SET active = 0 WHERE cid = :cid AND active = 1

-- place_turn: give a turn its place in such a copy
UPDATE turns SET position = :position, parent = :parent, slot = :slot, active = :active, superseded_by = :superseded_by
WHERE cid = :cid AND seq = :seq RETURNING tid

-- drop_events: delete the log, before that of a copy takes its place
DELETE FROM events WHERE cid = :cid

-- forget_counts: reset what is counted of the rows that a copy replaces
UPDATE conversations SET summarized_position = 0, summarized_turns = 0, summarized_tokens = 0, fact_count = 0,
  has_memory = 0 WHERE cid = :cid

-- keep_blobs: the files of a conversation stay, though rows that named them were deleted in this transaction
DELETE FROM doomed_blobs WHERE path IN (SELECT a.path FROM attachments a WHERE a.cid = :cid)

-- drop_false_seals: delete signatures over events that are no longer in the log
DELETE FROM seals WHERE tenant = :tenant AND conversation IN (:old, :new) AND NOT EXISTS (
  SELECT 1 FROM events e WHERE e.cid = :cid AND e.n = seals.n AND e.hash = seals.tip AND seals.conversation = :new)

-- move_sources: a turn has another id now: change what names it as a source
UPDATE OR IGNORE item_sources SET turn = :new, conversation = :conversation WHERE turn = :old RETURNING cid, item

-- memory_of: open the conversation of a subject's memory, by its number
SELECT {open_columns} FROM conversations c WHERE c.cid = :cid AND c.gone IS NULL

-- drop_file: delete the row of a file, which a copy brings again together with its turn
DELETE FROM attachments WHERE cid = :cid AND id = :id

-- drop_summary_row: delete a summary
DELETE FROM summaries WHERE cid = :cid AND level = :level AND from_seq = :from_seq

-- drop_fact_row: delete a fact
DELETE FROM facts WHERE cid = :cid AND id = :id RETURNING id

-- drop_request_row: delete a request
DELETE FROM requests WHERE cid = :cid AND id = :id

-- drop_source: delete one source of an item
DELETE FROM item_sources WHERE cid = :cid AND item = :item AND turn = :turn

-- drop_unsaid_items: delete items that came without the turns that say them
DELETE FROM items WHERE cid = :cid AND origin != 'manual'
  AND NOT EXISTS (SELECT 1 FROM item_sources s WHERE s.cid = :cid AND s.item = items.id) RETURNING id
