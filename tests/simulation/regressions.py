"""Seeds with 100 deliveries that found a fault, each with what it was.

Those with 1,000 deliveries are below seed 1,000, all of which ``make simulate`` runs.
"""

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
