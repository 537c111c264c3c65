-- The customer portal: links that open a session for a tenant, and how each tenant's portal looks.

CREATE TABLE portal_link (
    id            INTEGER PRIMARY KEY,
    tenant        TEXT NOT NULL,
    role          TEXT NOT NULL,
    subject       TEXT NOT NULL,     -- who gets it, as the application names the person
    hash          BLOB NOT NULL,     -- SHA-256 of the link's secret
    made_by       TEXT NOT NULL,
    key_id        INTEGER,           -- of the key that made it
    created_at    INTEGER NOT NULL,
    opens_until   INTEGER NOT NULL,
    session_ms    INTEGER NOT NULL,
    opened_at     INTEGER,
    session_hash  BLOB,              -- SHA-256 of the session's secret
    session_until INTEGER,
    revoked_at    INTEGER,
    ends_at       INTEGER NOT NULL   -- from then on it is good for nothing
);
CREATE INDEX portal_link_tenant ON portal_link (tenant, id);
CREATE INDEX portal_link_live ON portal_link (tenant, ends_at);
CREATE INDEX portal_link_ends ON portal_link (ends_at);

CREATE TABLE portal_settings (
    tenant          TEXT PRIMARY KEY,
    name            TEXT NOT NULL,
    accent_color    TEXT NOT NULL,
    header_color    TEXT NOT NULL,
    theme           TEXT NOT NULL,
    frame_ancestors TEXT NOT NULL,   -- JSON
    logo_type       TEXT NOT NULL,   -- empty: no logo
    logo_digest     TEXT NOT NULL,
    logo_bytes      INTEGER NOT NULL,
    updated_at      INTEGER NOT NULL,
    logo            BLOB
) WITHOUT ROWID;
