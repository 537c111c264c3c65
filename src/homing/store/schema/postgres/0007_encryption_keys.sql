-- Which keys encrypt tokens, secrets and header values: their names, never the keys.

CREATE TABLE seal (
    name text PRIMARY KEY,
    done smallint NOT NULL          -- 1: all is encrypted with it
);
