"""Renders the templates. Values are escaped: they are text, never markup."""

from __future__ import annotations

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from homing import __version__
from homing.model import Attempt, show_id
from homing.policy.causes import title
from homing.policy.failure_text import failure_text
from homing.policy.sentences import At, Sentence
from homing.ports.views import LastFailure
from homing.web.clock import clock_detail, clock_differs
from homing.web.dashboard.characters import readable, visible
from homing.web.dashboard.files import Files
from homing.web.show import time_text

_SPANS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))


def environment(files: Files) -> Environment:
    """The Jinja environment with the filters that templates use."""
    env = Environment(
        loader=PackageLoader("homing.web.dashboard", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters.update(
        ago=ago,
        at=at,
        cause=title,
        failure=failure,
        ident=ident,
        number=number,
        readable=readable,
        sentence=sentence,
        short=short,
        span=span,
        took=took,
        visible=visible,
    )
    env.filters["bytes"] = size
    env.globals.update(root=files.root, version=__version__)
    env.globals.update(clock_differs=clock_differs, clock_detail=clock_detail)
    return env


def ago(at_ms: int | None) -> Markup | str:
    """A time relative to now, updated by the page; its tooltip is the UTC time."""
    return _time(at_ms, "ago")


def at(at_ms: int | None) -> Markup | str:
    """A time in the viewer's time zone; its tooltip is the UTC time."""
    return _time(at_ms, "at")


def sentence(said: Sentence) -> Markup:
    """A sentence whose times are shown like every other time on the page."""
    return Markup("").join(at(it.ms) if isinstance(it, At) else it for it in said.parts)


def _time(at_ms: int | None, form: str) -> Markup | str:
    if at_ms is None:
        return "never"
    text = time_text(at_ms)
    shown = text[:19].replace("T", " ") + " UTC"
    return Markup('<time datetime="{}" data-form="{}" title="{}">{}</time>').format(
        text, form, shown, shown
    )


def failure(one: LastFailure | Attempt) -> str:
    """Why an attempt failed, in a few words."""
    return failure_text(one.code, one.failure, one.detail)


def ident(number_: int, prefix: str) -> str:
    """An id with its prefix."""
    return show_id(prefix, number_)


def number(value: int) -> str:
    """``1,204``."""
    return f"{value:,}"


def short(value: float) -> str:
    """``12.3k``: three digits at most."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size * 0.9995:
            scaled = value / size
            return f"{scaled:.1f}{unit}" if scaled < 99.95 else f"{scaled:.0f}{unit}"
    return f"{value:.0f}" if value == int(value) else f"{value:.1f}"


def size(count: int) -> str:
    """``3.2 MB``, ``640 B``."""
    text = short(count)
    return f"{text[:-1]} {text[-1]}B" if text[-1].isalpha() else f"{text} B"


def span(ms: float | None) -> str:
    """A duration in its two largest units: ``2 h 3 min``."""
    if ms is None:
        return "–"
    if ms < 1_000:
        return took(ms * 1_000)
    parts: list[str] = []
    left = int(ms)
    for size, unit in _SPANS:
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count} {unit}")
        elif parts:
            break
        if len(parts) == 2:
            break
    return " ".join(parts)


def took(us: float | None) -> str:
    """A short duration: ``740 µs``, ``12 ms``, ``3.2 s``."""
    if us is None:
        return "–"
    if us < 1_000:
        return f"{us:.0f} µs"
    if us < 10_000:
        return f"{us / 1_000:.1f} ms"
    if us < 1_000_000:
        return f"{us / 1_000:.0f} ms"
    return f"{us / 1_000_000:.1f} s" if us < 100_000_000 else span(us / 1_000)


class Renderer:
    """Renders pages."""

    def __init__(self, files: Files, paths: frozenset[str]) -> None:
        self._env = environment(files)
        self._env.globals["paths"] = paths

    def render(self, template: str, values: dict[str, Any]) -> bytes:
        return self._env.get_template(template).render(values).encode()
