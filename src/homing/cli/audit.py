"""``homing audit``: who changed what; export the log, and verify that nobody has changed it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from homing.cli.arguments import LimitFlag, TenantFlag, given
from homing.cli.errors import Usage
from homing.cli.output import ago, dim, note, plain, print_json
from homing.cli.remote import Remote, remote_command

if TYPE_CHECKING:
    from homing_client import AuditEntry

app = typer.Typer(name="audit", rich_markup_mode=None)

CHANGE_CHARS_MAX = 80
FIRST = ("url", "name", "state", "status")  # the values that say most

WhoFlag = Annotated[str | None, typer.Option(help="Only by this key (name or id) or person.")]
ActionFlag = Annotated[
    str | None, typer.Option(help="Only this use case, like subscriptions.create or subscriptions.")
]
ObjectFlag = Annotated[
    str | None, typer.Option("--object", help="Only changes of the object with this id.")
]
SinceFlag = Annotated[str | None, typer.Option(help="Only from then on: RFC 3339, or 2h ago: 2h.")]
UntilFlag = Annotated[str | None, typer.Option(help="Only before: RFC 3339, or a duration ago.")]


@app.callback(invoke_without_command=True)
@remote_command
def audit(
    context: typer.Context,
    *,
    remote: Remote,
    who: WhoFlag = None,
    action: ActionFlag = None,
    object_id: ObjectFlag = None,
    since: SinceFlag = None,
    until: UntilFlag = None,
    tenant: TenantFlag = None,
    limit: LimitFlag = 50,
) -> None:
    """List the audit log, newest first: who changed what; or export or verify it."""
    if context.invoked_subcommand is not None:
        return
    where = _where(tenant, who, action, object_id, since, until)
    remote.list_items(
        lambda client: client.audit(**where),
        limit=limit,
        columns=("when", "who", "address", "action", "object", "change"),
        row=_row,
        empty="No change is in the audit log.",
    )


def _where(
    tenant: str | None,
    who: str | None,
    action: str | None,
    object_id: str | None,
    since: str | None,
    until: str | None,
) -> dict[str, Any]:
    return dict(
        given(tenant=tenant, who=who, action=action, object=object_id, since=since, until=until)
    )


def _row(it: AuditEntry) -> tuple[object, ...]:
    return (
        ago(it.at),
        it.who.person or it.who.name,
        dim(it.who.address),
        f"{it.action} refused" if it.refused else it.action,
        it.object,
        dim(_change(it)),
    )


def _change(it: AuditEntry) -> str:
    """One line that says what changed."""
    if it.refused:
        return f"{it.count:,} times: {it.refused}" if it.count > 1 else it.refused
    before, after = it.before, it.after
    if not isinstance(after, dict):
        return ""
    names = sorted(after, key=lambda name: (name not in FIRST, name))
    if isinstance(before, dict):
        parts = [f"{name}: {_short(before.get(name))} → {_short(after[name])}" for name in names]
    else:
        parts = [f"{name}: {_short(after[name])}" for name in names if after[name]]
    if it.count > 1:
        parts.insert(0, f"{it.count:,} times")
    text = ", ".join(parts)
    return text if len(text) <= CHANGE_CHARS_MAX else f"{text[:CHANGE_CHARS_MAX]}…"


def _short(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


@app.command("export")
@remote_command
def export(
    *,
    remote: Remote,
    who: WhoFlag = None,
    action: ActionFlag = None,
    object_id: ObjectFlag = None,
    since: SinceFlag = None,
    until: UntilFlag = None,
    tenant: TenantFlag = None,
) -> None:
    """Write the audit log to standard output as NDJSON, newest first."""
    count = 0
    with remote.connect() as client:
        for entry in client.audit(**_where(tenant, who, action, object_id, since, until)):
            print_json(entry)
            count += 1
    note(f"{_counted(count, 'entry', 'entries')}.")


@app.command("verify")
@remote_command
def verify(
    *,
    remote: Remote,
    expect: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBER:HASH",
            help="A segment that an earlier run printed: it must still be there, unchanged.",
        ),
    ] = None,
) -> None:
    """Verify that no entry of the audit log was removed, changed or added by hand."""
    wanted = _read_expected(expect)
    problems: list[str] = []
    segments = entries = last = 0
    last_hash = ""
    after: int | None = None
    with remote.connect() as client:
        while True:
            found = client.verify_audit(after=after)
            problems += found.problems
            for it in found.segments:
                problems += [
                    f"Segment {it.number} ({it.first_at} to {it.last_at}): {text}."
                    for text in it.problems
                ]
                segments, entries = segments + 1, entries + it.entries
                last, last_hash = it.number, it.hash
                if wanted is not None and it.number == wanted[0]:
                    if it.hash != wanted[1]:
                        problems.append(f"Segment {it.number} is not the one that was expected.")
                    wanted = None
            after = found.next_after
            if after is None:
                break
    if wanted is not None and wanted[0] > found.removed_segments:
        problems.append(f"Segment {wanted[0]}, which was expected, is missing.")
    if remote.json:
        print_json(
            {
                "segments": segments,
                "entries": entries,
                "last": last,
                "hash": last_hash,
                "problems": problems,
            }
        )
    else:
        _print(problems, segments, entries, found.removed_entries)
        if last:
            print(f"The last segment is {last}:{last_hash}")
            note("Keep this line elsewhere, and give it to the next run with --expect.")
    if problems:
        raise typer.Exit(1)


def _print(problems: list[str], segments: int, entries: int, removed: int) -> None:
    for text in problems:
        print(plain(text))
    if not problems:
        found = _counted(entries, "entry", "entries")
        within = _counted(segments, "segment", "segments")
        print(f"Verified: {found} in {within}, as Homing wrote them.")
    if removed:
        print(f"Retention has removed {_counted(removed, 'older entry', 'older entries')}.")


def _counted(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"


def _read_expected(text: str | None) -> tuple[int, str] | None:
    if text is None:
        return None
    number, _, digest = text.partition(":")
    if not (number.isascii() and number.isdigit() and len(number) < 18 and len(digest) == 64):
        raise Usage("--expect must be NUMBER:HASH, as an earlier run printed it.")
    return int(number), digest.lower()
