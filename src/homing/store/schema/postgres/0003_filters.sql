-- Filters of a subscription, and the fields that the Workfront-compatible API adds to one.

ALTER TABLE subscription ADD COLUMN filters text NOT NULL DEFAULT '[]';    -- JSON, as given
ALTER TABLE subscription ADD COLUMN connector text NOT NULL DEFAULT 'AND';
ALTER TABLE subscription ADD COLUMN workfront text;                        -- JSON, or NULL
