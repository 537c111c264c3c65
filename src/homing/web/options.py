"""The options of the HTTP server, and the objects that every handler uses."""

from __future__ import annotations

import asyncio

from msgspec import Struct, field

from homing.app.app import App
from homing.web.body_budget import BodyBudget
from homing.web.metrics import More, OtherProcesses


class WebOptions(Struct, frozen=True):
    """The host names of the dashboard, additional metrics, and the role of this process."""

    hosts: frozenset[str] = frozenset()  # that the dashboard responds to
    leaving: asyncio.Event = field(default_factory=asyncio.Event)  # set when the server stops
    more_metrics: More | None = None
    other_processes: OtherProcesses | None = None  # None: this server has one process
    api: bool = True  # False: this process only delivers, and reports its status


class WebParts(Struct, frozen=True):
    """The use cases, the options, and the memory budget for request bodies."""

    app: App
    options: WebOptions = field(default_factory=WebOptions)
    body_budget: BodyBudget = field(default_factory=BodyBudget)
