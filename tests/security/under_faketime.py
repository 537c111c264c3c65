"""``homing`` as it is, but for ``time.sleep``: libfaketime 0.9.10 makes that one fail.

It takes the monotonic time at which a sleep shall end for a wall-clock time, and the kernel refuses
what comes of it. The server sleeps so only while it waits for its writer process to end.
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
