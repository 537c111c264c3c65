-- Versions of the catalog that no failover gives twice, as on PostgreSQL. SQLite has no servers: the
-- number of this one is 0.

ALTER TABLE catalog ADD COLUMN server INTEGER NOT NULL DEFAULT 0;  -- that made the last change
ALTER TABLE catalog ADD COLUMN base INTEGER;                       -- the version that it found; NULL: it was the first
