-- The policies of the settings, as they were last known: one that was removed keeps its numbers where it is used.

CREATE TABLE policy (
    name     TEXT PRIMARY KEY,
    schedule TEXT NOT NULL    -- JSON
) WITHOUT ROWID;
