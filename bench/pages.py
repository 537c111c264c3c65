"""Parts j, l and q: how long a page of a list or of the dashboard, and a search, take over HTTP."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable
from urllib.parse import quote, urlencode

from bench import letter
from bench.backlog import OTHERS
from bench.measure import percentile
from bench.processes import KEY, BenchFailed, Server
from homing.model import show_id

LIMIT = 100


def list_pages(server: Server, endpoints: list[int], *, pages: int) -> dict[str, dict[str, float]]:
    """For each list the milliseconds of its pages, from the newest on."""
    busy, quiet = show_id("ep", endpoints[0]), show_id("ep", endpoints[-1])
    lists = {
        "all": "",
        "of the busiest endpoint": f"&endpoint={busy}",
        "of a quiet endpoint": f"&endpoint={quiet}",
        "pending": "&status=pending",
        "delivered": "&status=delivered",
        "dropped": "&status=dropped",
        "of the tenant": f"&tenant={OTHERS}",
        "of the tenant, dropped": f"&tenant={OTHERS}&status=dropped",
    }
    found = {name: _walk(server.port, terms, pages) for name, terms in lists.items()}
    board = {
        "dashboard": "/",
        "dashboard, its chart": "/chart.json?span=30d",
        "dashboard, endpoints": "/endpoints?sort=failing",
        "dashboard, the busiest endpoint": f"/endpoints/{busy}",
        "dashboard, deliveries": "/deliveries",
        "dashboard, system": "/system",
    }
    cookie = _sign_in(server.port)
    found |= {name: _look(server.port, path, cookie, pages) for name, path in board.items()}
    (one,) = server.ask("GET", f"/v1/deliveries?limit=1&endpoint={busy}")["items"]
    texts = {
        "search, an event id": one["event"],
        "search, a URL": one["url"],
        "search, a part of a URL": one["url"].partition("://")[2],
        "search, a part of no URL": "no-url-has-this",
    }
    every = range(LIMIT)
    return found | {
        name: _search(server.port, [text] * pages, every) for name, text in texts.items()
    }


def incident_pages(
    server: Server, endpoints: list[int], *, times: int
) -> dict[str, dict[str, float]]:
    """The milliseconds of the pages that show failures; the first endpoint has most attempts."""
    busy = show_id("ep", endpoints[0])
    pages = {
        "incidents": "/incidents",
        "incidents of a tenant": f"/incidents?tenant={OTHERS}",
        "overview": "/",
        "endpoints": "/endpoints?sort=failing",
        "the busiest endpoint": f"/endpoints/{busy}",
        "deliveries": "/deliveries",
        "dropped deliveries": "/deliveries?q=status:dropped",
        "deliveries of the busiest endpoint": f"/deliveries?q=endpoint:{busy}",
    }
    cookie = _sign_in(server.port)
    return {name: _look(server.port, path, cookie, times) for name, path in pages.items()}


def searches(server: Server, *, events: int, times: int) -> dict[str, dict[str, float]]:
    """The milliseconds of searches by the payload fields of so many events, each for another one.

    Raises BenchFailed if a search does not find what was published.
    """
    invoices, customers = letter.FIELDS
    texts: dict[str, tuple[Callable[[int], str], range]] = {
        "of one event": (lambda number: f"{invoices}:{letter.invoice(number)}", range(1, 2)),
        "of one event in 1,000": (
            lambda number: f"{customers}:{letter.customer(number)}",
            range(1, events + 1),
        ),
        "of no event": (lambda number: f"{invoices}:{-letter.invoice(number)}", range(1)),
    }
    step = max(events // times, 1)
    return {
        name: _search(server.port, [text(it * step % events) for it in range(times)], hits)
        for name, (text, hits) in texts.items()
    }


def _search(port: int, texts: list[str], hits: range) -> dict[str, float]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    times: list[float] = []
    for text in texts:
        path = f"/v1/search?q={quote(text)}"
        began = time.perf_counter()
        connection.request("GET", path, headers={"authorization": f"Bearer {KEY}"})
        response = connection.getresponse()
        content = response.read()
        times.append((time.perf_counter() - began) * 1000)
        if response.status != 200 or len(json.loads(content)["items"]) not in hits:
            raise BenchFailed(f"{path}: {response.status} {content[:400]!r}")
    connection.close()
    return {"p50_ms": percentile(times, 0.5), "p99_ms": percentile(times, 0.99)}


def _sign_in(port: int) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    form = {"content-type": "application/x-www-form-urlencoded"}
    connection.request("POST", "/sign-in", body=urlencode({"key": KEY}), headers=form)
    response = connection.getresponse()
    response.read()
    connection.close()
    if response.status != 303:
        raise BenchFailed(f"/sign-in: {response.status}")
    return response.headers["set-cookie"].partition(";")[0]


def _look(port: int, path: str, cookie: str, times_most: int) -> dict[str, float]:
    """The same page of the dashboard again and again; the first look compiles its template."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    times: list[float] = []
    for _ in range(times_most + 1):
        began = time.perf_counter()
        connection.request("GET", path, headers={"cookie": cookie})
        response = connection.getresponse()
        content = response.read()
        times.append((time.perf_counter() - began) * 1000)
        if response.status != 200:
            raise BenchFailed(f"{path}: {response.status} {content[:400]!r}")
    connection.close()
    del times[0]
    return {
        "p50_ms": percentile(times, 0.5),
        "p99_ms": percentile(times, 0.99),
        "pages": len(times),
        "rows": 0,
    }


def _walk(port: int, terms: str, pages: int) -> dict[str, float]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    times: list[float] = []
    rows = 0
    cursor = ""
    for _ in range(pages):
        began = time.perf_counter()
        path = f"/v1/deliveries?limit={LIMIT}{terms}{cursor}"
        connection.request("GET", path, headers={"authorization": f"Bearer {KEY}"})
        response = connection.getresponse()
        content = response.read()
        times.append((time.perf_counter() - began) * 1000)
        if response.status != 200:
            raise BenchFailed(f"{path}: {content[:400]!r}")
        page = json.loads(content)
        rows += len(page["items"])
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    connection.close()
    return {
        "p50_ms": percentile(times, 0.5),
        "p99_ms": percentile(times, 0.99),
        "pages": len(times),
        "rows": rows,
    }
