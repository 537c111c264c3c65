-- A process that is no longer waited for is fenced, as on PostgreSQL.

ALTER TABLE batch_mark ADD COLUMN fence INTEGER NOT NULL DEFAULT 0;  -- of a publish: with an older one it is refused

-- Changes are read in pages: many subscriptions may have one version.
DROP INDEX subscription_version;
CREATE INDEX subscription_version ON subscription (version, id);
