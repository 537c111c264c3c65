-- Fields of a subscription that have no column of their own, as a JSON object.

ALTER TABLE subscription ADD COLUMN settings TEXT NOT NULL DEFAULT '{}';
ALTER TABLE subscription RENAME COLUMN connector TO filter_connector;
