"""A deliberately broken build: 26 failing endpoints of one tenant are an outage of the sender."""

from __future__ import annotations

from homing.cli.main import main
from homing.policy import outage

_needed = outage.needed


def _capped(
    *, healthy: int, hosts: int, tenants: int, rules: outage.OutageRules
) -> outage.Needed | None:
    return _needed(healthy=min(healthy, 50), hosts=hosts, tenants=min(tenants, 1), rules=rules)


outage.needed = _capped

if __name__ == "__main__":
    main()
