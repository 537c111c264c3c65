"""Every attempt that may be in flight at once has a descriptor, probes too."""

from __future__ import annotations

from homing.engine.options import EngineOptions
from homing.policy.descriptors import Shares
from homing.server.open_files import fit_slots


def test_slots_of_lanes_and_probes_fit_the_descriptors_together() -> None:
    for sockets in (2_000, 600, 60):
        options = fit_slots(EngineOptions(), Shares(connections=100, sockets=sockets))
        in_flight = options.fresh_slots + options.retry_slots + options.probe_slots
        assert in_flight <= max(sockets, 3)
        assert min(options.fresh_slots, options.retry_slots, options.probe_slots) >= 1
