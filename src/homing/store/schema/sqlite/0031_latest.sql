-- The newest event of a key: what it supersedes is finished with a status of its own.

ALTER TABLE history ADD COLUMN superseded_by INTEGER;                     -- the event that is sent instead
ALTER TABLE ledger ADD COLUMN superseded INTEGER NOT NULL DEFAULT 0;
CREATE INDEX event_order_key ON event (tenant, order_key, id) WHERE order_key <> '';      -- the newest event of a key
