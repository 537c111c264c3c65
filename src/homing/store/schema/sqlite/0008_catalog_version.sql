-- The version of the subscriptions that a process has read: it acts on no older one. NULL: it sends
-- nothing yet.

ALTER TABLE process ADD COLUMN catalog INTEGER;
