"""A received request as a good HTTP tool shows it."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct
from rich.console import Console
from rich.highlighter import JSONHighlighter
from rich.rule import Rule
from rich.text import Text

from homing.cli.output import clock_ms, plain, time_of
from homing.cli.receiver import Arrived

BODY_CHARS_MOST = 4_000
RULE_MOST = 100
_BRIGHT = ("webhook-", "homing-")


class Shown(Struct, frozen=True):
    """A request, what is wrong with its signature, and how it is answered."""

    request: Arrived
    trouble: str
    status: int
    slow_s: float

    def document(self) -> dict[str, Any]:
        """For programs."""
        request = self.request
        try:
            body: Any = msgspec.Raw(_formatted(request.body, indent=-1))
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            body = request.body.decode("utf-8", "replace")
        attempt = request.header("homing-attempt")
        return {
            "method": request.method,
            "path": request.path,
            "headers": {name.lower(): value for name, value in request.headers},
            "body": body,
            "verified": not self.trouble,
            "trouble": self.trouble or None,
            "type": request.header("homing-event-type") or None,
            "delivery": request.header("homing-delivery") or None,
            "attempt": int(attempt) if attempt.isdecimal() else None,
            "answered": self.status,
        }


def show_request(out: Console, shown: Shown) -> None:
    """Method and path, headers, body, and a line that says what came of it."""
    request = shown.request
    title = Text.assemble(
        (f"{time_of(clock_ms())} ", "dim"),
        (plain(request.header("homing-event-type")) or "a request", "bold"),
        (f" · attempt {plain(request.header('homing-attempt')) or '?'} ", "dim"),
    )
    out.print()
    out.print(Rule(title, align="left", style="dim"), width=min(out.width, RULE_MOST))
    out.print(Text.assemble((request.method, "bold cyan"), f" {plain(request.path)}"))
    for name, value in request.headers:
        style = "" if name.lower().startswith(_BRIGHT) else "dim"
        out.print(Text(f"{plain(name)}: {plain(value)}", style=style or "cyan"), soft_wrap=True)
    out.print()
    out.print(_body(request.body), soft_wrap=True)
    out.print()
    out.print(_verdict(shown), soft_wrap=True)


def _formatted(body: bytes, *, indent: int) -> bytes:
    """JSON with other spaces and nothing else changed; raises DecodeError if it is none."""
    body.decode()
    msgspec.json.decode(body, type=msgspec.Raw)
    return msgspec.json.format(body, indent=indent)


def _body(body: bytes) -> Text:
    try:
        text = _formatted(body, indent=2).decode()
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        text = body.decode("utf-8", "replace")
    lines = "\n".join(plain(line) for line in text.splitlines())
    cut = lines[:BODY_CHARS_MOST]
    shown = JSONHighlighter()(Text(cut))
    if len(lines) > len(cut):
        shown.append(f"\n… {len(lines) - len(cut):,} characters more", "dim")
    return shown


def _verdict(shown: Shown) -> Text:
    text = Text()
    if shown.trouble:
        text.append(f"✗ not verified: {plain(shown.trouble)}", "bold red")
    else:
        text.append("✓ verified", "green")
    good = 200 <= shown.status < 300
    text.append("  → ", "dim")
    text.append(f"answered {shown.status}", "green" if good else "red")
    if shown.slow_s:
        text.append(f" after {shown.slow_s:g} s", "yellow")
    delivery = plain(shown.request.header("homing-delivery"))
    if delivery:
        text.append(f"  homing deliveries show {delivery}", "dim")
    return text
