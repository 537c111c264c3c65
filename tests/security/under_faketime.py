"""``homing`` with a replacement of ``time.sleep``, which libfaketime 0.9.10 breaks.

libfaketime takes the monotonic end of a sleep for a wall-clock time, and the kernel refuses the
result. The server sleeps only while it waits for its writer process to end.
"""

from __future__ import annotations

import select
import time

from homing.cli.main import main


def sleep(seconds: float) -> None:
    select.select([], [], [], seconds)


time.sleep = sleep  # type: ignore[assignment]

if __name__ == "__main__":
    main()
