"""The relay as a program of its own: an outbox on one side, a client of the API on the other."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Iterator, Sequence

import msgspec
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from homing.cli.trouble import NoServer, Usage
from homing.cli.where import Where
from homing.client import AsyncHoming, Event, Receipt, protocol
from homing.client.effort import Again
from homing.client.errors import (
    Conflict,
    HomingClientError,
    Invalid,
    NotAuthorized,
    Refused,
    TooLarge,
)
from homing.client.pace import new_id
from homing.client.protocol import Call
from homing.engine.relay import NotAllowed, NotNow, PublishRows, Relay, RelayOptions, RowsRefused
from homing.errors import FieldProblem, StoreUnavailable
from homing.net.clock import SystemClock
from homing.ports import OutboxRow
from homing.server.shutdown import Shutdown
from homing.store.outbox import open_outbox
from homing.web.relay_metrics import relay_metrics

ANSWER_WITHIN_S = 10.0
FORBIDDEN = 403


def run_relay(
    address: str,
    where: Where,
    *,
    poll_ms: int,
    metrics_port: int | None,
    until_empty: bool,
    grace_ms: int,
) -> None:
    """Until SIGTERM or SIGINT; what is being published then is finished, within the grace."""
    asyncio.run(
        _run(
            address,
            where,
            poll_ms=poll_ms,
            metrics_port=metrics_port,
            until_empty=until_empty,
            grace_ms=grace_ms,
        )
    )


async def _run(
    address: str,
    where: Where,
    *,
    poll_ms: int,
    metrics_port: int | None,
    until_empty: bool,
    grace_ms: int,
) -> None:
    outbox = open_outbox(address)
    try:
        client = AsyncHoming(
            where.url, where.key, timeout=ANSWER_WITHIN_S, attempt_timeout=ANSWER_WITHIN_S
        )
    except ValueError as error:
        raise Usage(f"--server {where.url}: {error}.") from None
    relay = Relay(
        outbox,
        publish_by(client),
        clock=SystemClock(),
        chance=random.random,
        options=RelayOptions(poll_ms=poll_ms),
    )
    try:
        with contextlib.suppress(*(() if until_empty else (StoreUnavailable,))):
            await outbox.look()  # That there is no outbox is told at once; trouble may pass.
        with _metrics_at(metrics_port, relay):
            if until_empty:
                await _drain(relay)
            else:
                await _stay(relay, where, grace_ms)
    finally:
        await client.close()
        await outbox.close()


async def _stay(relay: Relay, where: Where, grace_ms: int) -> None:
    shutdown = Shutdown(grace_ms=grace_ms)
    shutdown.handle_signals()
    shutdown.on_request(relay.stop)
    print(f"Homing relays to {where.url}; Ctrl-C ends it.", flush=True)
    await relay.run()


async def _drain(relay: Relay) -> None:
    try:
        while await relay.step():
            pass
    except NotNow as error:
        raise NoServer(error.detail) from None
    pulse = relay.pulse()
    print(f"Published {pulse.relayed:,} rows; {pulse.refused:,} were refused.")


def publish_by(client: AsyncHoming) -> PublishRows:
    """Publish rows through the API."""

    async def publish(rows: Sequence[OutboxRow]) -> None:
        events = [
            Event(
                type=row.type,
                data=msgspec.Raw(row.data),
                id=row.id,
                tenant=row.tenant,
                time=row.time,
            )
            for row in rows
        ]
        try:
            await client._do(_once(events))
        except (Invalid, Conflict, TooLarge) as error:
            problems = [FieldProblem(one.field, one.reason) for one in error.problems]
            raise RowsRefused(problems, str(error)) from error
        except NotAuthorized as error:
            raise (NotAllowed if error.status == FORBIDDEN else NotNow)(str(error)) from error
        except HomingClientError as error:
            after_s = error.retry_after_s if isinstance(error, Refused) else None
            raise NotNow(str(error), retry_after_s=after_s) from error

    return publish


def _once(events: Sequence[Event]) -> Call[list[Receipt]]:
    """A single attempt: the relay itself repeats, and holds no rows while it waits."""
    call = protocol.publish_many(events, new_id)
    return msgspec.structs.replace(call, again=Again.NEVER)


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
