-- By how much the pauses of its subscription have moved the times of a pending delivery so far.

ALTER TABLE pending ADD COLUMN paused_ms INTEGER NOT NULL DEFAULT 0;
