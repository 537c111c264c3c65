"""Templates are compiled on a thread: the event loop goes on meanwhile."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import jinja2
import pytest

from homing.engine.shared import Work
from homing.languages.language import ENGLISH
from homing.web.dashboard.files import Files
from homing.web.dashboard.render import Renderer, Templates

PAGE = "sign_in.html"  # It extends another template, which includes others.


def test_no_template_is_compiled_on_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[tuple[str, threading.Thread]] = []
    compile_template = jinja2.Environment.compile
    monkeypatch.setattr(Templates, "codes", {})

    def noted(self: jinja2.Environment, *given: Any, **more: Any) -> Any:
        compiled.append((given[1], threading.current_thread()))
        return compile_template(self, *given, **more)

    monkeypatch.setattr(jinja2.Environment, "compile", noted)

    async def story() -> None:
        for _ in range(2):
            renderer = Renderer(Files(), frozenset(), Work(time.thread_time_ns).turn)
            with pytest.raises(jinja2.UndefinedError):  # No page has no values.
                await renderer.render(PAGE, {}, ENGLISH, payer="acme")

    asyncio.run(story())
    names = [name for name, _ in compiled]
    assert PAGE in names
    assert len(names) > 1
    assert len(names) == len(set(names)), "each once in a process"
    assert all(thread is not threading.main_thread() for _, thread in compiled)
