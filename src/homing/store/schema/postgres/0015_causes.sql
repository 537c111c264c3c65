-- Causes: why an endpoint fails, since when, how often. Settle writes them as counters.

CREATE TABLE cause (
    id             bigint PRIMARY KEY,
    tenant         text NOT NULL,
    endpoint_id    bigint NOT NULL,
    failure        text NOT NULL,  -- the failure class
    reason         text NOT NULL,  -- the sub-reason, '' if none is known
    code           integer,           -- the status code of a response
    first_seen     bigint NOT NULL,
    last_seen      bigint NOT NULL,
    attempts       bigint NOT NULL,
    deliveries     bigint NOT NULL,
    example_id     bigint NOT NULL,  -- the delivery of the latest failed attempt
    example_number integer NOT NULL,  -- and the number of that attempt
    closed_at      bigint            -- NULL: it is open
) WITH (fillfactor = 70);
CREATE INDEX cause_open ON cause (id) WHERE closed_at IS NULL;                 -- the list for all tenants
CREATE INDEX cause_open_tenant ON cause (tenant, id) WHERE closed_at IS NULL;  -- the list of a tenant
CREATE INDEX cause_endpoint ON cause (endpoint_id, id);                        -- the list of an endpoint
CREATE INDEX cause_recent ON cause (endpoint_id, closed_at);                   -- settle: open, or just closed
CREATE INDEX cause_closed ON cause (closed_at) WHERE closed_at IS NOT NULL;    -- retention

ALTER TABLE endpoint ADD COLUMN failing smallint NOT NULL DEFAULT 0;  -- failed since its last success
ALTER TABLE pending ADD COLUMN cause_id bigint NOT NULL DEFAULT 0;  -- of its last failed attempt
ALTER TABLE history ADD COLUMN cause_id bigint NOT NULL DEFAULT 0;

-- Whether a subscription uses an endpoint.
CREATE INDEX subscription_living ON subscription (endpoint_id) WHERE deleted_at IS NULL;

-- The attempts of an endpoint, newest first. A first attempt that succeeded is the last of its
-- delivery, and such attempts start in the order of ids: the list finds them through history.
CREATE INDEX attempt_endpoint ON attempt (endpoint_id, started_at)
WHERE outcome <> 'delivered' OR number > 1 OR lane <> 'fresh';
