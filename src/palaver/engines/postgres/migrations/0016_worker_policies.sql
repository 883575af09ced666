-- The policies of the worker apply in its role alone. They used to apply in every login that is a member of it, too. Such a
-- login is also a member of `palaver_app`, so plain SQL without SET ROLE read the rows of all tenants.
ALTER POLICY palaver_worker ON palaver.jobs USING (current_user = 'palaver_worker');
ALTER POLICY palaver_worker ON palaver.streams USING (current_user = 'palaver_worker');
ALTER POLICY palaver_worker ON palaver.doomed_blobs USING (current_user = 'palaver_worker');
ALTER POLICY palaver_worker ON palaver.conversations USING (current_user = 'palaver_worker');
ALTER POLICY palaver_worker ON palaver.api_keys USING (current_user = 'palaver_worker');
