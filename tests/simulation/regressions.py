"""Seeds by which the simulation has found a fault, each with what it was."""

from __future__ import annotations

SEEDS = 60  # from 0 on, in every test run
DELIVERIES = 100

REGRESSIONS = {
    0: "a settle whose reply was lost was written twice, and then never again",
    7: "canaries took slots of a lane that had none left",
    10: "when an outage ended, an endpoint got a second attempt beside its canary",
    11: "a publish, an enable or a change whose reply was lost was never looked for",
    27: "a move whose reply was lost left deliveries that nobody looked for",
    33: "held endpoints were polled for what had expired",
    53: "a delivery that a load had brought was accepted once more and sent twice; after a clock "
    "that was ahead, fresh deliveries were dropped as expired",
    82: "after a clock that was ahead, no probe went out for a day",
    138: "a replay whose reply was lost left a delivery that nobody looked for",
    142: "the watch took a response to a request from before a second outage as the end of it",
    483: "a frozen endpoint that was being read for the first time was attempted once",
}
LARGE_DELIVERIES = 1_000
LARGE_REGRESSIONS = {  # with so many; `make simulate` runs every seed below 1,000 so
    51: "the watch took a notice that was as old as the settle it waited with for a wrong one",
    79: "the watch took a response to a request from before the outage as the end of the suspicion",
    166: "a process that died in its first moment was taken to be up",
    182: "a delivery that was in flight while expired ones were read was dropped as one of them",
    307: "a first attempt that an enable made fresh, by a clock that was ahead, broke the order",
    416: "an idle endpoint was forgotten while an older row of it was on its way; an attempt that "
    "was settled in between was not counted",
    420: "what an endpoint had queued when it asked for a pause kept the others from being read",
    501: "what an endpoint had queued when it asked for a pause kept the others from being read",
    671: "a pause that was asked for while rows were being read never ended",
    808: "a delivery whose window ended after its endpoint was enabled was dropped as held back",
}
