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
