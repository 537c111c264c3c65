-- Sessions of the dashboard that are signed in. A session that is not here has ended.

CREATE TABLE key_session (
    id     TEXT PRIMARY KEY,     -- random
    holder TEXT NOT NULL,        -- the prefix of its key, or "admin"
    since  INTEGER NOT NULL
);
CREATE INDEX key_session_holder ON key_session (holder, since);
CREATE INDEX key_session_since ON key_session (since);

-- Raised by every session that ends before its time.
ALTER TABLE key_version ADD COLUMN sessions INTEGER NOT NULL DEFAULT 0;
