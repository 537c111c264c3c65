"""Checks that need no server: settings, data directory, disk, store, clock, file descriptors."""

from __future__ import annotations

import asyncio
import resource
import shutil
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from homing.cli.backup import size
from homing.cli.checks import Check, Verdict
from homing.cli.output import clock_ms, span
from homing.errors import StoreUnavailable
from homing.model import id_time
from homing.policy.seal_keys import key_id, read_keys
from homing.server.settings import ADMIN_KEY_FILE, DATABASE_FILE, ENCRYPTION_KEY_FILE, Settings
from homing.store.inspect import StoreFacts, holder, look_at_postgres, look_at_sqlite

GB = 1_000_000_000
FREE_LEAST = GB // 4
FREE_GOOD = 2 * GB
LOG_MOST = GB // 4
EARLIEST_MS = 1_735_689_600_000  # 2025-01-01: before Homing was
APART_MOST_MS = 1_000
SPARE_DESCRIPTORS = 128


def check_settings(sources: Mapping[str, str]) -> Check:
    if not sources:
        return Check("settings", Verdict.WELL, "All settings are at their defaults.")
    count = len(sources)
    noun = "setting is" if count == 1 else "settings are"
    return Check("settings", Verdict.WELL, f"{count} {noun} set and in range; the rest is default.")


def check_here(settings: Settings) -> list[Check]:
    """Everything on this machine."""
    data = settings.database.directory
    facts, store = _store(settings, data)
    return [
        *_data(settings, data),
        _seal(settings, data),
        _disk(data),
        store,
        _clock(facts),
        _descriptors(settings),
    ]


# --- the data directory ---------------------------------------------------------------------


def _data(settings: Settings, data: Path) -> Iterator[Check]:
    if not data.is_dir():
        yield Check(
            "data",
            Verdict.UNKNOWN,
            f"There is no data directory {data}.",
            "`homing serve` makes it; if it is elsewhere, name it with --data or HOMING_DATA.",
        )
        return
    mode = stat.S_IMODE(data.stat().st_mode)
    if mode & 0o077:
        yield Check(
            "data",
            Verdict.LOOK,
            f"{data} can be read by others (mode {mode:04o}): events and secrets lie in it.",
            f"chmod 700 {data}",
        )
    else:
        yield Check("data", Verdict.WELL, f"{data} is there, and only its owner can read it.")
    if settings.security.admin_key:
        yield Check("key", Verdict.WELL, "The admin key is set.")
    elif (data / ADMIN_KEY_FILE).is_file():
        yield Check("key", Verdict.WELL, f"The admin key is kept in {data / ADMIN_KEY_FILE}.")
    else:
        yield Check("key", Verdict.LOOK, "There is no admin key yet.", "`homing serve` makes one.")


def _seal(settings: Settings, data: Path) -> Check:
    """Whether the keys that seal secrets are at hand and nobody else can read them."""
    if settings.security.secret_key:
        return Check("seal", Verdict.WELL, "The key that seals secrets is set.")
    path = data / ENCRYPTION_KEY_FILE
    if not path.is_file():
        if (data / DATABASE_FILE).exists():
            advice = (
                "If secrets were sealed, put it back from its backup: without it the server does "
                "not start. A database from before there were keys gets one at the next start."
            )
            return Check("seal", Verdict.LOOK, f"There is no key {path} beside a database.", advice)
        return Check(
            "seal", Verdict.UNKNOWN, f"There is no key {path} yet.", "`homing serve` makes it."
        )
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        sentence = f"{path} can be read by others (mode {mode:04o}): it opens every secret."
        return Check("seal", Verdict.WRONG, sentence, f"chmod 600 {path}")
    keys = read_keys(path.read_text(encoding="ascii", errors="replace"))
    if keys is None:
        return Check("seal", Verdict.WRONG, f"{path} is damaged.", "Put it back from its backup.")
    names = ", ".join(key_id(key) for key in keys)
    return Check(
        "seal", Verdict.WELL, f"Secrets are sealed with {path} ({names}); back it up apart."
    )


def _disk(data: Path) -> Check:
    place = data.absolute()
    while not place.exists():
        place = place.parent
    usage = shutil.disk_usage(place)
    free = f"{size(usage.free)} of {size(usage.total)} are free"
    if usage.free < FREE_LEAST:
        advice = "Free some now: on a full disk nothing is accepted or settled until there is room."
        return Check("disk", Verdict.WRONG, f"Only {free} at {place}.", advice)
    if usage.free < FREE_GOOD:
        advice = "Watch it; retention_days decides how long history is kept."
        return Check("disk", Verdict.LOOK, f"{free} at {place}.", advice)
    return Check("disk", Verdict.WELL, f"{free} at {place}.")


# --- the store ------------------------------------------------------------------------------


def _store(settings: Settings, data: Path) -> tuple[StoreFacts | None, Check]:
    database = data / DATABASE_FILE
    try:
        if settings.database.url:
            facts = asyncio.run(look_at_postgres(settings.database.url))
        elif not database.exists():
            sentence = f"There is no database {database} yet."
            return None, Check("store", Verdict.UNKNOWN, sentence, "`homing serve` makes it.")
        else:
            facts = look_at_sqlite(database)
    except StoreUnavailable as error:
        advice = "Is the disk or the database there, and may this user read it?"
        return None, Check("store", Verdict.WRONG, f"The store cannot be read: {error}", advice)
    sentence = f"{facts.version} answers; {size(facts.size_bytes + facts.log_bytes)} are in use"
    if not settings.database.url:
        number = holder(database)
        held = f"process {number} holds it" if number else "no server holds it"
        sentence += f", {held}"
    if facts.log_bytes > LOG_MOST:
        advice = "A reader (a shell, a copy) has been open for long: close it."
        sentence += f"; its write-ahead log has grown to {size(facts.log_bytes)}"
        return facts, Check("store", Verdict.LOOK, f"{sentence}.", advice)
    return facts, Check("store", Verdict.WELL, f"{sentence}.")


def _clock(facts: StoreFacts | None) -> Check:
    now = clock_ms()
    if now < EARLIEST_MS:
        return Check("clock", Verdict.WRONG, "The clock is years behind.", "Set it; use NTP.")
    if facts is None:
        return Check("clock", Verdict.WELL, "The clock is plausible.")
    ahead = id_time(facts.last_id) - now
    if ahead > APART_MOST_MS:
        return Check(
            "clock",
            Verdict.WRONG,
            f"The clock is {span(ahead)} behind the newest event in the store.",
            "It was set back, or was ahead before: set it right; use NTP.",
        )
    if facts.clock_ms is not None and abs(facts.clock_ms - now) > APART_MOST_MS:
        return Check(
            "clock",
            Verdict.LOOK,
            f"This machine and the database are {span(abs(facts.clock_ms - now))} apart.",
            "Let both follow the same NTP.",
        )
    return Check("clock", Verdict.WELL, "The clock is plausible and not behind the store.")


def _descriptors(settings: Settings) -> Check:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = settings.delivery.fresh_slots + settings.delivery.retry_slots + SPARE_DESCRIPTORS
    if soft != resource.RLIM_INFINITY and soft < needed:
        return Check(
            "files",
            Verdict.WRONG,
            f"This user may open {soft:,} files, and the slots may need {needed:,}.",
            f"Raise the limit (ulimit -n {needed * 2}), or lower fresh_slots and retry_slots.",
        )
    return Check("files", Verdict.WELL, f"{needed:,} open files may be needed and are allowed.")
