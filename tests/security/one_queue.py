"""A deliberately broken build: one queue of look-ups for all tenants, and nothing is kept."""

from __future__ import annotations

from homing.cli.main import main
from homing.net import resolver
from homing.policy import look_ups

THREADS = 32


def _whoever_comes_first(held: int, *, free: int, reserve: int) -> bool:
    del held, reserve
    return free > 0


look_ups.has_share = _whoever_comes_first
resolver.KNOWN_S_MAX = resolver.FAILED_S_MAX = 0.0
resolver.Resolver.__init__.__kwdefaults__ |= {"threads_max": THREADS}  # type: ignore[operator]

if __name__ == "__main__":
    main()
