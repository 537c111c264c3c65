"""Planted bugs of look-ups: shares, threads, and who is charged for our own queue."""

from __future__ import annotations

from sim.planting import bug as _bug

NAME_BUGS = [
    _bug(
        "look-ups go to whoever comes first",
        (
            "homing.policy.look_ups:has_share",
            "return free > 0 if held == 0 else SHARE_OF_FREE * held < free - reserve",
            "return free > 0",
        ),
    ),
    _bug(
        "a look-up that ended keeps its thread",
        ("homing.net.resolver:Resolver._finish", "self._queue.end(tenant)", "pass"),
    ),
    _bug(
        "a wait in our own queue of look-ups is charged to the receiver",
        ("homing.net.late:charged", "if not flight.held_up or", "if True or"),
    ),
    _bug(
        "a limit of our own is taken for the host's after a while",
        (
            "homing.policy.gate:could_be_hosts",
            "return failure is not Failure.OUR_LIMITS",
            "return True",
        ),
    ),
]
