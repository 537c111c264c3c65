"""The parts: each sets its scene, measures once, and leaves nothing behind.

A part with a server ends when the receiver has seen every id and the ledger says that nothing is
pending; its clock starts with the publisher's first byte. A twentieth of the events goes ahead
unmeasured, so that connections stand and slow start is over.
"""

from __future__ import annotations

import asyncio
import itertools
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import backlog, filter_cost, letter, match_cost, signature_cost
from bench.changes import Changes
from bench.measure import Measured, Sizes, percentile
from bench.pages import incident_pages, list_pages, searches
from bench.postgres import Postgres
from bench.processes import (
    BenchFailed,
    Publisher,
    Receiver,
    Server,
    read_events,
    send_without_server,
)

BATCH = 100
BATCH_CONNECTIONS = 16
SINGLE_CONNECTIONS = 64
RATE = 500
LOW_RATE = 100  # o
PROCESSES = (1, 2, 4)  # p
WARM_SHARE = 20
RATE_UNIT = "/s"
PRESSED = 2  # s: so many times what the server can take
PRESS_CONNECTIONS = 2_000
OTHER_TENANT, OTHER_RATE, OTHER_CONNECTIONS = "other", 20, 200
CHANGES = (0, 100, 300)  # A: per second
IDLE_AFTER_S = 3.0  # t: the work of the start is done


class Hall:
    """What all parts share: the receiver, a folder on disk, a PostgreSQL, the sizes."""

    def __init__(self, receiver: Receiver, folder: Path, postgres: Postgres, sizes: Sizes) -> None:
        self.receiver, self.folder, self.postgres, self.sizes = receiver, folder, postgres, sizes
        self._numbers = itertools.count(1)

    def name(self) -> str:
        """A new one, for a run's event ids and its data."""
        return f"run{next(self._numbers):04d}"


