-- The key of an event: the object that it is about; empty: none was named.

ALTER TABLE event ADD COLUMN order_key TEXT NOT NULL DEFAULT '';
