"""Divides the file descriptors of a process between connections to the API and attempts."""

from __future__ import annotations

import contextlib
import resource
from functools import partial
from pathlib import Path

import structlog
from msgspec.structs import replace

from homing.engine.options import EngineOptions
from homing.policy.descriptors import Shares, fitting, share_out

log = structlog.get_logger("homing")

UNLIMITED = 1_000_000
ENOUGH = 262_144  # No setting needs more, and a larger table would only cost memory.


def raise_limit() -> int:
    """Raise the soft limit towards the hard one, up to ``ENOUGH``; returns the limit that holds."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return ENOUGH
    wanted = ENOUGH if hard == resource.RLIM_INFINITY else min(hard, ENOUGH)
    if soft < wanted:
        with contextlib.suppress(OSError, ValueError):  # Some systems have a lower limit.
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            return wanted
    return soft


def _count_open() -> int:
    """How many descriptors are open."""
    with contextlib.suppress(OSError):
        return len(list(Path("/dev/fd").iterdir())) - 1  # less the one that lists them
    return 64


def share_descriptors(limit: int | None, connections_max: int, options: EngineOptions) -> Shares:
    """How many descriptors connections and attempts may use, beside those that are open now.

    ``limit`` is that of this process; None inside another program: no share is limited.
    """
    if limit is None:
        return Shares(connections_max, UNLIMITED)
    slots = _slots(options)
    shares = share_out(
        limit=limit, used=_count_open(), connections_max=connections_max, slots=slots
    )
    if shares.connections < connections_max or shares.sockets < slots:
        log.warning(
            "the limit of open files is low; raise it (ulimit -n, LimitNOFILE= of systemd)",
            open_files_max=limit,
            connections_max=shares.connections,
            attempts_in_flight_max=min(shares.sockets, slots),
        )
    return shares


def fit_slots(options: EngineOptions, shares: Shares) -> EngineOptions:
    """The options with as many slots as there are descriptors for."""
    fit = partial(fitting, sockets=shares.sockets, slots=_slots(options))
    fresh_slots, retry_slots = fit(options.fresh_slots), fit(options.retry_slots)
    return replace(
        options,
        fresh_slots=fresh_slots,
        retry_slots=retry_slots,
        probe_slots=fit(options.probe_slots),
        endpoint_slots=min(options.endpoint_slots, fresh_slots, retry_slots),
    )


def _slots(options: EngineOptions) -> int:
    return options.fresh_slots + options.retry_slots + options.probe_slots
