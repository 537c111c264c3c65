-- The language of the messages to a notice target.

ALTER TABLE notice_target ADD COLUMN language TEXT NOT NULL DEFAULT 'en';
