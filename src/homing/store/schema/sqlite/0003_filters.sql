-- Filters of a subscription, and the fields that the Workfront-compatible API adds to one.

ALTER TABLE subscription ADD COLUMN filters TEXT NOT NULL DEFAULT '[]';    -- JSON, as given
ALTER TABLE subscription ADD COLUMN connector TEXT NOT NULL DEFAULT 'AND';
ALTER TABLE subscription ADD COLUMN workfront TEXT;                        -- JSON, or NULL
