-- How many attempts a second a subscription takes; NULL: as many as there are.

ALTER TABLE subscription ADD COLUMN rate_per_second double precision;
