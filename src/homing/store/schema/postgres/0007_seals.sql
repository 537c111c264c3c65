-- Which keys seal tokens, secrets and header values: their names, never the keys.

CREATE TABLE seal (
    name text PRIMARY KEY,
    done smallint NOT NULL          -- 1: all is sealed with it
);
