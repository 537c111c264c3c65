-- The other attributes of a CloudEvent (source, subject, extensions), as JSON; empty: it was none.

ALTER TABLE event ADD COLUMN context TEXT NOT NULL DEFAULT '';
