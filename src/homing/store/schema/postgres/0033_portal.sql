-- The customer portal: links that open a session for a tenant, and how each tenant's portal looks.

CREATE TABLE portal_link (
    id            bigint PRIMARY KEY,
    tenant        text NOT NULL,
    role          text NOT NULL,
    subject       text NOT NULL,     -- who gets it, as the application names the person
    hash          bytea NOT NULL,    -- SHA-256 of the link's secret
    made_by       text NOT NULL,
    key_id        bigint,            -- of the key that made it
    created_at    bigint NOT NULL,
    opens_until   bigint NOT NULL,
    session_ms    bigint NOT NULL,
    opened_at     bigint,
    session_hash  bytea,             -- SHA-256 of the session's secret
    session_until bigint,
    revoked_at    bigint,
    ends_at       bigint NOT NULL   -- from then on it is good for nothing
);
CREATE INDEX portal_link_tenant ON portal_link (tenant, id);
CREATE INDEX portal_link_live ON portal_link (tenant, ends_at);
CREATE INDEX portal_link_ends ON portal_link (ends_at);

CREATE TABLE portal_settings (
    tenant          text PRIMARY KEY,
    name            text NOT NULL,
    accent_color    text NOT NULL,
    header_color    text NOT NULL,
    theme           text NOT NULL,
    frame_ancestors text NOT NULL,   -- JSON
    logo_type       text NOT NULL,   -- empty: no logo
    logo_digest     text NOT NULL,
    logo_bytes      bigint NOT NULL,
    updated_at      bigint NOT NULL,
    logo            bytea
);
