-- Plain names for tables and columns. Nothing but names changes.

ALTER TABLE pending RENAME COLUMN ours TO sender_errors;
ALTER TABLE history RENAME COLUMN ours TO sender_errors;
ALTER TABLE rollup RENAME COLUMN ours TO sender_errors;
ALTER TABLE rollup_hour RENAME COLUMN ours TO sender_errors;
ALTER TABLE attempt RENAME COLUMN answer_headers TO response_headers;
ALTER TABLE attempt RENAME COLUMN excerpt TO response_excerpt;
ALTER TABLE replay_job RENAME COLUMN looked_at TO scanned;
ALTER TABLE process RENAME COLUMN catalog TO catalog_version;  -- NULL: it sends nothing yet
ALTER TABLE catalog RENAME COLUMN one TO id;
ALTER TABLE key_version RENAME COLUMN one TO id;
ALTER TABLE clock_mark RENAME COLUMN one TO id;

ALTER TABLE chore RENAME TO cleanup_job;        -- bulk work left by a change, done in bounded steps
ALTER TABLE seal RENAME TO encryption_key;      -- names of keys, never the keys
ALTER TABLE encryption_key RENAME COLUMN done TO encrypts_all;
ALTER TABLE news RENAME TO topic_version;       -- what has changed, for processes that poll

ALTER INDEX chore_pkey RENAME TO cleanup_job_pkey;
ALTER INDEX seal_pkey RENAME TO encryption_key_pkey;
ALTER INDEX news_pkey RENAME TO topic_version_pkey;
ALTER TABLE catalog RENAME CONSTRAINT catalog_one_check TO catalog_id_check;
ALTER TABLE key_version RENAME CONSTRAINT key_version_one_check TO key_version_id_check;
ALTER TABLE clock_mark RENAME CONSTRAINT clock_mark_one_check TO clock_mark_id_check;
