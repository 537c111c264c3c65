"""The settings that keep secrets secret, and tenants and callers within their bounds."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from homing.policy.quota import Quota
from homing.server.settings.fleet import FleetSettings

SEAL_FILE = "secret.key"  # in the data directory
MOST = 1_000_000_000


def _quota(sentence: str, unit: str) -> Meta:
    return Meta(ge=0, le=MOST, description=sentence, extra={"unit": unit})


class GuardSettings(FleetSettings, frozen=True, kw_only=True):
    """The key that seals, what each tenant may have by default, and how many may connect."""

    secret_key: Annotated[
        str,
        Meta(
            description=(
                "What seals tokens, secrets and header values in the database; with several keys "
                "the first seals and all open. Empty: the file secret.key in the data directory, "
                "made at the first start."
            ),
            extra={"allowed": "empty, or base64 of 32 bytes; several parted by commas"},
        ),
    ] = ""
    publish_per_second: Annotated[
        int,
        _quota("Events a second that a tenant may publish, per process; 0: any number.", "events"),
    ] = 0
    pending_max: Annotated[
        int,
        _quota("Pending deliveries that a tenant may have; 0: any number.", "deliveries"),
    ] = 0
    subscriptions_max: Annotated[
        int, _quota("Subscriptions that a tenant may have; 0: any number.", "subscriptions")
    ] = 0

    connections_max: Annotated[
        int,
        Meta(
            ge=1,
            le=200_000,
            description=(
                "Connections to the API at a time; beyond it, and where descriptors are short "
                "before it, the idlest are closed."
            ),
            extra={"unit": "connections"},
        ),
    ] = 8_192
    connections_per_address_max: Annotated[
        int,
        Meta(
            ge=0,
            le=200_000,
            description=(
                "Connections to the API from one address at a time; 0: as many as from all, where "
                "the address with the most loses its idlest first."
            ),
            extra={"unit": "connections"},
        ),
    ] = 0

    @property
    def quota(self) -> Quota:
        """Of a tenant that has no numbers of its own."""
        return Quota(self.publish_per_second, self.pending_max, self.subscriptions_max)
