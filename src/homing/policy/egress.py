"""How requests leave this installation: its proxy, and the files of its client certificates."""

from __future__ import annotations

from base64 import b64encode

from msgspec import Struct


class Proxy(Struct, frozen=True):
    """The address of the proxy, which the operator chose: the guard does not check it."""

    host: str
    port: int
    user: str = ""
    password: str = ""
    direct_hosts: tuple[str, ...] = ()  # names, and *.name for all below one: not through it
    resolves: bool = False  # the proxy looks the names of targets up, this process does not

    def covers(self, host: str) -> bool:
        """Whether requests to this host go through the proxy."""
        return not any(
            host.endswith(one[1:]) if one.startswith("*.") else host == one
            for one in self.direct_hosts
        )

    def head(self, authority: str) -> bytes:
        """The request for a tunnel to ``host:port``."""
        lines = [f"CONNECT {authority} HTTP/1.1", f"host: {authority}"]
        if self.user or self.password:
            basic = b64encode(f"{self.user}:{self.password}".encode()).decode()
            lines.append(f"proxy-authorization: Basic {basic}")
        return "\r\n".join((*lines, "", "")).encode()

    def __repr__(self) -> str:
        return f"Proxy({self.host}:{self.port})"


class IdentityPaths(Struct, frozen=True):
    """The files of one tenant, or of the installation; an empty path: none."""

    certificate: str = ""
    key: str = ""
    authorities: str = ""

    def __bool__(self) -> bool:
        return bool(self.certificate or self.key or self.authorities)


NO_FILES = IdentityPaths()
