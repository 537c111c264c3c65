"""``homing relay``: publishes the rows of an outbox through the API."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Iterator, Sequence

import msgspec
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from homing.cli.errors import NoServer, Usage
from homing.cli.logs import configure_logs
from homing.cli.outbox import outbox_address
from homing.cli.output import counted
from homing.cli.remote import Target, find_server
from homing.engine.relay import Relay, RelayOptions
from homing.errors import FieldProblem, StoreUnavailable
from homing.net.clock import SystemClock
from homing.ports import NotAllowed, NotNow, OutboxRow, OutboxStore, PublishRows, RowsRefused
from homing.server.settings import load_settings
from homing.server.shutdown import Shutdown
from homing.store.outbox import open_outbox
from homing.web.relay_metrics import relay_metrics
from homing_client import AsyncHoming, Event
from homing_client.errors import (
    Conflict,
    HomingClientError,
    Invalid,
    NotAuthorized,
    Refused,
    TooLarge,
)

RESPONSE_TIMEOUT_S = 10.0
FORBIDDEN = 403


def run_relay(
    *,
    database: str | None,
    config: str | None,
    server: str | None,
    key: str | None,
    metrics_port: int | None,
    until_empty: bool,
) -> None:
    """Relay until SIGTERM or SIGINT; a batch that is being published is finished in the grace."""
    settings = load_settings({}, config=config)
    address = outbox_address(database, config)
    target = find_server(server, key, settings)
    configure_logs(level=settings.telemetry.log_level, form=settings.telemetry.log_format)
    options = RelayOptions(poll_ms=settings.outbox.poll_ms)

    async def run() -> None:
        async with _relay(address, target, options) as (outbox, relay):
            with contextlib.suppress(*(() if until_empty else (StoreUnavailable,))):
                await outbox.stats()  # A missing outbox is an error now; an outage may pass.
            with _metrics_at(metrics_port, relay):
                if until_empty:
                    await _relay_all(relay)
                else:
                    await _relay_until_stopped(relay, target, settings.delivery.grace_ms)

    asyncio.run(run())


@contextlib.asynccontextmanager
async def _relay(
    address: str, target: Target, options: RelayOptions
) -> AsyncIterator[tuple[OutboxStore, Relay]]:
    outbox = open_outbox(address)
    try:
        client = AsyncHoming(
            target.url,
            target.key,
            timeout=RESPONSE_TIMEOUT_S,
            attempt_timeout=RESPONSE_TIMEOUT_S,
            retry=False,  # The relay repeats by itself, and holds no rows while it waits.
        )
    except ValueError as error:
        raise Usage(f"--server {target.url}: {error}.") from None
    publish = publish_through(client)
    try:
        yield (
            outbox,
            Relay(outbox, publish, clock=SystemClock(), random=random.random, options=options),
        )
    finally:
        await client.close()
        await outbox.close()


async def _relay_until_stopped(relay: Relay, target: Target, grace_ms: int) -> None:
    shutdown = Shutdown(grace_ms=grace_ms)
    shutdown.handle_signals()
    shutdown.on_request(relay.stop)
    print(f"Homing relays to {target.url}; Ctrl-C ends it.", flush=True)
    await relay.run()


async def _relay_all(relay: Relay) -> None:
    try:
        while await relay.step():
            pass
    except NotNow as error:
        raise NoServer(error.detail) from None
    pulse = relay.pulse()
    print(f"Published {counted(pulse.relayed, 'row')}; {pulse.refused:,} refused.")


def publish_through(client: AsyncHoming) -> PublishRows:
    """A function that publishes rows through the API in one request."""

    async def publish(rows: Sequence[OutboxRow]) -> None:
        events = [
            Event(
                type=row.type,
                data=msgspec.Raw(row.data),
                id=row.id,
                tenant=row.tenant,
                time=row.time,
                key=row.key,
            )
            for row in rows
        ]
        try:
            await client.publish_many(events)
        except (Invalid, Conflict, TooLarge) as error:
            problems = [FieldProblem(one.field, one.reason) for one in error.problems]
            raise RowsRefused(problems, str(error)) from error
        except NotAuthorized as error:
            raise (NotAllowed if error.status == FORBIDDEN else NotNow)(str(error)) from error
        except HomingClientError as error:
            retry_after_s = error.retry_after_s if isinstance(error, Refused) else None
            raise NotNow(str(error), retry_after_s=retry_after_s) from error

    return publish


class _Collector(Collector):
    def __init__(self, relay: Relay) -> None:
        self._relay, self._clock = relay, SystemClock()

    def collect(self) -> Iterator[Metric]:
        return relay_metrics(self._relay.pulse(), now=self._clock.now())


@contextlib.contextmanager
def _metrics_at(port: int | None, relay: Relay) -> Iterator[None]:
    if port is None:
        yield
        return
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(relay))
    try:
        server, thread = start_http_server(port, addr="127.0.0.1", registry=registry)
    except OSError as error:
        raise Usage(f"--metrics {port}: {error.strerror}.") from None
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
