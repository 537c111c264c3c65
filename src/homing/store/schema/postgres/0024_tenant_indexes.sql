-- What is done for one tenant reads no rows of the others: erasures, notices, keys and replay jobs.

CREATE INDEX erasure_running_tenant ON erasure (tenant, id) WHERE finished_at IS NULL;
CREATE INDEX erasure_whole ON erasure (version, tenant, upto_id) WHERE kind = 'tenant';
CREATE INDEX erasure_whole_running ON erasure (tenant, upto_id) WHERE kind = 'tenant' AND finished_at IS NULL;
CREATE INDEX notice_tenant ON notice (tenant, id);
CREATE INDEX api_key_tenant ON api_key (tenant, id);

CREATE INDEX replay_job_running ON replay_job (id) WHERE state = 'running';
CREATE INDEX replay_job_event ON replay_job (((filter::jsonb ->> 'event_id')::bigint))
WHERE filter::jsonb ->> 'event_id' IS NOT NULL;
CREATE INDEX replay_job_tenant ON replay_job ((filter::jsonb ->> 'tenant'), id);
