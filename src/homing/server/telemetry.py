"""Sends spans, metrics and log lines to a collector by OTLP over HTTP, from a thread of its own.

Nothing waits for the collector: what it does not take is kept up to a bound, then dropped and
counted (``homing_telemetry_dropped_total``).
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import logging
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

import structlog
from msgspec import Struct
from prometheus_client.core import CounterMetricFamily, Metric

from homing import __version__
from homing.engine.fleet.membership import FleetParts
from homing.errors import BadSetting
from homing.ports.tracing import Span
from homing.server.settings import Settings

log = structlog.get_logger("homing.telemetry")

SPANS_MAX = 20_000  # that wait to be sent
LOG_LINES_MAX = 5_000
BATCH_MAX = 512
EVERY_S = 1.0
METRICS_EVERY_S = 60.0
AGAIN_S = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
TIMEOUT_S = 10.0
CLOSE_S = 3.0  # to send what is left when the server stops
_KEPT = frozenset((429, 502, 503, 504))  # the collector wants it again later
MISSING = "otel_endpoint is set, but OpenTelemetry is not installed: pip install 'homing[otel]'"


class TelemetryOptions(Struct, frozen=True, kw_only=True):
    """Where to send what."""

    endpoint: str
    headers: tuple[tuple[str, str], ...] = ()
    signals: frozenset[str] = frozenset(("traces", "metrics", "logs"))
    instance: str = ""  # of this process


def read_headers(text: str) -> tuple[tuple[str, str], ...]:
    """Headers in the form of OTEL_EXPORTER_OTLP_HEADERS."""
    pairs = [part.partition("=") for part in text.split(",") if part.strip()]
    return tuple((name.strip(), unquote(value.strip())) for name, _, value in pairs)


class Telemetry:
    """The queues to the collector, and the thread that empties them."""

    def __init__(self, options: TelemetryOptions) -> None:
        try:
            from homing.server.otlp import Encoder
        except ImportError:
            raise BadSetting(MISSING) from None
        self._encoder = Encoder(instance=options.instance)
        self._options = options
        self.signals = options.signals
        self._spans: deque[Span] = deque()
        self._lines: deque[logging.LogRecord] = deque()
        self._metrics: list[Metric] = []
        self._wake, self._closing = threading.Event(), False
        self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)
        self.dropped = 0

    # --- what the server gives ---------------------------------------------------------------

    def add(self, spans: Sequence[Span]) -> None:
        """Take spans; those beyond the bound are dropped."""
        if "traces" in self.signals:
            self._append(self._spans, spans, SPANS_MAX)

    def add_line(self, record: logging.LogRecord) -> None:
        self._append(self._lines, (record,), LOG_LINES_MAX)

    def _append(self, queue: deque[Any], items: Sequence[Any], count_max: int) -> None:
        room = max(count_max - len(queue), 0)
        queue.extend(items[:room])
        self.dropped += max(len(items) - room, 0)
        if len(queue) >= BATCH_MAX:
            self._wake.set()

    def set_metrics(self, metrics: list[Metric]) -> None:
        """The values of now; they replace those that were not sent."""
        self._metrics = metrics
        self._wake.set()

    # --- the thread --------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Send what is left, for a few seconds at most."""
        self._closing = True
        self._wake.set()
        self._thread.join(CLOSE_S)

    def _run(self) -> None:
        failures = 0
        while True:
            self._wake.wait(EVERY_S if not failures else AGAIN_S[min(failures, len(AGAIN_S)) - 1])
            self._wake.clear()
            closing = self._closing
            try:
                while self._send_some():
                    failures = 0
            except (OSError, http.client.HTTPException, _Refused) as error:
                failures += 1
                if failures == 1:
                    log.warning("telemetry cannot be sent", error=str(error) or repr(error))
            except Exception:
                log.exception("telemetry failed")
            if closing:
                return

    def _send_some(self) -> bool:
        """Send one batch of each signal; False when nothing was left. Raises if it failed."""
        sent = False
        if self._spans:
            spans = _first(self._spans)
            self._post("/v1/traces", self._encoder.traces(spans))
            _remove(self._spans, len(spans))
            sent = True
        if self._lines:
            lines = _first(self._lines)
            self._post("/v1/logs", self._encoder.logs(lines))
            _remove(self._lines, len(lines))
            sent = True
        metrics, self._metrics = self._metrics, []
        if metrics:
            self._post("/v1/metrics", self._encoder.metrics(metrics))
            sent = True
        return sent

    def _post(self, path: str, body: bytes) -> None:
        """Raises OSError or _Refused if it must be sent again; what is refused for good is lost."""
        parts = urlsplit(self._options.endpoint)
        kind = (
            http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        )
        connection = kind(parts.hostname or "", parts.port, timeout=TIMEOUT_S)
        headers = {"content-type": "application/x-protobuf", **dict(self._options.headers)}
        headers["user-agent"] = f"homing/{__version__}"
        try:
            connection.request("POST", parts.path.rstrip("/") + path, body, headers)
            response = connection.getresponse()
            said = response.read(300)
        finally:
            connection.close()
        if response.status in _KEPT:
            raise _Refused(f"the collector responded with {response.status}")
        if response.status >= 300:
            text = said.decode(errors="replace")
            log.warning("telemetry was refused", path=path, code=response.status, response=text)


def dropped_metric(count: int) -> Metric:
    """The metric of what was dropped."""
    return CounterMetricFamily(
        "homing_telemetry_dropped",
        "Spans and log lines that the OpenTelemetry collector did not take in time.",
        value=count,
    )


class _Refused(Exception):
    """The collector wants it again later."""


def _first(queue: deque[Any]) -> list[Any]:
    return [queue[index] for index in range(min(len(queue), BATCH_MAX))]


def _remove(queue: deque[Any], count: int) -> None:
    for _ in range(count):
        queue.popleft()


class _Lines(logging.Handler):
    """Gives every log line to the exporter, except its own."""

    def __init__(self, telemetry: Telemetry) -> None:
        super().__init__()
        self._telemetry = telemetry

    def emit(self, record: logging.LogRecord) -> None:
        if record.name != "homing.telemetry":
            self._telemetry.add_line(record)


def make_telemetry(settings: Settings, fleet: FleetParts | None) -> Telemetry | None:
    """The exporter of the settings; None if there is no collector. Raises BadSetting."""
    it = settings.telemetry
    if not it.otel_endpoint:
        return None
    return Telemetry(
        TelemetryOptions(
            endpoint=it.otel_endpoint,
            headers=read_headers(it.otel_headers),
            signals=frozenset(it.otel_signals),
            instance=fleet.me.name if fleet is not None else "",
        )
    )


@contextlib.asynccontextmanager
async def exporting(
    telemetry: Telemetry | None, metrics: Callable[[], list[Metric]]
) -> AsyncIterator[None]:
    """Run the exporter; at the end, what is left is sent."""
    if telemetry is None:
        yield
        return
    handler, signals = _Lines(telemetry), telemetry.signals
    tasks: list[asyncio.Task[None]] = []
    if "logs" in signals:
        logging.getLogger().addHandler(handler)
    if "metrics" in signals:
        tasks.append(asyncio.create_task(_give_metrics(telemetry, metrics)))
    telemetry.start()
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
            telemetry.set_metrics(metrics())
        logging.getLogger().removeHandler(handler)
        await asyncio.to_thread(telemetry.close)


async def _give_metrics(telemetry: Telemetry, metrics: Callable[[], list[Metric]]) -> None:
    while True:
        telemetry.set_metrics(metrics())
        await asyncio.sleep(METRICS_EVERY_S)