def flood(
    hall: Hall,
    server: Server,
    *,
    count: int,
    batch: int,
    connections: int,
    fan_out: int = 1,
    body_bytes: int = letter.BODY_BYTES,
    objects: int = 0,
    counters: Callable[[], dict[str, float]] = dict,
) -> dict[str, Any]:
    """Publish as fast as it goes, until all has arrived and is settled.

    Each event makes ``fan_out`` deliveries, which are what is counted. Of ``counters`` it says how
    much was added per delivery.
    """
    warm = max(count // WARM_SHARE, letter.URLS)
    with Publisher(server, hall.name(), body_bytes=body_bytes, objects=objects) as publisher:
        told = f"flood 0 {warm} {batch} {connections}"
        _flood(hall, server, publisher, told, warm * fan_out)
        cpu_s, commits, counted = server.cpu_s(), server.commits(), counters()
        told, deliveries = f"flood {warm} {count} {batch} {connections}", count * fan_out
        response, arrived, settled_at = _flood(hall, server, publisher, told, deliveries)
    seconds = settled_at - response["started"]
    return {
        "rate": deliveries / seconds,
        "warm": warm * fan_out,  # deliveries before the measurement
        "seconds": seconds,
        "published_s": response["seconds"],
        "requests": arrived["requests"],
        "server_cpu_us_each": (server.cpu_s() - cpu_s) / deliveries * 1e6,
        "publisher_cpu_us_each": response["cpu_s"] / deliveries * 1e6,
        "receiver_cpu_us_each": arrived["cpu_s"] / deliveries * 1e6,
        "commits": {kind: many - commits[kind] for kind, many in server.commits().items()},
        **{f"{name}_each": (now - counted[name]) / deliveries for name, now in counters().items()},
    }


def _flood(
    hall: Hall, server: Server, publisher: Publisher, told: str, count: int
) -> tuple[dict[str, Any], dict[str, Any], float]:
    publisher.tell(told)
    publisher.response()
    hall.receiver.reset()
    publisher.tell("go")
    response = publisher.response()
    arrived = hall.receiver.wait_for(count)
    return response, arrived, server.wait_until_settled()


def _measured(part: str, found: dict[str, Any]) -> Measured:
    return Measured(part, found.pop("rate"), RATE_UNIT, found)


def _without_server(hall: Hall, part: str, sender: str, count: int) -> Measured:
    hall.receiver.reset()
    response = send_without_server(sender, hall.receiver, count)
    arrived = hall.receiver.count()
    if arrived["requests"] != count:
        raise BenchFailed(f"{part}: {arrived['requests']:,} of {count:,} arrived")
    if part != "ceiling" and arrived["distinct"] != count:
        raise BenchFailed(f"{part}: {arrived['distinct']:,} distinct ids of {count:,}")
    details = {
        "seconds": response["seconds"],
        "sender_cpu_us_each": response["cpu_s"] / count * 1e6,
        "receiver_cpu_us_each": arrived["cpu_s"] / count * 1e6,
    }
    return Measured(part, count / response["seconds"], RATE_UNIT, details)


def part_ceiling(hall: Hall) -> Measured:
    return _without_server(hall, "ceiling", "ceiling", hall.sizes.ceiling)


def part_a(hall: Hall) -> Measured:
    return _without_server(hall, "a", "bare", hall.sizes.a)


def part_b(hall: Hall) -> Measured:
    return _without_server(hall, "b", "homing", hall.sizes.b)


def _on_new_data(
    hall: Hall,
    part: str,
    *,
    count: int,
    batch: int,
    connections: int,
    database_url: str = "",
    writer: str = "process",
    collector: str = "",
    order: str = "none",
    objects: int = 0,
    checked: bool = False,
) -> Measured:
    data = hall.folder / hall.name()
    try:
        with Server(data, database_url=database_url, writer=writer, collector=collector) as server:
            server.subscribe(hall.receiver, order=order)
            if checked:
                server.describe_types()
            found = flood(
                hall, server, count=count, batch=batch, connections=connections, objects=objects
            )
            found["rss_mb"] = server.rss_mb()
    finally:
        shutil.rmtree(data, ignore_errors=True)
    return _measured(part, found)


def part_c(hall: Hall) -> Measured:
    return _on_new_data(hall, "c", count=hall.sizes.c, batch=BATCH, connections=BATCH_CONNECTIONS)


def part_u(hall: Hall) -> Measured:
    """What OpenTelemetry costs: its spans, metrics and log lines go to a collector."""
    return _on_new_data(
        hall,
        "u",
        count=hall.sizes.c,
        batch=BATCH,
        connections=BATCH_CONNECTIONS,
        collector=f"http://127.0.0.1:{hall.receiver.port}",
    )


def part_x(hall: Hall) -> Measured:
    """Order by key: deliveries of one object one after the other."""
    return _on_new_data(
        hall,
        "x",
        count=hall.sizes.c,
        batch=BATCH,
        connections=BATCH_CONNECTIONS,
        order="key",
        objects=letter.OBJECTS,
    )


def part_y(hall: Hall) -> Measured:
    """Only the newest event of a key: every event has a key of its own, so that all are sent."""
    return _on_new_data(
        hall,
        "y",
        count=hall.sizes.c,
        batch=BATCH,
        connections=BATCH_CONNECTIONS,
        order="latest",
        objects=1 << 40,
    )


def part_d(hall: Hall) -> Measured:
    return _on_new_data(hall, "d", count=hall.sizes.d, batch=1, connections=SINGLE_CONNECTIONS)


def part_z(hall: Hall) -> Measured:
    """What the check of events against the schemas of their types costs."""
    return _on_new_data(
        hall, "z", count=hall.sizes.d, batch=1, connections=SINGLE_CONNECTIONS, checked=True
    )


def _on_postgres(hall: Hall, part: str, *, writer: str) -> Measured:
    return _on_new_data(
        hall,
        part,
        count=hall.sizes.e,
        batch=BATCH,
        connections=BATCH_CONNECTIONS,
        database_url=hall.postgres.database(),
        writer=writer,
    )


def part_e(hall: Hall) -> Measured:
    return _on_postgres(hall, "e", writer="process")


def part_k(hall: Hall) -> Measured:
    """Publish and settle run on the event loop's own connections."""
    return _on_postgres(hall, "k", writer="inline")


def part_m(hall: Hall) -> Measured:
    return _on_new_data(
        hall,
        "m",
        count=hall.sizes.m,
        batch=1,
        connections=SINGLE_CONNECTIONS,
        database_url=hall.postgres.database(),
    )


def _pulled(hall: Hall, part: str, *, database_url: str = "") -> Measured:
    """Publish to a subscription without a URL, and then read it from its oldest to its newest."""
    data, count = hall.folder / hall.name(), hall.sizes.c
    try:
        with Server(data, database_url=database_url) as server:
            subscription = server.subscribe_without_url()
            with Publisher(server, hall.name()) as publisher:
                publisher.tell(f"flood 0 {count} {BATCH} {BATCH_CONNECTIONS}")
                publisher.response()
                publisher.tell("go")
                publisher.response()
            cpu_s = server.cpu_s()
            found = read_events(server, subscription)
            found["server_cpu_us_each"] = (server.cpu_s() - cpu_s) / count * 1e6
    finally:
        shutil.rmtree(data, ignore_errors=True)
    if found["distinct"] != count or found["events"] != count:
        raise BenchFailed(f"{part}: {found['distinct']:,} of {count:,} events were read")
    return Measured(part, count / found["seconds"], RATE_UNIT, found)


def part_v(hall: Hall) -> Measured:
    return _pulled(hall, "v")


def part_w(hall: Hall) -> Measured:
    return _pulled(hall, "w", database_url=hall.postgres.database())


def part_n(hall: Hall) -> Measured:
    """One event, many deliveries; with the memory that the server needs for them."""
    data = hall.folder / hall.name()
    try:
        with Server(data) as server:
            server.subscribe_to_all(hall.receiver)
            idle_mb = server.rss_mb()
            server.forget_peak()
            found = flood(
                hall,
                server,
                count=hall.sizes.n,
                batch=1,
                connections=SINGLE_CONNECTIONS,
                fan_out=letter.FAN_OUT,
            )
            peak_mb = server.peak_mb()
    finally:
        shutil.rmtree(data, ignore_errors=True)
    return _measured("n", {**found, "rss_idle_mb": idle_mb, "rss_above_mb": peak_mb - idle_mb})


def part_q(hall: Hall) -> Measured:
    """What it costs to index two payload fields, and how long a search by them takes."""
    data, count = hall.folder / hall.name(), hall.sizes.c
    try:
        with Server(data, search_fields=letter.FIELDS) as server:
            server.subscribe(hall.receiver)
            found = flood(hall, server, count=count, batch=BATCH, connections=BATCH_CONNECTIONS)
            found["rss_mb"] = server.rss_mb()
            found["searches"] = searches(server, events=count, times=hall.sizes.searches)
    finally:
        shutil.rmtree(data, ignore_errors=True)
    found["search_p99_ms"] = max(times["p99_ms"] for times in found["searches"].values())
    return _measured("q", found)


def part_r(hall: Hall) -> Measured:
    """What PostgreSQL writes ahead for a delivery, with events so small that they hardly count.

    A page that is changed for the first time after a checkpoint is logged as a whole. There is a
    checkpoint when the database is made, so the pages that the tables have then are logged during
    the part of the flood that is not measured; ``wal_images_each`` says what was left of it.
    """
    data = hall.folder / hall.name()
    try:
        with Server(data, database_url=hall.postgres.database()) as server:
            server.subscribe(hall.receiver)
            found = flood(
                hall,
                server,
                count=hall.sizes.r,
                batch=BATCH,
                connections=BATCH_CONNECTIONS,
                body_bytes=letter.SMALL_BODY_BYTES,
                counters=hall.postgres.wal,
            )
    finally:
        shutil.rmtree(data, ignore_errors=True)
    return Measured("r", found["wal_bytes_each"] / 1000, "kB", found)


def part_f(hall: Hall) -> Measured:
    """How long from the publisher's write to the receiver's read, at a steady rate."""
    data = hall.folder / hall.name()
    count = RATE * hall.sizes.f_seconds
    try:
        with Server(data) as server, Publisher(server, hall.name()) as publisher:
            server.subscribe(hall.receiver)
            for first, number in ((0, RATE), (RATE, count)):  # the first second is not looked at
                hall.receiver.reset()
                publisher.tell(f"pace {first} {number} {RATE} {SINGLE_CONNECTIONS}")
                publisher.response()
                hall.receiver.wait_for(number)
                server.wait_until_settled()
            lags = hall.receiver.lags_ms()
    finally:
        shutil.rmtree(data, ignore_errors=True)
    p50, p99 = percentile(lags, 0.5), percentile(lags, 0.99)
    return Measured("f", p50, "ms", {"p50_ms": p50, "p99_ms": p99, "worst_ms": max(lags)})


def part_o(hall: Hall) -> Measured:
    """The processor time of a delivery where nothing can be done for many at once."""
    data = hall.folder / hall.name()
    count = LOW_RATE * hall.sizes.o_seconds
    try:
        with Server(data) as server, Publisher(server, hall.name()) as publisher:
            server.subscribe(hall.receiver)
            for first, number in ((0, LOW_RATE), (LOW_RATE, count)):  # the first second is for free
                before = server.cpu_s_each()
                hall.receiver.reset()
                publisher.tell(f"pace {first} {number} {LOW_RATE} {SINGLE_CONNECTIONS}")
                publisher.response()
                after = server.cpu_s_each()
                hall.receiver.wait_for(number)
                server.wait_until_settled()
    finally:
        shutil.rmtree(data, ignore_errors=True)
    ms = {pid: (cpu_s - before.get(pid, 0.0)) / count * 1000 for pid, cpu_s in after.items()}
    server_ms = ms.pop(server.process.pid)
    writer_ms = sum(ms.values())
    details = {"server_ms": server_ms, "writer_ms": writer_ms}
    return Measured("o", server_ms + writer_ms, "ms", details)


def part_s(hall: Hall) -> Measured:
    """Publishers that send more than the server can take, whatever it tells them.

    What it can take is measured first, as in c. Another tenant publishes a little all the while.
    """
    data, seconds = hall.folder / hall.name(), hall.sizes.s_seconds
    try:
        with Server(data) as server:
            server.subscribe(hall.receiver)
            server.subscribe(hall.receiver, tenant=OTHER_TENANT)
            can_take = flood(
                hall, server, count=hall.sizes.c, batch=BATCH, connections=BATCH_CONNECTIONS
            )["rate"]
            idle_mb = server.rss_mb()
            server.forget_peak()
            hall.receiver.reset()
            with (
                Publisher(server, hall.name()) as publisher,
                Publisher(server, hall.name(), tenant=OTHER_TENANT) as other,
            ):
                rate = int(can_take * PRESSED)
                other.tell(f"press {OTHER_RATE} {seconds} 1 {OTHER_CONNECTIONS}")
                publisher.tell(f"press {rate} {seconds} {BATCH} {PRESS_CONNECTIONS}")
                pressed, others = publisher.response(), other.response()
            waiting, since = server.pending(), time.monotonic()
            hall.receiver.wait_for(pressed["accepted"] * BATCH + others["accepted"])
            drained_s = server.wait_until_settled() - since
            peak_mb = server.peak_mb()
            lags = hall.receiver.lags_ms()
    finally:
        shutil.rmtree(data, ignore_errors=True)
    refused = pressed["refused"] + others["refused"]
    promised = pressed["with_retry_after"] + others["with_retry_after"]
    details = {
        "pressed": pressed,
        "other": others,
        "p99_ms": pressed["p99_ms"],
        "other_p99_ms": others["p99_ms"],
        "other_arrived_p99_ms": percentile(lags, 0.99) if lags else 0.0,
        "can_take": can_take,
        "accepted": pressed["accepted"] * BATCH / pressed["seconds"],
        "waiting": waiting,
        "drained": waiting / drained_s,
        "drained_of_c": waiting / drained_s / can_take,
        "rss_idle_mb": idle_mb,
        "rss_above_mb": peak_mb - idle_mb,
        "retry_after_percent": 100.0 * promised / refused if refused else 100.0,
    }
    return Measured("s", pressed["p99_ms"], "ms", details)


def part_t(hall: Hall) -> Measured:
    """A server with subscriptions to which nobody publishes."""
    data, seconds = hall.folder / hall.name(), hall.sizes.t_seconds
    try:
        with Server(data) as server:
            server.subscribe(hall.receiver)
            time.sleep(IDLE_AFTER_S)
            cpu_s = server.cpu_s()
            time.sleep(seconds)
            used = (server.cpu_s() - cpu_s) / seconds * 100
            rss_mb = server.rss_mb()
    finally:
        shutil.rmtree(data, ignore_errors=True)
    return Measured("t", used, "%", {"rss_mb": rss_mb})


def _with_backlog(hall: Hall, count: int) -> dict[str, Any]:
    """c with so many others waiting; the same file again in every round."""
    data = hall.folder / f"backlog-{count}"
    if not data.exists():
        urls = hall.sizes.backlog_urls
        asyncio.run(backlog.write_waiting(data, count=count, urls=urls))
    with Server(data) as server:
        if not server.ask("GET", "/v1/subscriptions?tenant=default")["items"]:
            server.subscribe(hall.receiver)
        started_mb = server.rss_mb()
        found = flood(hall, server, count=hall.sizes.c, batch=BATCH, connections=BATCH_CONNECTIONS)
        waiting = server.pending(backlog.OTHERS)
        if waiting != count:
            raise BenchFailed(f"{waiting:,} of {count:,} others are pending")
        return {**found, "rss_started_mb": started_mb, "rss_mb": server.rss_mb()}


def part_g(hall: Hall) -> Measured:
    return _measured("g", _with_backlog(hall, hall.sizes.backlog))


def rss_small_mb(hall: Hall) -> float:
    """The memory of a server after the same work with few others waiting."""
    size: float = _with_backlog(hall, hall.sizes.backlog_small)["rss_mb"]
    return size


def part_h(hall: Hall) -> Measured:
    """From the first to the last arrival of what was due when the server started."""
    ready, data = hall.folder / "due", hall.folder / hall.name()
    urls = hall.sizes.due_urls
    if not ready.exists():
        asyncio.run(backlog.write_due(ready, urls=urls, port=hall.receiver.port))
    shutil.copytree(ready, data)
    hall.receiver.reset()
    try:
        with Server(data) as server:
            arrived = hall.receiver.wait_for(urls)
            server.wait_until_settled(backlog.OTHERS)
            rss_mb = server.rss_mb()
    finally:
        shutil.rmtree(data, ignore_errors=True)
    seconds = arrived["last_at"] - arrived["first_at"]
    details = {"seconds": seconds, "requests": arrived["requests"], "rss_mb": rss_mb}
    return Measured("h", (urls - 1) / seconds, RATE_UNIT, details)


def part_i(_hall: Hall) -> Measured:
    found = {**match_cost.measure(), **filter_cost.measure(), **signature_cost.measure()}
    return Measured("i", found["10000 subscriptions, 1 matches"], "µs", found)


def part_j(hall: Hall) -> Measured:
    data = hall.folder / hall.name()
    sizes = hall.sizes
    try:
        endpoints = asyncio.run(backlog.write_history(data, count=sizes.rows, urls=sizes.rows_urls))
        with Server(data) as server:
            found = list_pages(server, endpoints, pages=sizes.pages)
    finally:
        shutil.rmtree(data, ignore_errors=True)
    slowest = max(times["p50_ms"] for times in found.values())
    return Measured("j", slowest, "ms", dict(found))


def part_l(hall: Hall) -> Measured:
    """The pages of the dashboard that show failures, with very many attempts in the store."""
    data = hall.folder / hall.name()
    sizes = hall.sizes
    try:
        endpoints = asyncio.run(
            backlog.write_attempts(data, count=sizes.attempts, urls=sizes.attempts_urls)
        )
        with Server(data) as server:
            found = incident_pages(server, endpoints, times=sizes.pages)
    finally:
        shutil.rmtree(data, ignore_errors=True)
    slowest = max(times["p99_ms"] for times in found.values())
    return Measured("l", slowest, "ms", dict(found))


def part_p(hall: Hall) -> Measured:
    """e with more and more processes: what a delivery costs, and how many there are in a second."""
    costs: dict[int, float] = {}
    details: dict[str, Any] = {}
    for processes in PROCESSES:
        data = hall.folder / hall.name()
        url = hall.postgres.database()
        with Server(data, database_url=url, processes=processes) as server:
            server.wait_for_processes(processes)
            server.subscribe(hall.receiver)
            count = hall.sizes.e
            found = flood(hall, server, count=count, batch=BATCH, connections=BATCH_CONNECTIONS)
        shutil.rmtree(data, ignore_errors=True)
        costs[processes] = found["server_cpu_us_each"]
        details[str(processes)] = {
            "cpu_us_each": costs[processes],
            "rate": found["rate"],
            "commits": found["commits"],
        }
    return Measured("p", costs[PROCESSES[-1]] / costs[PROCESSES[0]], "×", details)


def part_changes(hall: Hall) -> Measured:
    """What one tenant's publishes are beside changes of 20 others: rate, and p50 at 500/s.

    The value is the smaller share of the rate that is left beside 300 changes/s, on PostgreSQL with
    one process.
    """
    details: dict[str, Any] = {}
    for name, processes in (("1", 1), ("2", 2), ("sqlite", 1)):
        url = "" if name == "sqlite" else hall.postgres.database()
        details[name] = _beside_changes(hall, url, processes)
    rates = details["1"]
    return Measured("A", rates[str(CHANGES[-1])]["rate"] / rates["0"]["rate"], "×", details)


def _beside_changes(hall: Hall, database_url: str, processes: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    data, quota = hall.folder / hall.name(), {"HOMING_CHANGES_PER_MINUTE": "0"}
    try:
        with Server(data, database_url=database_url, processes=processes, environ=quota) as server:
            if processes > 1:
                server.wait_for_processes(processes)
            server.subscribe(hall.receiver)
            ids = Changes.subscribe(server, hall.receiver)
            for per_second in CHANGES:
                found[str(per_second)] = _publishes_beside(hall, server, ids, per_second)
    finally:
        shutil.rmtree(data, ignore_errors=True)
    return found


def _publishes_beside(
    hall: Hall, server: Server, ids: list[str], per_second: int
) -> dict[str, Any]:
    count = hall.sizes.changes
    with (
        Changes(server, ids, per_second=per_second) as changes,
        Publisher(server, hall.name()) as publisher,
    ):
        publisher.tell(f"flood 0 {count} 1 {SINGLE_CONNECTIONS}")
        publisher.response()
        cpu_s = server.cpu_s()
        publisher.tell("go")
        flooded = publisher.response()
        cpu_s = server.cpu_s() - cpu_s
        server.wait_until_settled()
        with Publisher(server, hall.name()) as paced:
            paced.tell(f"press {RATE} {hall.sizes.changes_seconds} 1 {OTHER_CONNECTIONS}")
            pressed = paced.response()
        server.wait_until_settled()
    return {
        "rate": count / flooded["seconds"],
        "server_cpu_s": cpu_s,
        "p50_ms": pressed["p50_ms"],
        "p99_ms": pressed["p99_ms"],
        "changes_per_second": changes.made / changes.seconds,
        "changes_refused": changes.refused,
        "change_p50_ms": percentile(changes.waits_ms, 0.5) if changes.waits_ms else 0.0,
    }


MEASURE: dict[str, Callable[[Hall], Measured]] = {
    "ceiling": part_ceiling,
    "a": part_a,
    "b": part_b,
    "c": part_c,
    "d": part_d,
    "e": part_e,
    "f": part_f,
    "g": part_g,
    "h": part_h,
    "i": part_i,
    "j": part_j,
    "k": part_k,
    "l": part_l,
    "m": part_m,
    "n": part_n,
    "o": part_o,
    "p": part_p,
    "q": part_q,
    "r": part_r,
    "s": part_s,
    "t": part_t,
    "u": part_u,
    "v": part_v,
    "w": part_w,
    "x": part_x,
    "y": part_y,
    "z": part_z,
    "A": part_changes,
}
