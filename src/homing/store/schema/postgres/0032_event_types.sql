-- Event types: what tenants say about their events. A publish is checked against the schema of its type.

CREATE TABLE event_type (
    tenant      text COLLATE "C" NOT NULL,
    name        text COLLATE "C" NOT NULL,
    description text NOT NULL,
    schema      text NOT NULL,      -- JSON Schema; empty: none
    sample      text NOT NULL,      -- JSON; empty: none
    checks      text NOT NULL,      -- off, warn or refuse; empty: as the settings say
    bytes       bigint NOT NULL,    -- of its texts
    created_at  bigint NOT NULL,
    updated_at  bigint NOT NULL,
    version     bigint NOT NULL,    -- of the catalog, when it last changed
    PRIMARY KEY (tenant, name)
);

-- The version of the catalog at which a type of a tenant last changed.
CREATE TABLE event_type_change (
    tenant  text PRIMARY KEY,
    version bigint NOT NULL,
    types   bigint NOT NULL         -- how many it has
);
CREATE INDEX event_type_change_version ON event_type_change (version);

ALTER TABLE event ADD COLUMN warning text NOT NULL DEFAULT '';    -- why its data does not match its type; empty: it does
