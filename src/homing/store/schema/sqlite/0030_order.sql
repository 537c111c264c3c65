-- Order by key. A blocked delivery has a place above 0 and a part below 0, which nothing reads to send it.

ALTER TABLE pending ADD COLUMN order_key TEXT;                         -- NULL: its event has no key
ALTER TABLE pending ADD COLUMN order_seq INTEGER NOT NULL DEFAULT 0;      -- 0: it is not blocked
ALTER TABLE pending ADD COLUMN unblocked_at INTEGER NOT NULL DEFAULT 0;   -- 0: it was never blocked
CREATE INDEX pending_order ON pending (subscription_id, order_key, order_seq) WHERE order_key IS NOT NULL;
CREATE INDEX pending_blocked ON pending (id) WHERE order_seq > 0;        -- retention

-- Deliveries that were cancelled or erased and may still be in flight; their keys wait for that.
CREATE TABLE key_release (
    delivery_id     INTEGER PRIMARY KEY,
    bucket          INTEGER NOT NULL,
    endpoint_id     INTEGER NOT NULL,
    subscription_id INTEGER NOT NULL,
    order_key       TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX key_release_key ON key_release (subscription_id, order_key);
