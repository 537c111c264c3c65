-- A row here means: old row versions with plaintext secrets may still be in the database files.
-- They must be rewritten; the row is removed only after that.

CREATE TABLE plaintext_removal (
    id INTEGER PRIMARY KEY CHECK (id = 1)
);

-- Due where the database is older than encryption (migration 7). The migrations of a new database
-- are applied within a moment, so a minute between the first and the seventh means an upgrade.
INSERT INTO plaintext_removal (id)
SELECT 1 WHERE EXISTS (
    SELECT 1 FROM migration AS first, migration AS encryption
    WHERE first.number = 1 AND encryption.number = 7
    AND first.applied_at + 60000 < encryption.applied_at
) OR EXISTS (
    SELECT 1 FROM subscription, migration AS encryption
    WHERE encryption.number = 7 AND subscription.created_at < encryption.applied_at
);
