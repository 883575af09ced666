-- function_rights: the right that each function of `palaver_api` requires. Every function passes it to `enter`, which
-- refuses callers without it; a test compares the two and calls every function without its right. `worker` is for the
-- application's worker, which sees all tenants but no content; a caller with a token needs `read` there.
CREATE OR REPLACE VIEW palaver.function_rights AS
SELECT f.name AS function, r.rights FROM (VALUES
  ('read', 'attachment attachment_records attachments branches candidates candidates_where context_reading conversation conversations conversations_where
    count_calls counter_bound derived_records
    embedding_backlog event_records events fact_records fact_vectors facts find_damage
    facts_to_embed facts_where file_quotes file_text
    find_conversation health history history_where item_words items items_of_author kept_aside kept_file matches matches_where matching_facts mismatched_rows missing_passages nearest next_job postings profile read_context reading recall_size requests seals
    search search_where signed_in signed_in_scope some_vectors span speakers stats summaries tips to_embed to_index turn turn_records turns_numbered turns_where uncovered
    unindexed unread_files unsummarised usage vectors waiting_here whole whole_with_derived working_memory_records'),
  ('write', 'add_job announce append append_together attach blobs_deleted claim_job doomed_blobs drop_fact drop_items
    drop_loose_files drop_other_vectors drop_summary drop_vectors embed_again expire expire_slice finish_job finish_slice
    forget_conversation
    forget_older forget_slice forget_turn leave_answer_place open_conversation orphans prove_rows put_counter_bound put_embedded put_fact_vectors
    put_facts put_file_text put_items put_passages put_request put_summary put_words put_working_memory release_job renew_job repair_facts
    repair_index repair_memory repair_summaries repair_vectors reset reset_slice retire
    retry_job seal_expired stream_abort stream_chunk stream_commit stream_open stream_renew switch take_answer_place
    update_conversation'),
  ('write,admin', 'adopt archive_log erase_names erase_turns restore'),
  ('admin', 'api_key api_keys budgets conversation_names erase_keys erased_items erasures key_events log_key measure_storage
    note_erased put_budget put_erasure put_key put_seals revoke_key spend spent take_lease unsealed'),
  ('worker', 'any_key next_job_anywhere tenants tenants_waiting waiting')
) AS r (rights, functions), regexp_split_to_table(r.functions, '\s+') AS f (name);
