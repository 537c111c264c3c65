"""Renders the templates, in the language of the reader. Values are escaped: they are text, never
markup.

To compile a template takes tens of milliseconds, for which the event loop would stand still. So a
thread compiles it, with all templates that it uses, before it is rendered for the first time; once
in a process, whatever the number of renderers. To render a page is a piece of work of the tenant of
its reader: a page with large texts takes milliseconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, MutableMapping
from contextlib import AbstractAsyncContextManager
from types import CodeType
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template, pass_context
from jinja2.meta import find_referenced_templates
from jinja2.runtime import Context
from markupsafe import Markup

from homing import __version__
from homing.languages.language import ENGLISH, LANGUAGES, Language
from homing.languages.sentences import At, Sentence, say
from homing.model import Attempt, show_id
from homing.policy.causes import title
from homing.policy.failure_text import failure_text
from homing.ports.views import LastFailure
from homing.web.clock import clock_detail, clock_differs
from homing.web.dashboard.characters import readable, visible
from homing.web.dashboard.files import Files
from homing.web.dashboard.words import word
from homing.web.show import time_text

Turn = Callable[[str], AbstractAsyncContextManager[None]]  # of a tenant, for a piece of work


class Writer:
    """Writes numbers, times and sentences in one language: the filters that templates use."""

    def __init__(self, language: Language) -> None:
        self.language = language

    def ago(self, at_ms: int | None) -> Markup | str:
        """A time relative to now, updated by the page; its tooltip is the UTC time."""
        return self._time(at_ms, "ago")

    def at(self, at_ms: int | None) -> Markup | str:
        """A time in the viewer's time zone; its tooltip is the UTC time."""
        return self._time(at_ms, "at")

    def _time(self, at_ms: int | None, form: str) -> Markup | str:
        return self.say(say("never")) if at_ms is None else _time(at_ms, form)

    def say(self, text: str) -> Markup | str:
        """A sentence in the language; its times are shown like every other time on the page."""
        if not isinstance(text, Sentence):
            return text
        pieces = text.pieces(self.language)
        return Markup("").join(_time(it.ms, "at") if isinstance(it, At) else it for it in pieces)

    def finish(self, value: Any) -> Any:
        """Called for every value that a template writes."""
        return self.say(value) if isinstance(value, Sentence) else value

    def word(self, value: str) -> Markup | str:
        """A value of the API (``pending``, ``sender_error``) as people read it."""
        return self.say(word(value))

    def cause(self, key: Any) -> Markup | str:
        return self.say(title(key))

    def failure(self, one: LastFailure | Attempt) -> Markup | str:
        """Why an attempt failed, in a few words."""
        return self.say(failure_text(one.code, one.failure, one.detail))

    def number(self, value: float) -> str:
        """``1,204``."""
        return self.language.number(value)

    def short(self, value: float) -> str:
        """``12.3k``: three digits at most."""
        for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
            if value >= size * 0.9995:
                scaled = value / size
                return self.language.number(scaled, 1 if scaled < 99.95 else 0) + unit
        return self.language.number(value, 0 if value == int(value) else 1)

    def size(self, count: int) -> str:
        """``3.2 MB``, ``640 B``."""
        text = self.short(count)
        return f"{text[:-1]} {text[-1]}B" if text[-1].isalpha() else f"{text} B"

    def span(self, ms: float | None) -> str:
        """A duration in its two largest units: ``2 h 3 min``."""
        if ms is None:
            return "–"
        if ms < 1_000:
            return self.took(ms * 1_000)
        seconds = int(ms) // 1_000
        minutes, s = divmod(seconds, 60)
        hours, m = divmod(minutes, 60)
        d, h = divmod(hours, 24)
        if d:
            text = say("{d} d {h} h", d=d, h=h) if h else say("{d} d", d=d)
        elif h:
            text = say("{h} h {m} min", h=h, m=m) if m else say("{n} h", n=h)
        elif m:
            text = say("{m} min {s} s", m=m, s=s) if s else say("{n} min", n=m)
        else:
            text = say("{n} s", n=s)
        return self.language.text(text)

    def took(self, us: float | None) -> str:
        """A short duration: ``740 µs``, ``12 ms``, ``3.2 s``."""
        if us is None:
            return "–"
        number = self.language.number
        if us < 1_000:
            text = say("{n} µs", n=number(us))
        elif us < 1_000_000:
            text = say("{n} ms", n=number(us / 1_000, 1 if us < 10_000 else 0))
        elif us < 100_000_000:
            text = say("{n} s", n=number(us / 1_000_000, 1))
        else:
            return self.span(us / 1_000)
        return self.language.text(text)


