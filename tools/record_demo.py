"""Records ``homing demo`` as docs/images/demo.svg: a real terminal, one picture every few seconds.

After a change of the demo: ``make pictures``, which runs this and ``take_screenshots.py``. The
program runs in a pseudo-terminal, and its screen is read by a terminal emulator. A line that looks
the same in many pictures is stored once.
"""

from __future__ import annotations

import codecs
import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from html import escape
from itertools import groupby
from pathlib import Path

import pyte
from pyte.screens import Char

IMAGE = Path(__file__).resolve().parent.parent / "docs" / "images" / "demo.svg"
COLUMNS, ROWS = 112, 34
EVERY_S = 4.0
LAST_S = 8.0  # the summary stays longer
CELL, LINE, SIZE, MARGIN = 8.4, 19.0, 14.0, 14.0
BACKGROUND, FOREGROUND = "#0d1117", "#d1d7e0"
COLOURS = {
    "default": FOREGROUND,
    "black": "#484f58",
    "red": "#ff7b72",
    "green": "#56d364",
    "brown": "#e3b341",
    "blue": "#79c0ff",
    "magenta": "#d2a8ff",
    "cyan": "#76e3ea",
    "white": FOREGROUND,
}
PORT = re.compile(r"(127\.0\.0\.1:)\d+")


def record() -> list[list[str]]:
    """The screens of one run, each as its lines in SVG."""
    main, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    environ = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    command = [str(Path(sys.executable).with_name("homing")), "demo"]
    process = subprocess.Popen(command, stdin=child, stdout=child, stderr=child, env=environ)
    os.close(child)
    screen = pyte.Screen(COLUMNS, ROWS)
    stream, decoder = pyte.Stream(screen), codecs.getincrementaldecoder("utf-8")("replace")
    pictures, due = [], time.monotonic() + EVERY_S
    with contextlib.suppress(OSError):  # Linux reports the end of the program in this way.
        while True:
            ready, _, _ = select.select([main], [], [], max(due - time.monotonic(), 0))
            if ready:
                data = os.read(main, 65_536)
                if not data:
                    break
                stream.feed(decoder.decode(data))
            if time.monotonic() >= due:
                due += EVERY_S
                pictures.append(drawn(screen))
                print(f"\r{len(pictures)} pictures", end="", flush=True)
    if process.wait() != 0:
        sys.exit("the demo failed")
    return [*pictures, drawn(screen)]


def drawn(screen: pyte.Screen) -> list[str]:
    return [_line([screen.buffer[row][column] for column in range(COLUMNS)]) for row in range(ROWS)]


def _line(cells: list[Char]) -> str:
    """One line of the screen: a text for each run of cells that look the same."""
    found, column = [], 0
    for look, run in groupby(cells, _look):
        text = "".join(it.data for it in run)
        width, (colour, back, style) = len(text), look
        x = MARGIN + column * CELL
        column += width
        if back:
            found.append(
                f'<rect x="{x:.1f}" width="{width * CELL:.1f}" height="{LINE}" fill="{back}"/>'
            )
        if text.strip():
            indent = len(text) - len(text.lstrip())
            text = text.strip()
            found.append(
                f'<text x="{x + indent * CELL:.1f}" y="14" textLength="{len(text) * CELL:.1f}"'
                f' fill="{colour}"{style}>{escape(text)}</text>'
            )
    return "".join(found)


def _look(cell: Char) -> tuple[str, str, str]:
    colour, back = _colour(cell.fg), "" if cell.bg == "default" else _colour(cell.bg)
    if cell.reverse:
        colour, back = back or BACKGROUND, colour
    style = ' font-weight="bold"' if cell.bold else ""
    return colour, back, style + (' font-style="italic"' if cell.italics else "")


def _colour(name: str) -> str:
    return COLOURS.get(name.removeprefix("bright"), f"#{name}")


def animated(pictures: list[list[str]]) -> str:
    """All pictures in one SVG, one after the other, for ever."""
    ids: dict[str, int] = {}
    total = EVERY_S * (len(pictures) - 1) + LAST_S
    frames, rules = [], []
    for number, picture in enumerate(pictures):
        begin = 100 * number * EVERY_S / total
        end = 100 if number == len(pictures) - 1 else 100 * (number + 1) * EVERY_S / total
        hidden = f"0%{{opacity:0}}{begin:.3f}%{{opacity:1}}" if number else "0%{opacity:1}"
        gone = f"{end:.3f}%{{opacity:0}}100%{{opacity:0}}" if end < 100 else "100%{opacity:1}"
        rules.append(
            f"@keyframes f{number}{{{hidden}{gone}}}#f{number}{{animation-name:f{number}}}"
        )
        uses = "".join(
            f'<use href="#l{ids.setdefault(line, len(ids))}" y="{MARGIN + row * LINE:.0f}"/>'
            for row, line in enumerate(picture)
            if line
        )
        frames.append(f'<g id="f{number}" class="f">{uses}</g>')
    lines = "".join(f'<g id="l{number}">{line}</g>' for line, number in ids.items())
    width, height = COLUMNS * CELL + 2 * MARGIN, ROWS * LINE + 2 * MARGIN
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}"
 role="img" font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace"
 font-size="{SIZE}">
<title>homing demo: three URLs, one that works, one that fails at times, one that is down</title>
<style>.f{{opacity:0;animation:{total:.0f}s steps(1) infinite}}text{{white-space:pre}}
{"".join(rules)}
@media (prefers-reduced-motion:reduce){{.f{{animation:none}}
#f{len(pictures) - 1}{{opacity:1}}}}</style>
<rect width="100%" height="100%" rx="10" fill="{BACKGROUND}"/>
<defs>{lines}</defs>
{"".join(frames)}
</svg>
"""


def main() -> None:
    pictures = record()
    shown = [[PORT.sub(r"\g<1>8700", line) for line in picture] for picture in pictures]
    IMAGE.write_text(animated(shown))
    print(f"\r{len(pictures)} pictures, {IMAGE.stat().st_size // 1024} KiB: {IMAGE.name}")


if __name__ == "__main__":
    main()
