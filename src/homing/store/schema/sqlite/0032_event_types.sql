-- Event types: what tenants say about their events. A publish is checked against the schema of its type.

CREATE TABLE event_type (
    tenant      TEXT NOT NULL,
    name        TEXT NOT NULL,
    description TEXT NOT NULL,
    schema      TEXT NOT NULL,       -- JSON Schema; empty: none
    sample      TEXT NOT NULL,       -- JSON; empty: none
    checks      TEXT NOT NULL,       -- off, warn or refuse; empty: as the settings say
    bytes       INTEGER NOT NULL,    -- of its texts
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    version     INTEGER NOT NULL,    -- of the catalog, when it last changed
    PRIMARY KEY (tenant, name)
);

-- The version of the catalog at which a type of a tenant last changed.
CREATE TABLE event_type_change (
    tenant  TEXT PRIMARY KEY,
    version INTEGER NOT NULL,
    types   INTEGER NOT NULL         -- how many it has
) WITHOUT ROWID;
CREATE INDEX event_type_change_version ON event_type_change (version);

ALTER TABLE event ADD COLUMN warning TEXT NOT NULL DEFAULT '';    -- why its data does not match its type; empty: it does
