"""The listening socket that a service manager hands over, as systemd does for ``homing.socket``.

The manager keeps the socket open while the service is restarted: connections wait in it, and none
is refused. The protocol is that of sd_listen_fds(3).
"""

from __future__ import annotations

import os

from homing.errors import BadSetting

FIRST_DESCRIPTOR = 3


def inherited_descriptor() -> int | None:
    """The descriptor of the socket; None if this process got none; raises BadSetting."""
    if os.environ.get("LISTEN_PID") != str(os.getpid()):
        return None  # The variables are those of another process.
    count = os.environ.get("LISTEN_FDS", "0")
    if count == "0":
        return None
    if count != "1":
        raise BadSetting(
            f"LISTEN_FDS = {count}: the service manager must hand over one socket."
            " Leave one ListenStream= line in the .socket unit."
        )
    return FIRST_DESCRIPTOR