def _time(at_ms: int, form: str) -> Markup:
    text = time_text(at_ms)
    shown = text[:19].replace("T", " ") + " UTC"
    return Markup('<time datetime="{}" data-form="{}" title="{}">{}</time>').format(
        text, form, shown, shown
    )


def ident(number_: int, prefix: str) -> str:
    """An id with its prefix."""
    return show_id(prefix, number_)


class Templates(PackageLoader):
    """The templates, each with its compiled code and the names of those that it uses."""

    codes: dict[str, tuple[CodeType, list[str]]] = {}  # noqa: RUF012 - of all instances

    def load(
        self,
        environment: Environment,
        name: str,
        globals: MutableMapping[str, Any] | None = None,  # noqa: A002 - so Jinja calls it
    ) -> Template:
        code, _ = self._compiled(environment, name)
        return environment.template_class.from_code(environment, code, globals or {})

    def used_by(self, environment: Environment, name: str) -> list[str]:
        return self._compiled(environment, name)[1]

    def _compiled(self, environment: Environment, name: str) -> tuple[CodeType, list[str]]:
        if name not in self.codes:
            source, filename, _ = self.get_source(environment, name)
            found = find_referenced_templates(environment.parse(source))
            used = [it for it in found if it is not None]
            self.codes[name] = environment.compile(source, name, filename), used
        return self.codes[name]


class Renderer:
    """Renders pages. A page is rendered at once, so that one language at a time is set."""

    def __init__(self, files: Files, paths: frozenset[str], turn: Turn) -> None:
        self._turn = turn
        self._writers = {code: Writer(it) for code, it in LANGUAGES.items()}
        self._writer = self._writers[ENGLISH.code]
        self._templates = Templates("homing.web.dashboard", "templates")
        self._env = self._environment(files)
        self._env.globals["paths"] = paths
        self._compiled: set[str] = set()

    async def render(
        self, template: str, values: Mapping[str, Any], language: Language, *, payer: str
    ) -> bytes:
        if template not in self._compiled:
            await asyncio.to_thread(self._compile, template)
        if not payer:
            return self._render(template, values, language)
        async with self._turn(payer):
            return self._render(template, values, language)

    def _render(self, template: str, values: Mapping[str, Any], language: Language) -> bytes:
        self._writer = self._writers[language.code]
        text = self._env.get_template(template).render(language=language, **values)
        return text.encode()

    def _compile(self, template: str) -> None:
        """Compile a template and the templates that it names. Runs on a thread."""
        for used in self._templates.used_by(self._env, template):
            if used not in self._compiled:
                self._compile(used)
        self._env.get_template(template)
        self._compiled.add(template)

    def _environment(self, files: Files) -> Environment:
        """The Jinja environment with the filters that templates use."""
        env = Environment(
            loader=self._templates,
            auto_reload=False,  # Otherwise each page would ask for the time of each file.
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.i18n"],
            finalize=self._finish,
        )
        env.policies["ext.i18n.trimmed"] = True
        env.install_gettext_callables(  # type: ignore[attr-defined]
            self._message,
            self._message,
            newstyle=True,
        )
        for name in ("ago", "at", "cause", "failure", "number", "short", "span", "took", "word"):
            env.filters[name] = self._filter(name)
        env.filters.update(ident=ident, readable=readable, visible=visible)
        env.filters["bytes"] = self._filter("size")
        env.filters["sentence"] = self._filter("say")
        env.globals.update(root=files.root, version=__version__, languages=LANGUAGES.values())
        env.globals.update(clock_differs=clock_differs, clock_detail=clock_detail)
        return env

    def _finish(self, value: Any) -> Any:
        return self._writer.finish(value)

    def _message(self, one: str, other: str = "", count: int = 0) -> str:
        return self._writer.language.message(one, other, count)

    def _filter(self, name: str) -> Any:
        @pass_context  # Jinja would call it once for a constant, in whatever language is set then.
        def filtered(_context: Context, *values: Any) -> Any:
            return getattr(self._writer, name)(*values)

        return filtered
