-- Steady time, which all stored times are in, and the clock that it follows, at one moment: a start
-- compares them with its own clock and moves stored times where that one was set meanwhile.

CREATE TABLE clock_mark (
    one         bigint PRIMARY KEY CHECK (one = 1),
    steady_ms   bigint NOT NULL,
    clock_ms    bigint NOT NULL,   -- the wall clock, or the database's; 0: never marked
    since_ms    bigint NOT NULL,   -- stored times from here on are known to be in one steady time
    moving      text NOT NULL,      -- the table whose times are being moved: 'endpoint', 'pending' or ''
    move_by_ms  bigint NOT NULL,
    move_from_ms bigint NOT NULL,  -- earlier times are left as they are
    moved_upto  bigint NOT NULL    -- the id of the last row that has been moved
);
INSERT INTO clock_mark VALUES (1, 0, 0, 0, '', 0, 0, 0);
