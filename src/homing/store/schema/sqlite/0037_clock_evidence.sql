-- What tells a start how much time has really passed since the clock was marked, however it was set.

ALTER TABLE clock_mark ADD COLUMN wall_ms INTEGER NOT NULL DEFAULT 0;       -- of the machine that marked it
ALTER TABLE clock_mark ADD COLUMN boot_id TEXT NOT NULL DEFAULT '';      -- of its kernel; '': unknown
ALTER TABLE clock_mark ADD COLUMN boot_ms INTEGER NOT NULL DEFAULT 0;       -- since that kernel started
ALTER TABLE clock_mark ADD COLUMN synchronised INTEGER NOT NULL DEFAULT 0;  -- 1: its wall clock was right, as the kernel said
ALTER TABLE clock_mark ADD COLUMN apart INTEGER NOT NULL DEFAULT 0;         -- 1: the database was on another machine
