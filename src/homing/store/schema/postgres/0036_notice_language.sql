-- The language of the messages to a notice target.

ALTER TABLE notice_target ADD COLUMN language text NOT NULL DEFAULT 'en';
