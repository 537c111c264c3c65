-- A publish compares no version of the catalog. A process that is no longer waited for is fenced: its
-- publishes carry an older number, and the mark that they write refuses them.

ALTER TABLE batch_mark ADD COLUMN fence bigint NOT NULL DEFAULT 0;  -- of a publish: with an older one it is refused

-- Changes are read in pages: many subscriptions may have one version.
DROP INDEX subscription_version;
CREATE INDEX subscription_version ON subscription (version, id);
