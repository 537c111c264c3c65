"""What is on the disk after the power was cut at one point of a journal.

Only what was synced is sure. Of the writes since, any may be there, in any order, torn at any
sector; a file just made may be missing, and one just deleted may be back.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from chaos.disk import Did

SECTOR = 512
Style = Literal["dropped", "kept", "prefix", "torn"]
STYLES: tuple[Style, ...] = ("dropped", "kept", "prefix", "torn")


@dataclass
class Platter:
    """One file: what is sure, and what was done since the last sync."""

    sure: bytearray = field(default_factory=bytearray)
    since: list[Did] = field(default_factory=list)
    named: bool = False  # its entry in the folder is sure
    deleted: bool = False  # and this is not sure

    def sync(self) -> None:
        for did in self.since:
            _apply(self.sure, did)
        self.since = []


class Machine:
    """The disk of a machine, followed through a journal up to a point."""

    def __init__(self, start: dict[str, bytes]) -> None:
        self.files = {
            name: Platter(bytearray(data), named=True) for name, data in sorted(start.items())
        }

    def follow(self, did: Did) -> None:
        match did.what:
            case "open":
                file = self.files.get(did.name)
                if file is None or file.deleted:
                    self.files[did.name] = Platter()
            case "write" | "truncate":
                self.files[did.name].since.append(did)
            case "sync":
                if not self.files[did.name].named:
                    self._sync_folder()
                self.files[did.name].sync()
            case "delete":
                if did.at:
                    self.files.pop(did.name, None)
                elif did.name in self.files:
                    self.files[did.name].deleted = True

    def _sync_folder(self) -> None:
        """The first sync of a new log or journal."""
        self.files = {name: file for name, file in self.files.items() if not file.deleted}
        for file in self.files.values():
            file.named = True

    def cut(self, style: Style, rng: random.Random) -> dict[str, bytes]:
        """What is found when the power is back."""
        found: dict[str, bytes] = {}
        for name, file in self.files.items():
            if _gone(file, style, rng):
                continue
            content = bytearray(file.sure)
            for did in _survivors(file.since, style, rng):
                _apply(content, did)
            found[name] = bytes(content)
        return found


def _gone(file: Platter, style: Style, rng: random.Random) -> bool:
    if file.deleted:
        return style == "kept" or (style != "dropped" and rng.random() < 0.5)
    if not file.named:
        return style == "dropped" or (style != "kept" and rng.random() < 0.3)
    return False


def _survivors(since: Sequence[Did], style: Style, rng: random.Random) -> list[Did]:
    match style:
        case "dropped":
            return []
        case "kept":
            return list(since)
        case "prefix":
            if not since:
                return []
            last = rng.randrange(len(since))
            return [*since[:last], *_sectors(since[last])[: rng.randrange(9)]]
        case "torn":
            parts = [part for did in since for part in _sectors(did)]
            rng.shuffle(parts)
            share = rng.choice((0.1, 0.5, 0.9, 1.0))
            return [part for part in parts if rng.random() < share]


def _sectors(did: Did) -> list[Did]:
    """A write in pieces that a disk writes whole."""
    if did.what != "write":
        return [did]
    pieces, at = [], did.at
    end = did.at + len(did.data)
    while at < end:
        upto = min(end, (at // SECTOR + 1) * SECTOR)
        pieces.append(did._replace(at=at, data=did.data[at - did.at : upto - did.at]))
        at = upto
    return pieces


def _apply(content: bytearray, did: Did) -> None:
    if did.what == "truncate":
        del content[did.at :]
    if len(content) < did.at:
        content.extend(bytes(did.at - len(content)))
    if did.what == "write":
        content[did.at : did.at + len(did.data)] = did.data


def lay_out(found: dict[str, bytes], folder: Path) -> None:
    """Write these files, and no others, into a folder."""
    folder.mkdir(exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    for name, content in found.items():
        (folder / name).write_bytes(content)
