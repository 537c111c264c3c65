-- The head of the audit log counts the segments that were missing or changed when retention came to them.

ALTER TABLE audit_head ADD COLUMN damaged bigint NOT NULL DEFAULT 0;
