-- Steady time, which all stored times are in, and the clock that it follows, at one moment: a start
-- compares them with its own clock and moves stored times where that one was set meanwhile.

CREATE TABLE clock_mark (
    one         INTEGER PRIMARY KEY CHECK (one = 1),
    steady_ms   INTEGER NOT NULL,
    clock_ms    INTEGER NOT NULL,   -- the wall clock, or the database's; 0: never marked
    since_ms    INTEGER NOT NULL,   -- stored times from here on are known to be in one steady time
    moving      TEXT NOT NULL,      -- the table whose times are being moved: 'endpoint', 'pending' or ''
    move_by_ms  INTEGER NOT NULL,
    move_from_ms INTEGER NOT NULL,  -- earlier times are left as they are
    moved_upto  INTEGER NOT NULL    -- the id of the last row that has been moved
);
INSERT INTO clock_mark VALUES (1, 0, 0, 0, '', 0, 0, 0);
