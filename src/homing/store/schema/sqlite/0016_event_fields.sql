-- Payload fields by which people find events: keyed hashes of values, never the values.

CREATE TABLE event_field (
    event_id INTEGER NOT NULL,
    place    INTEGER NOT NULL,      -- among the fields of the event
    hash     BLOB NOT NULL,         -- of the path and the value
    tenant   TEXT NOT NULL,
    PRIMARY KEY (event_id, place)   -- retention asks by event
) WITHOUT ROWID;
CREATE INDEX event_field_hash ON event_field (hash, tenant, event_id);  -- search
