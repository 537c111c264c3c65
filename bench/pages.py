"""Part j: how long a page of a list takes, over HTTP, page after page."""

from __future__ import annotations

import http.client
import json
import time

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
    return {name: _walk(server.port, terms, pages) for name, terms in lists.items()}


def _walk(port: int, terms: str, pages: int) -> dict[str, float]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    times: list[float] = []
    rows = 0
    cursor = ""
    for _ in range(pages):
        began = time.perf_counter()
        path = f"/v1/deliveries?limit={LIMIT}{terms}{cursor}"
        connection.request("GET", path, headers={"authorization": f"Bearer {KEY}"})
        answer = connection.getresponse()
        content = answer.read()
        times.append((time.perf_counter() - began) * 1000)
        if answer.status != 200:
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
