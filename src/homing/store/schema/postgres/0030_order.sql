-- Order by key. A blocked delivery has a place above 0 and a part below 0, which nothing reads to send it.

ALTER TABLE pending ADD COLUMN order_key text;                         -- NULL: its event has no key
ALTER TABLE pending ADD COLUMN order_seq bigint NOT NULL DEFAULT 0;      -- 0: it is not blocked
ALTER TABLE pending ADD COLUMN unblocked_at bigint NOT NULL DEFAULT 0;   -- 0: it was never blocked
CREATE INDEX pending_order ON pending (subscription_id, order_key, order_seq) WHERE order_key IS NOT NULL;
CREATE INDEX pending_blocked ON pending (id) WHERE order_seq > 0;        -- retention

-- Deliveries that were cancelled or erased and may still be in flight; their keys wait for that.
CREATE TABLE key_release (
    delivery_id     bigint PRIMARY KEY,
    bucket          smallint NOT NULL,
    endpoint_id     bigint NOT NULL,
    subscription_id bigint NOT NULL,
    order_key       text NOT NULL
);
CREATE INDEX key_release_key ON key_release (subscription_id, order_key);
