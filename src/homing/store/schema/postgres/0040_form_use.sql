-- Forms that are used once, such as one that creates something: a second submit is refused.

CREATE TABLE form_use (
    once bytea NOT NULL PRIMARY KEY,
    submit bytea NOT NULL,
    used_at bigint NOT NULL
);
CREATE INDEX form_use_by_time ON form_use (used_at);
