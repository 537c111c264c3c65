"""Seeds with 100 deliveries: those that once found a fault, and those that every test run has.

Those with 1,000 deliveries are below seed 1,000, all of which ``make simulate`` runs.
"""

from __future__ import annotations

DELIVERIES = 100

# In every test run: together they have every kind of fault, in a few seconds.
FIRST = (1, 13, 18, 22, 25, 28, 31, 40, 41, 43, 49, 58, 66, 67, 68, 69, 138, 211)
FLEET_FIRST = (0, 1, 3, 6, 8, 9, 12)

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
    157: "the watch took an endpoint that had just responded for one that was still down",
    483: "a frozen endpoint that was being read for the first time was attempted once",
}
# These faults have tests of their own in ``tests/engine`` (``test_fencing``, ``test_fleet``).
FLEET_REGRESSIONS = {
    30: "a settle refused for an old epoch lost the bucket that had been taken again: nobody's",
    41: "an endpoint was forgotten while its bucket was read: a failure was not counted",
    53: "a delivery to a subscription that its owner had not read yet was cancelled as deleted",
    109: "the checker took the attempt of a delivery that had moved to another URL for a probe",
}
