-- The version of the subscriptions that a process has read: it acts on no older one.

ALTER TABLE process ADD COLUMN catalog bigint NOT NULL DEFAULT 0;
