-- The outbox of Homing: what is inserted here (type, data, and if you like id, tenant, time, key)
-- is published by the relay once the transaction around it has committed. SQLite has no functions of
-- its own, so the table itself checks. Running this again changes nothing that is there.

CREATE TABLE IF NOT EXISTS homing_outbox (
    number     INTEGER PRIMARY KEY AUTOINCREMENT,
    made_id    TEXT NOT NULL             -- of the event, where none is given: milliseconds, then random digits
        DEFAULT (printf('%012x', CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER))
                 || lower(hex(randomblob(10)))),
    id         TEXT                      -- of the event, where the caller has one
        CONSTRAINT "id must be 1 to 128 visible ASCII characters without a dot"
        CHECK (id IS NULL OR (length(id) BETWEEN 1 AND 128 AND id NOT GLOB '*[^!-~]*' AND instr(id, '.') = 0)),
    tenant     TEXT NOT NULL DEFAULT 'default'
        CONSTRAINT "tenant must be 1 to 64 of the characters A-Z a-z 0-9 _ -"
        CHECK (length(tenant) BETWEEN 1 AND 64 AND tenant NOT GLOB '*[^A-Za-z0-9_-]*'),
    type       TEXT NOT NULL
        CONSTRAINT "type must be 1 to 256 of the characters A-Z a-z 0-9 . _ -"
        CHECK (length(type) BETWEEN 1 AND 256 AND type NOT GLOB '*[^A-Za-z0-9._-]*')
        CONSTRAINT "type must not begin with homing., which is for Homing's own events"
        CHECK (type NOT GLOB 'homing.*'),
    data       TEXT NOT NULL             -- JSON, byte for byte
        CONSTRAINT "data must be JSON" CHECK (typeof(data) = 'text' AND json_valid(data))
        CONSTRAINT "data must be at most 1 MiB" CHECK (length(CAST(data AS BLOB)) <= 1048576),
    time       TEXT                      -- after RFC 3339; NULL: created_at, or with an own id when
                                         -- Homing accepts it, so that the same id twice is one event
        CONSTRAINT "time must be a time after RFC 3339, like 2025-01-31T12:00:00Z"
        CHECK (time IS NULL OR (julianday(time) IS NOT NULL AND date(substr(time, 1, 10)) = substr(time, 1, 10) AND
            (time GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]T[0-9][0-9]:[0-9][0-9]:[0-9][0-9]*Z'
             OR time GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]T[0-9][0-9]:[0-9][0-9]:[0-9][0-9]*[+-][0-9][0-9]:[0-9][0-9]'))),
    key        TEXT                      -- the object that the event is about; NULL: none
        CONSTRAINT "key must be 1 to 128 bytes of printable text (UTF-8), without a space at its beginning or end"
        CHECK (key IS NULL OR (typeof(key) = 'text' AND length(CAST(key AS BLOB)) BETWEEN 1 AND 128
            AND key NOT GLOB '*[' || char(1) || '-' || char(31) || char(127) || ']*'
            AND key NOT GLOB ' *' AND key NOT GLOB '* ')),
    created_at INTEGER NOT NULL          -- Unix milliseconds
        DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)),
    refused_at INTEGER,                  -- Homing refused it for good …
    reason     TEXT                      -- … and said why
);
CREATE INDEX IF NOT EXISTS homing_outbox_waiting ON homing_outbox (number) WHERE refused_at IS NULL;
CREATE INDEX IF NOT EXISTS homing_outbox_refused ON homing_outbox (number) WHERE refused_at IS NOT NULL;
