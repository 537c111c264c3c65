-- The order of acceptance: a number that each transaction takes that writes events. Ids carry the clocks of
-- the processes that made them, so they say when an event came, and not which of two came first.

CREATE SEQUENCE acceptance;  -- without a cache: a later call gets a higher number, on any connection

ALTER TABLE event ADD COLUMN position bigint NOT NULL DEFAULT 0;            -- of its transaction; within one, ids count
CREATE INDEX event_position ON event (position, id);                        -- backfills
DROP INDEX event_order_key;
CREATE INDEX event_order_key ON event (tenant, order_key, position, id) WHERE order_key <> '';

ALTER TABLE pending ADD COLUMN position bigint NOT NULL DEFAULT 0;          -- of the transaction that made it
ALTER TABLE pending ADD COLUMN unblocked_position bigint NOT NULL DEFAULT 0;  -- of the one that unblocked it; 0: never
-- What the rows of a part are ordered by: first attempts by their positions, all others by their times.
ALTER TABLE pending ADD COLUMN turn bigint NOT NULL GENERATED ALWAYS AS (
    CASE WHEN part IN (1, 2) THEN due_at WHEN unblocked_position > 0 THEN unblocked_position ELSE position END
) STORED;
DROP INDEX pending_due;
CREATE INDEX pending_due ON pending (endpoint_id, part, turn, id);          -- dispatch

ALTER TABLE endpoint ADD COLUMN enabled_from bigint NOT NULL DEFAULT 0;     -- first attempts from this position on are fresh
ALTER TABLE erasure ADD COLUMN upto_position bigint NOT NULL DEFAULT 0;     -- later events are no part of it
ALTER TABLE replay_job ADD COLUMN after_position bigint NOT NULL DEFAULT 0;   -- of a backfill: where it goes on
ALTER TABLE replay_job ADD COLUMN upto_position bigint NOT NULL DEFAULT 0;    -- and where it ends
ALTER TABLE replay_job ADD COLUMN made_at bigint NOT NULL DEFAULT 0;          -- when its last deliveries were due

DROP INDEX erasure_whole;
CREATE INDEX erasure_whole ON erasure (version, tenant) WHERE kind = 'tenant';
DROP INDEX erasure_whole_running;
CREATE INDEX erasure_whole_running ON erasure (tenant, upto_position) WHERE kind = 'tenant' AND finished_at IS NULL;
CREATE INDEX key_release_endpoint ON key_release (endpoint_id, delivery_id);  -- erasures
