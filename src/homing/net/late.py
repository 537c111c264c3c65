"""Too late: what a deadline that passes is called, and whose time was used up.

A deadline runs from the start of the attempt, so what an attempt waits in our own queue of look-ups
is taken from the receiver. A timeout after such a wait is a limit of ours.
"""

from __future__ import annotations

from typing import assert_never

from homing.model import Failure
from homing.net.flight import Flight, Stage
from homing.net.trouble import Trouble

_LATE = frozenset((Failure.TIMEOUT, Failure.CONNECT_TIMEOUT))


def why_late(flight: Flight) -> Trouble:
    """What a deadline that passes is called; the wait in our own queue is not the receiver's."""
    within = f"within {flight.request.deadline_ms} ms"
    match flight.stage:
        case Stage.QUEUE:
            said = f"the look-up waited in our own queue and did not begin {within}"
            return Trouble(Failure.OUR_LIMITS, said)
        case Stage.LOOK_UP:
            # Which resolver along the way is slow cannot be seen from here: the same as EAI_AGAIN.
            return Trouble(Failure.OUR_DNS, f"the look-up did not end {within}")
        case Stage.CONNECT:
            why = Trouble(Failure.CONNECT_TIMEOUT, f"no connection {within}")
        case Stage.HANDSHAKE:
            why = Trouble(Failure.TIMEOUT, f"the TLS handshake did not end {within}")
        case Stage.ANSWER:
            begun = "the answer's head did not end" if flight.first_byte_at else "no answer"
            why = Trouble(Failure.TIMEOUT, f"{begun} {within}")
        case _:
            assert_never(flight.stage)
    return charged(flight, why)


def charged(flight: Flight, why: Trouble) -> Trouble:
    """The same, or our own limit where a timeout follows a wait in our own queue."""
    if not flight.held_up or why.failure not in _LATE:
        return why
    waited_ms = round(flight.queued_s * 1000)
    said = f"{why.detail}, of which the look-up waited {waited_ms} ms in our own queue"
    return Trouble(Failure.OUR_LIMITS, said)
