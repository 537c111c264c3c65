"""Logging: one line per record on standard error, for people or as JSON.

Values come from outside (URLs, responses, event types), so control characters are escaped: a value
can neither fake a second record nor control the terminal.
"""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:/@%+,*?&#~")


def configure_logs(*, level: str, form: str) -> None:
    """Send the records of Homing and of the libraries to standard error."""
    number = logging.getLevelNamesMapping()[level.upper()]
    shared: list[Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        structlog.processors.format_exc_info,
    ]
    renderer: Processor = structlog.processors.JSONRenderer() if form == "json" else console_line
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
                structlog.processors.format_exc_info,
                renderer,
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(number)
    if number > logging.DEBUG:
        logging.getLogger("uvicorn").setLevel(logging.WARNING)


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
