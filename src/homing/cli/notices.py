"""``homing notices``: list notices; add, change, test and remove the targets that get them."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from homing.cli.arguments import LimitFlag, TenantFlag
from homing.cli.errors import Failed
from homing.cli.output import ago, dim, fields, plain
from homing.cli.remote import Remote, remote_command

if TYPE_CHECKING:
    from rich.console import Console

    from homing_client import NewNoticeTarget, Notice, NoticeTarget
    from homing_client.values import NoticeKind as NoticeName

app = typer.Typer(name="notices", rich_markup_mode=None)


class Kind(StrEnum):
    """How a target is reached."""

    EMAIL = "email"
    SLACK = "slack"
    TEAMS = "teams"
    WEBHOOK = "webhook"


class NoticeKind(StrEnum):
    """What a notice is about."""

    WARNING = "warning"
    DISABLED = "disabled"
    FROZEN = "frozen"
    REMINDER = "reminder"
    RECOVERED = "recovered"
    FIRST_DROP = "first_drop"
    CERTIFICATE = "certificate"
    GONE = "gone"
    OUTAGE = "outage"
    OUTAGE_OVER = "outage_over"
    COMMITS_LOST = "commits_lost"


class Language(StrEnum):
    """The language of the messages to a target."""

    EN = "en"
    NL = "nl"
    IT = "it"
    JA = "ja"
    ZH = "zh"


TargetArgument = Annotated[
    str, typer.Argument(metavar="ID", help="The id of a target, like tgt_01k9x3w8z4g00.")
]
OnlyFlag = Annotated[
    list[NoticeKind] | None,
    typer.Option("--only", help="Only notices of this kind; may be repeated. Default: all."),
]


@app.callback(invoke_without_command=True)
@remote_command
def notices(
    context: typer.Context,
    *,
    remote: Remote,
    tenant: TenantFlag = None,
    limit: LimitFlag = 50,
) -> None:
    """List notices to people, newest first; or list, add, change, test or remove targets."""
    if context.invoked_subcommand is not None:
        return
    remote.list_items(
        lambda client: client.notices(tenant=tenant),
        limit=limit,
        columns=("at", "kind", "status", "target", "tenant", "url"),
        row=_row,
        empty="There are no notices. `homing notices add email ops@example.com` adds a target.",
    )


def _row(one: Notice) -> tuple[object, ...]:
    status = f"{one.status}: {one.reason}" if one.reason else one.status
    return (
        dim(ago(one.at)),
        one.kind,
        status,
        one.target,
        one.tenant or dim("all"),
        one.url or "",
    )


@app.command("targets")
@remote_command
def targets(*, remote: Remote, tenant: TenantFlag = None, limit: LimitFlag = 50) -> None:
    """List the targets that get notices, newest first."""
    remote.list_items(
        lambda client: client.notice_targets(tenant=tenant),
        limit=limit,
        columns=(
            "id",
            "kind",
            "address",
            "name",
            "tenant",
            "notices",
            "quiet hours",
            "language",
            "state",
        ),
        row=_target_row,
        empty="There are no targets: nobody gets notices. "
        "`homing notices add email ops@example.com` adds one.",
    )


def _target_row(one: NoticeTarget) -> tuple[object, ...]:
    quiet = f"{one.quiet_hours} {one.time_zone}" if one.quiet_hours else dim("none")
    return (
        one.id,
        one.kind,
        one.address,
        one.name,
        one.tenant or "operator",
        " ".join(one.notices) or "all",
        quiet,
        one.language,
        _state(one),
    )


def _state(one: NoticeTarget) -> str:
    if one.failures:
        return f"failing: {one.error}"
    return "active" if one.confirmed_at else "not confirmed"


@app.command("add")
@remote_command
def add(
    kind: Annotated[Kind, typer.Argument(help="email, slack, teams or webhook.")],
    address: Annotated[
        str, typer.Argument(help="An e-mail address, or the URL of an incoming webhook.")
    ],
    *,
    remote: Remote,
    name: Annotated[str, typer.Option(help="A name for the target, shown in lists.")] = "",
    tenant: Annotated[
        str | None, typer.Option(help='Its tenant; default: the tenant of the key, else "default".')
    ] = None,
    operator: Annotated[
        bool,
        typer.Option(
            "--operator",
            help="For the operator: notices of all tenants, and of outages of the sender.",
        ),
    ] = False,
    only: OnlyFlag = None,
    quiet_hours: Annotated[
        str, typer.Option(help="Notices wait during these hours, like 22:00-07:00.")
    ] = "",
    time_zone: Annotated[
        str, typer.Option(help="The time zone of the quiet hours, like Europe/Berlin.")
    ] = "UTC",
    language: Annotated[
        Language, typer.Option(help="The language of the messages to the target.")
    ] = Language.EN,
) -> None:
    """Add a target that gets notices; an e-mail address of a tenant has to be confirmed."""
    chosen: list[NoticeName] = [it.value for it in only or ()]
    remote.show(
        lambda client: client.create_notice_target(
            kind.value,
            address,
            name=name,
            tenant=tenant,
            operator=operator,
            notices=chosen,
            quiet_hours=quiet_hours,
            time_zone=time_zone,
            language=language.value,
        ),
        _view_created,
    )


def _view_created(out: Console, made: NewNoticeTarget) -> None:
    out.print(f"Added: {plain(made.id)}")
    _view(out, made)
    _view_secret(out, made)
    if made.confirmed_at is None:
        out.print("An e-mail with a link is being sent: open the link to confirm the address.")


def _view_secret(out: Console, made: NewNoticeTarget) -> None:
    if made.secret:
        out.print(fields((("secret", made.secret),)))
        out.print("Keep the secret: it signs the notices, and is not shown again.", style="dim")


def _view(out: Console, one: NoticeTarget) -> None:
    out.print(
        fields(
            (
                ("kind", one.kind),
                ("address", one.address),
                ("name", one.name),
                ("tenant", one.tenant or "operator"),
                ("notices", " ".join(one.notices) or "all"),
                ("quiet hours", f"{one.quiet_hours} {one.time_zone}" if one.quiet_hours else ""),
                ("language", one.language),
                ("state", _state(one)),
                ("last sent", ago(one.sent_at)),
            )
        )
    )


@app.command("change")
@remote_command
def change(
    target: TargetArgument,
    *,
    remote: Remote,
    name: Annotated[str | None, typer.Option(help="A name for the target, shown in lists.")] = None,
    only: OnlyFlag = None,
    quiet_hours: Annotated[
        str | None,
        typer.Option(help="Notices wait during these hours; an empty value ends quiet hours."),
    ] = None,
    time_zone: Annotated[str | None, typer.Option(help="The time zone of these hours.")] = None,
    language: Annotated[
        Language | None, typer.Option(help="The language of the messages to the target.")
    ] = None,
) -> None:
    """Change the name, kinds of notices, quiet hours or language of a target."""
    chosen: list[NoticeName] | None = None
    if only is not None:
        chosen = [it.value for it in only]
    remote.show(
        lambda client: client.change_notice_target(
            target,
            name=name,
            notices=chosen,
            quiet_hours=quiet_hours,
            time_zone=time_zone,
            language=None if language is None else language.value,
        ),
        _view,
    )


@app.command("rotate-secret")
@remote_command
def rotate_secret(target: TargetArgument, *, remote: Remote) -> None:
    """Sign the notices to a webhook with a new secret from now on; the old one ends."""
    remote.show(lambda client: client.rotate_notice_target_secret(target), _view_secret)


@app.command("link")
@remote_command
def link(target: TargetArgument, *, remote: Remote) -> None:
    """Send the link that confirms an e-mail address again; at most one in five minutes."""
    remote.show(lambda client: client.send_notice_target_link(target), _view_link)


def _view_link(out: Console, one: NoticeTarget) -> None:
    out.print(
        f"An e-mail with a link is being sent to {plain(one.address)}: open the link to confirm."
    )


@app.command("test")
@remote_command
def test(target: TargetArgument, *, remote: Remote) -> None:
    """Send a test notice to a target now."""
    with remote.connect() as client:
        tested = client.test_notice_target(target)
    if not tested.arrived:
        raise Failed(f"The test notice did not arrive: {plain(tested.error)}.")
    remote.do(
        lambda _: None,
        document={"id": target, "arrived": True},
        sentence=f"The test notice to {plain(target)} arrived.",
    )


@app.command("remove")
@remote_command
def remove(target: TargetArgument, *, remote: Remote) -> None:
    """Remove a target; notices that wait for it are skipped."""
    remote.do(
        lambda client: client.delete_notice_target(target),
        document={"id": target, "removed": True},
        sentence=f"Removed {plain(target)}.",
    )
