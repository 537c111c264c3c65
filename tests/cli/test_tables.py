"""Tables of the command line: in a narrow terminal URLs are shortened and every column stays."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from homing.cli.output import add_row, fit, shortened, table

URL = "https://receiver.customer-with-a-long-name.example/hooks/v2/orders/incoming/eu-north"


def printed(width: int | None, url: str = URL) -> list[str]:
    made = table("id", "state", "attempts", "tenant", "url", "next probe", right=("attempts",))
    add_row(made, "ep_38fcfdmve0002", "disabled", "12,345", "acme", url, "in 9 min")
    needed = fit(made, width)
    out = io.StringIO()
    Console(file=out, width=max(needed, width or 0), color_system=None).print(made, crop=False)
    return [line.rstrip() for line in out.getvalue().splitlines()]


@pytest.mark.parametrize("width", [80, 100, 120])
def test_a_table_fits_and_keeps_every_column(width: int) -> None:
    head, row = printed(width)
    assert len(row) <= width
    assert head.split() == ["id", "state", "attempts", "tenant", "url", "next", "probe"]
    for text in ("ep_38fcfdmve0002", "disabled", "12,345", "acme", "https://", "…", "in 9 min"):
        assert text in row


def test_a_table_that_cannot_fit_is_wider_and_loses_nothing() -> None:
    _, row = printed(40)
    for text in ("ep_38fcfdmve0002", "disabled", "12,345", "acme", "in 9 min"):
        assert text in row


def test_nothing_is_shortened_for_a_program() -> None:
    assert URL in printed(None)[1]


def test_the_middle_of_a_url_is_left_out() -> None:
    assert shortened("https://a.example/hooks/orders", 20) == "https://a.exa…orders"
    assert len(shortened("注文" * 20, 11)) <= 11
    assert shortened("short", 20) == "short"
