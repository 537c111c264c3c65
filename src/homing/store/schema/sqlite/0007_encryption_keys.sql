-- Which keys encrypt tokens, secrets and header values: their names, never the keys.

CREATE TABLE seal (
    name TEXT PRIMARY KEY,
    done INTEGER NOT NULL          -- 1: all is encrypted with it
);
