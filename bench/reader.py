"""Reads a subscription without a URL to its end: ``python -m bench.reader PORT KEY SUBSCRIPTION``.

One reader with Homing's own client, page by page; each page is acknowledged before the next.
"""

from __future__ import annotations

import json
import sys
import time

from homing_client import Homing

PAGE = 1_000


def read(port: int, key: str, subscription: str) -> dict[str, float]:
    """Read and acknowledge all events; return how many there were and how long it took."""
    events, ids = 0, set[str]()
    with Homing(f"http://127.0.0.1:{port}", key) as client:
        client.readers(subscription)  # The connection is open.
        began, cpu_s, after = time.monotonic(), time.process_time(), None
        while True:
            page = client.read_events(subscription, after=after, limit=PAGE)
            if not page.events:
                break
            client.acknowledge(subscription, page.cursor)
            after = page.cursor
            events += len(page.events)
            ids.update([it.id for it in page.events])
        return {
            "seconds": time.monotonic() - began,
            "reader_cpu_s": time.process_time() - cpu_s,
            "events": events,
            "distinct": len(ids),
        }


if __name__ == "__main__":
    print(json.dumps(read(int(sys.argv[1]), sys.argv[2], sys.argv[3])))
