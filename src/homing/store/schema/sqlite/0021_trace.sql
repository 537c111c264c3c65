-- The trace of the publisher (traceparent), which receivers get; empty: none.

ALTER TABLE event ADD COLUMN trace TEXT NOT NULL DEFAULT '';
