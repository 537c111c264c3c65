-- The attempt of a delivery that succeeded at once, in its row of history: one row less to write.
-- NULL: its attempts, if there are any, are in the table of attempts, as are all those written before.

ALTER TABLE history ADD COLUMN first_attempt bytea;
