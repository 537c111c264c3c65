"""Trouble called ours that stays at one host: whose it is after all (``policy/gate``)."""

from __future__ import annotations

from homing.policy.gate import HostTrouble, host_again

HOSTS_MOST = 4_096  # hosts in trouble that are remembered


class HostTroubles:
    """The hosts whose failures are called ours."""

    def __init__(self) -> None:
        self._hosts: dict[str, HostTrouble] = {}

    def __bool__(self) -> bool:
        return bool(self._hosts)

    def again(self, host: str, *, now: int, through_at: int) -> bool:
        """It fails once more; True: the trouble is the host's."""
        trouble, theirs = host_again(self._hosts.pop(host, None), now=now, through_at=through_at)
        if len(self._hosts) >= HOSTS_MOST:
            self._hosts.pop(next(iter(self._hosts)))
        self._hosts[host] = trouble
        return theirs

    def answered(self, host: str) -> None:
        """It has none."""
        self._hosts.pop(host, None)
