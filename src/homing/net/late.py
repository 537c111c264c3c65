"""Which failure a passed deadline is, and whether receiver or sender used the time up.

A deadline runs from the start of the attempt, so the wait in the sender's own queue of look-ups is
taken from the receiver's time. A timeout after such a wait is a limit of the sender.
"""

from __future__ import annotations

from typing import assert_never

from homing.model import Failure
from homing.net.flight import Flight, Stage
from homing.net.trouble import Trouble

_LATE = frozenset((Failure.TIMEOUT, Failure.CONNECT_TIMEOUT))


def why_late(flight: Flight) -> Trouble:
    """The failure of a flight whose deadline has passed, by the stage that it had reached."""
    within = f"within {flight.request.deadline_ms} ms"
    match flight.stage:
        case Stage.QUEUE:
            said = f"the look-up waited in the sender's own queue and did not begin {within}"
            return Trouble(Failure.OUR_LIMITS, said)
        case Stage.LOOK_UP:
            # Which of the resolvers is slow cannot be known: the same as EAI_AGAIN.
            return Trouble(Failure.OUR_DNS, f"the look-up did not end {within}")
        case Stage.CONNECT:
            why = Trouble(Failure.CONNECT_TIMEOUT, f"no connection {within}")
        case Stage.HANDSHAKE:
            why = Trouble(Failure.TIMEOUT, f"the TLS handshake did not end {within}")
        case Stage.ANSWER:
            begun = (
                "the head of the response did not end" if flight.first_byte_at else "no response"
            )
            why = Trouble(Failure.TIMEOUT, f"{begun} {within}")
        case _:
            assert_never(flight.stage)
    return charged(flight, why)


def charged(flight: Flight, why: Trouble) -> Trouble:
    """The failure; if it is a timeout after a wait in the sender's queue, a limit of the sender."""
    if not flight.held_up or why.failure not in _LATE:
        return why
    waited_ms = round(flight.queued_s * 1000)
    said = f"{why.detail}, of which the look-up waited {waited_ms} ms in the sender's own queue"
    return Trouble(Failure.OUR_LIMITS, said)
