-- Causes: why an endpoint fails, since when, how often. Settle writes them as counters.

CREATE TABLE cause (
    id             INTEGER PRIMARY KEY,
    tenant         TEXT NOT NULL,
    endpoint_id    INTEGER NOT NULL,
    failure        TEXT NOT NULL,  -- the failure class
    reason         TEXT NOT NULL,  -- the sub-reason, '' if none is known
    code           INTEGER,           -- the status code of a response
    first_seen     INTEGER NOT NULL,
    last_seen      INTEGER NOT NULL,
    attempts       INTEGER NOT NULL,
    deliveries     INTEGER NOT NULL,
    example_id     INTEGER NOT NULL,  -- the delivery of the latest failed attempt
    example_number INTEGER NOT NULL,  -- and the number of that attempt
    closed_at      INTEGER            -- NULL: it is open
);
CREATE INDEX cause_open ON cause (id) WHERE closed_at IS NULL;                 -- the list for all tenants
CREATE INDEX cause_open_tenant ON cause (tenant, id) WHERE closed_at IS NULL;  -- the list of a tenant
CREATE INDEX cause_endpoint ON cause (endpoint_id, id);                        -- the list of an endpoint
CREATE INDEX cause_recent ON cause (endpoint_id, closed_at);                   -- settle: open, or just closed
CREATE INDEX cause_closed ON cause (closed_at) WHERE closed_at IS NOT NULL;    -- retention

ALTER TABLE endpoint ADD COLUMN failing INTEGER NOT NULL DEFAULT 0;  -- failed since its last success
ALTER TABLE pending ADD COLUMN cause_id INTEGER NOT NULL DEFAULT 0;  -- of its last failed attempt
ALTER TABLE history ADD COLUMN cause_id INTEGER NOT NULL DEFAULT 0;

-- Whether a subscription uses an endpoint.
CREATE INDEX subscription_living ON subscription (endpoint_id) WHERE deleted_at IS NULL;

-- The attempts of an endpoint, newest first. A first attempt that succeeded is the last of its
-- delivery, and such attempts start in the order of ids: the list finds them through history.
CREATE INDEX attempt_endpoint ON attempt (endpoint_id, started_at)
WHERE outcome <> 'delivered' OR number > 1 OR lane <> 'fresh';
