"""``homing simulate``: a scenario played on virtual time, told to people or to machines."""

from __future__ import annotations

import gc
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from homing.errors import BadScenario

if TYPE_CHECKING:
    from homing.sim.play import Played
    from homing.sim.scenario import Scenario
    from homing.sim.summary import Summary

_CHUNK = 50_000
_SELDOM = (200_000, 20, 20)  # Nearly all that is made is kept to the end, or goes by itself.


def simulate(
    scenario: Annotated[Path, typer.Argument(help="The scenario, a TOML file; see examples/.")],
    *,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print only JSON lines: the trace, then a summary.")
    ] = False,
    compare: Annotated[
        str | None,
        typer.Option("--compare", help="Play it with this policy, too, and show both."),
    ] = None,
    svg: Annotated[Path | None, typer.Option("--svg", help="Draw it into this SVG file.")] = None,
    html: Annotated[
        Path | None, typer.Option("--html", help="Draw it into this page, which needs no other.")
    ] = None,
) -> None:
    """Play a scenario on virtual time: what would happen to my endpoint if it were down?"""
    scenes = _scenes(scenario, compare)
    _quiet()
    gc.set_threshold(*_SELDOM)
    played = [_play(one) for one in scenes]
    _draw(played, svg, html)
    if as_json:
        _print_lines(played)
    else:
        from rich.console import Console

        from homing.sim.draw_terminal import draw

        draw(Console(highlight=False), played)


def _scenes(path: Path, compare: str | None) -> list[Scenario]:
    from homing.sim.read import read_scenario, with_policy

    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise BadScenario(f"{path}: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise BadScenario(f"{path}: it is not UTF-8 text.") from None
    first = read_scenario(text, source=str(path))
    return [first] if compare is None else [first, with_policy(first, compare)]


def _quiet() -> None:
    """The engine's log lines would bear virtual times; only what must not happen is shown."""
    import structlog

    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def _play(scenario: Scenario) -> tuple[Played, Summary]:
    from homing.sim.play import play
    from homing.sim.summary import summarize

    with _progress(scenario) as on_progress:
        played = play(scenario, on_progress)
    return played, summarize(played)


@contextmanager
def _progress(scenario: Scenario) -> Iterator[Callable[[float], None]]:
    """A bar on standard error while it runs; none where nobody sees it."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(f"playing with {scenario.schedule.name}", total=1.0)
        yield lambda share: progress.update(task, completed=share)


def _draw(played: list[tuple[Played, Summary]], svg: Path | None, html: Path | None) -> None:
    for path, kind in ((svg, "svg"), (html, "html")):
        if path is None:
            continue
        if kind == "svg":
            from homing.sim.draw_svg import picture

            text = picture(played)
        else:
            from homing.sim.draw_html import page

            text = page(played)
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise BadScenario(f"{path} cannot be written: {error.strerror}.") from None


def _print_lines(played: list[tuple[Played, Summary]]) -> None:
    from homing.sim.record import encode
    from homing.sim.summary import summary_line

    out = sys.stdout.buffer
    for one, summary in played:
        lines = one.trace.lines
        for begin in range(0, len(lines), _CHUNK):
            out.write(encode(lines[begin : begin + _CHUNK]))
        out.write(summary_line(summary) + b"\n")
    out.flush()
