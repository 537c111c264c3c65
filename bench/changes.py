"""Changes of many tenants beside the publishes of another: at a steady rate, from threads."""

from __future__ import annotations

import http.client
import json
import threading
import time
from contextlib import suppress
from typing import Self

from bench import letter
from bench.processes import KEY, Receiver, Server

TENANTS = 20
THREADS = 20  # a change waits for its answer, and does not keep the others waiting


class Changes:
    """Changes the descriptions of subscriptions of 20 tenants while it is entered."""

    def __init__(self, server: Server, subscriptions: list[str], *, per_second: int) -> None:
        self._port, self._ids, self._per_second = server.port, subscriptions, per_second
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._next = 0
        self.made = self.refused = 0
        self.waits_ms: list[float] = []
        self.seconds = 0.0

    @staticmethod
    def subscribe(server: Server, receiver: Receiver) -> list[str]:
        """A subscription of each tenant."""
        made = []
        for number in range(TENANTS):
            document = letter.subscription(receiver.port, number, tenant=f"tenant{number}")
            made.append(str(server.ask("POST", "/v1/subscriptions", document)["id"]))
        return made

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        if self._per_second:
            self._threads = [threading.Thread(target=self._work) for _ in range(THREADS)]
            for it in self._threads:
                it.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for it in self._threads:
            it.join()
        self.seconds = time.monotonic() - self._began

    def _work(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        while not self._over.is_set():
            with self._lock:
                number, self._next = self._next, self._next + 1
            wait_s = self._began + number / self._per_second - time.monotonic()
            if wait_s > 0 and self._over.wait(wait_s):
                break
            began = time.monotonic()
            with suppress(OSError, http.client.HTTPException):
                self._change(connection, number)
                self.waits_ms.append((time.monotonic() - began) * 1000)
        connection.close()

    def _change(self, connection: http.client.HTTPConnection, number: int) -> None:
        path = f"/v1/subscriptions/{self._ids[number % TENANTS]}"
        body = json.dumps({"description": f"change {number}"})
        head = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
        connection.request("PATCH", path, body, head)
        response = connection.getresponse()
        response.read()
        if response.status == 200:
            self.made += 1
        else:
            self.refused += 1
