-- The policies of the settings, as they were last known: one that was removed keeps its numbers where it is used.

CREATE TABLE policy (
    name     text PRIMARY KEY,
    schedule text NOT NULL    -- JSON
);
