-- Payload fields by which people find events: keyed hashes of values, never the values.

CREATE TABLE event_field (
    event_id bigint NOT NULL,
    place    smallint NOT NULL,     -- among the fields of the event
    hash     bytea NOT NULL,        -- of the path and the value
    tenant   text NOT NULL,
    PRIMARY KEY (event_id, place)   -- retention asks by event
);
CREATE INDEX event_field_hash ON event_field (hash, tenant, event_id);  -- search
