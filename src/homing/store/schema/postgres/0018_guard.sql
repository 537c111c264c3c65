-- The settings under which an endpoint last passed the guard, and since when changed ones refuse it.

ALTER TABLE endpoint ADD COLUMN guard_passed bigint NOT NULL DEFAULT 0;
ALTER TABLE endpoint ADD COLUMN guard_refused_at bigint NOT NULL DEFAULT 0;
CREATE INDEX endpoint_refused ON endpoint (guard_refused_at) WHERE guard_refused_at > 0;
