"""Logging: one line per record on standard error, for people or as JSON.

Values come from outside (URLs, responses, event types), so control characters are escaped: a value
can neither fake a second record nor control the terminal. A line has at most 500 characters: the
longest values are cut. An exception is one value, its innermost place first; at the level debug
lines are whole and exceptions have their traceback.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from collections.abc import Callable
from pathlib import PurePath
from typing import Any

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

LINE_CHARS_MAX = 500
_CUT = "…"
_PLACES_MAX = 6  # of a traceback in one line
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:/@%+,*?&#~")


def configure_logs(*, level: str, form: str) -> None:
    """Send the records of Homing and of the libraries to standard error."""
    number = logging.getLevelNamesMapping()[level.upper()]
    whole = number <= logging.DEBUG
    exceptions: Processor = structlog.processors.format_exc_info if whole else short_exception
    shared: list[Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        exceptions,
    ]
    write = json_line if form == "json" else console_line
    structlog.configure(
        processors=[
            structlog.stdlib.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.make_filtering_bound_logger(number),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                exceptions,
                write if whole else short_lines(write),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(number)
    if number > logging.DEBUG:
        logging.getLogger("uvicorn").setLevel(logging.WARNING)


def short_exception(_logger: WrappedLogger, _method: str, record: EventDict) -> EventDict:
    """``ValueError: bad at flow.py:195 settle, settle.py:157 _settle``."""
    given = record.pop("exc_info", None)
    if given is True:
        given = sys.exc_info()
    error = given[1] if isinstance(given, tuple) else given
    if isinstance(error, BaseException):
        frames = traceback.extract_tb(error.__traceback__)[::-1][:_PLACES_MAX]
        places = [f"{PurePath(it.filename).name}:{it.lineno} {it.name}" for it in frames]
        record["exception"] = f"{type(error).__name__}: {error} at {', '.join(places)}"
    return record


Line = Callable[[WrappedLogger, str, EventDict], str]


def short_lines(write: Line) -> Line:
    """Cuts the longest values of a record until its line is short enough."""

    def line(logger: WrappedLogger, method: str, record: EventDict) -> str:
        text = write(logger, method, record)
        while len(text) > LINE_CHARS_MAX:
            record = dict(record)
            name = max(record, key=lambda it: len(str(record[it])))
            value = str(record[name])
            if len(value) < 2:  # So many fields that cutting does not help.
                break
            keep = len(value) - (len(text) - LINE_CHARS_MAX)
            record[name] = value[: max(keep, len(value) // 2) - 1].rstrip(_CUT) + _CUT
            text = write(logger, method, record)
        return text

    return line


def json_line(_logger: WrappedLogger, _method: str, record: EventDict) -> str:
    return json.dumps(record, default=repr)


def console_line(_logger: WrappedLogger, _method: str, record: EventDict) -> str:
    """``2025-01-31T12:00:00Z info  settled  delivery=dlv_… code=200``."""
    fields = dict(record)
    time, level = fields.pop("time", ""), fields.pop("level", "")
    event = _escaped(str(fields.pop("event", "")))
    exception = fields.pop("exception", None)
    parts = [f"{time} {level:<7} {event}"]
    parts += [f"{_escaped(str(name))}={_value(value)}" for name, value in fields.items()]
    if exception is not None:
        parts.append(f"exception={_value(exception)}")
    return " ".join(parts)


def _value(value: Any) -> str:
    text = value if isinstance(value, str) else str(value)
    if text and all(char in _PLAIN for char in text):
        return text
    return _escaped(json.dumps(text, ensure_ascii=False))


def _escaped(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )
