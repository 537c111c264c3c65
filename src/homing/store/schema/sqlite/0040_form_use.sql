-- Forms that are used once, such as one that creates something: a second submit is refused.

CREATE TABLE form_use (
    once BLOB NOT NULL PRIMARY KEY,
    submit BLOB NOT NULL,
    used_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX form_use_by_time ON form_use (used_at);
