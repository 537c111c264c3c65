"""Planted bugs of the gate: our own trouble, and whose fault it is."""

from __future__ import annotations

from sim.planting import bug

GATE = "homing.engine.gate:Gate"
CANARIES = "homing.engine.canaries:Canaries"
DISPATCH = "homing.engine.dispatch:Dispatcher"
SWEEP = "homing.engine.sweep:Sweeper"

GATE_BUGS = [
    bug(
        "what fails in our own outage counts for the receivers",
        (
            f"{GATE}._no_answer",
            "self.settle(as_ours(rested(made)))",
            "self.settle(made)",
        ),
    ),
    bug(
        "what waited for the verdict counts for the receivers",
        (f"{GATE}._release", "as_ours(made) if ours else made", "made"),
    ),
    bug(
        "what waited for the verdict is forgotten",
        (f"{GATE}._release", "for made in held:", "for made in held[1:]:"),
    ),
    bug(
        "the gate never opens",
        (
            f"{GATE}._answered",
            "if made.started_at >= self.closed_at and not made.answer.remembered:",
            "if False:",
        ),
    ),
    bug(
        "a closed gate lets everything out",
        (f"{DISPATCH}._start_ready", "if self.shut:", "if False:"),
    ),
    bug(
        "one receiver that falls silent is called our outage",
        (
            "homing.policy.gate:verdict",
            "if need is not None and most and hosts >= need.hosts and tenants >= need.tenants:",
            "if failing >= 1:",
        ),
    ),
    bug(
        "a closed gate tries a host in every round",
        (f"{CANARIES}._choose", "if next_at > now}", "if False}"),
    ),
    bug(
        "no slow start when the gate opens",
        (f"{GATE}._resume", "station.ramp = Ramp()", "pass"),
    ),
    bug(
        "a canary takes a slot that is not there",
        (f"{CANARIES}.send", " and dispatcher.has_slot(one.lane)", ""),
    ),
    bug(
        "a station is not looked at when the gate opens",
        (f"{GATE}._resume", "self._dispatcher.look(station)", "pass"),
    ),
    bug(
        "things expire after a pause of our own",
        (
            f"{SWEEP}.quiet_until",
            "since = max(since, self._paused(self._clock.now()))",
            "pass",
        ),
    ),
    bug(
        "a host in our trouble is blamed while nobody gets through",
        ("homing.policy.gate:host_again", "if through_at < trouble.seen_at:", "if False:"),
    ),
    bug(
        "the dead hosts of one tenant are called our outage",
        ("homing.policy.gate:needed", "tenants=tenants // 2 + 1,", "tenants=1,"),
    ),
    bug(
        "endpoints that still fail when the gate has opened are called healthy",
        (f"{GATE}._open", "self._witnesses.disprove()", "self._witnesses.rise_all()"),
    ),
]
