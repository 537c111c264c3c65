"""The customer portal's rules: tokens, the states of a link, origins, logos, readable colours."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from homing.policy.keys import Role
from homing.policy.portal import (
    CONTRAST_MIN,
    LOGO_BYTES_MAX,
    ORIGINS_MAX,
    LinkDraft,
    LinkState,
    PortalDraft,
    PortalLink,
    Use,
    check_link,
    check_logo,
    check_settings,
    contrast,
    hash_of,
    ink_on,
    origin_problem,
    palette,
    read_token,
    write_token,
)

KEY, SECRET = b"k" * 32, b"s" * 32
PNG = b"\x89PNG\r\n\x1a\n" + bytes(8)
LINK = PortalLink(
    id=7,
    tenant="acme",
    role=Role.VIEWER,
    subject="ada",
    hash=b"h",
    made_by="n",
    key_id=None,
    created_at=0,
    opens_until=100,
    session_ms=1_000,
)


# --- tokens ---------------------------------------------------------------------------------


def test_a_token_names_its_link_and_has_the_hash_of_its_secret() -> None:
    found = read_token(KEY, Use.LINK, write_token(KEY, Use.LINK, 7, SECRET))
    assert found is not None
    assert (found.link_id, found.hash) == (7, hash_of(SECRET))
    assert found.fits(hash_of(SECRET))
    assert not found.fits(hash_of(b"other"))
    assert not found.fits(None)


def test_a_token_of_another_installation_or_for_another_use_is_refused() -> None:
    token = write_token(KEY, Use.LINK, 7, SECRET)
    assert read_token(b"other", Use.LINK, token) is None
    assert read_token(KEY, Use.SESSION, token) is None


@given(st.data())
def test_a_token_with_any_other_character_is_refused(data: st.DataObject) -> None:
    token = write_token(KEY, Use.LINK, 7, SECRET)
    at = data.draw(st.integers(0, len(token) - 1))
    other = data.draw(st.characters())
    if other != token[at]:
        assert read_token(KEY, Use.LINK, token[:at] + other + token[at + 1 :]) is None


@given(st.text())
def test_any_text_that_is_no_token_is_refused(text: str) -> None:
    assert read_token(KEY, Use.LINK, text) is None


# --- links ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "now", "state"),
    [
        ({}, 99, LinkState.WAITING),
        ({}, 100, LinkState.EXPIRED),
        ({"opened_at": 50, "session_until": 1_050}, 1_049, LinkState.OPEN),
        ({"opened_at": 50, "session_until": 1_050}, 1_050, LinkState.ENDED),
        ({"revoked_at": 10}, 50, LinkState.REVOKED),
        ({"opened_at": 50, "session_until": 1_050, "revoked_at": 60}, 70, LinkState.REVOKED),
    ],
)
def test_the_state_of_a_link(changes: dict[str, Any], now: int, state: LinkState) -> None:
    assert replace(LINK, **changes).state(now) is state


def test_a_link_waits_a_quarter_of_an_hour_and_its_session_lasts_eight_hours() -> None:
    terms, problems = check_link(LinkDraft())
    assert not problems
    assert terms is not None
    assert (terms.role, terms.open_within_ms, terms.session_ms) == (
        Role.VIEWER,
        900_000,
        28_800_000,
    )


@pytest.mark.parametrize(
    ("draft", "field"),
    [
        (LinkDraft("admin"), "role"),
        (LinkDraft("publisher"), "role"),
        (LinkDraft("metrics"), "role"),
        (LinkDraft(subject="x" * 101), "subject"),
        (LinkDraft(subject="a\nb"), "subject"),
        (LinkDraft(open_within="25h"), "open_within"),
        (LinkDraft(open_within="soon"), "open_within"),
        (LinkDraft(open_within="0s"), "open_within"),
        (LinkDraft(session="2d"), "session"),
    ],
)
def test_a_wrong_term_is_named(draft: LinkDraft, field: str) -> None:
    terms, problems = check_link(draft)
    assert terms is None
    assert [it.field for it in problems] == [field]


# --- framing sites --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "origin",
    [
        "https://app.example.com",
        "https://a.example:8443",
        "http://localhost:3000",
        "https://10.0.0.1",
    ],
)
def test_an_origin_may_frame_the_portal(origin: str) -> None:
    assert origin_problem(origin) == ""


@pytest.mark.parametrize(
    "origin",
    [
        "*",
        "https://*.example.com",
        "https:",
        "http://app.example.com",
        "https://app.example.com/path",
        "https://app.example.com; script-src *",
        "https://a.example 'self'",
        "https://a.example:0",
        "https://a.example:99999",
        "https://user@a.example",
        "'self'",
        "data:",
        "",
    ],
)
def test_anything_else_is_refused(origin: str) -> None:
    assert origin_problem(origin) != ""


@given(st.text(max_size=80))
def test_no_text_can_add_to_the_policy(text: str) -> None:
    if origin_problem(text) == "":
        assert not set(text) & set(" ;,'\"*\r\n\t")


def test_origins_are_kept_once_in_their_normal_form_and_their_number_is_bounded() -> None:
    given_ = ("https://A.example/", "https://a.example")
    checked, problems = check_settings(PortalDraft(frame_ancestors=given_))
    assert not problems
    assert checked.frame_ancestors == ("https://a.example",)
    _, problems = check_settings(PortalDraft(frame_ancestors=("https://\u212ab.example",)))
    assert [it.field for it in problems] == ["frame_ancestors[0]"]
    many = tuple(f"https://a{n}.example" for n in range(ORIGINS_MAX + 1))
    _, problems = check_settings(PortalDraft(frame_ancestors=many))
    assert [it.field for it in problems] == ["frame_ancestors"]


# --- logos ----------------------------------------------------------------------------------


def data_url(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("image/png", PNG),
        ("image/jpeg", b"\xff\xd8\xff\xe0"),
        ("image/gif", b"GIF89a"),
        ("image/webp", b"RIFF\0\0\0\0WEBP"),
    ],
)
def test_a_picture_is_taken_as_it_is(kind: str, content: bytes) -> None:
    logo, problem = check_logo(data_url(kind, content))
    assert problem == ""
    assert logo is not None
    assert (logo.type, logo.content) == (kind, content)


@pytest.mark.parametrize(
    "url",
    [
        data_url("image/svg+xml", b"<svg onload='alert(1)'/>"),
        data_url("text/html", b"<script>"),
        data_url("image/png", b"<html><script>alert(1)</script>"),
        data_url("image/jpeg", PNG),
        data_url("image/webp", b"RIFF\0\0\0\0AVI "),
        data_url("image/png", PNG + bytes(LOGO_BYTES_MAX)),
        "data:image/png;base64,%%%",
        "data:image/png;base64,abc",
        "https://elsewhere.example/logo.png",
        "",
    ],
)
def test_anything_that_is_no_small_picture_is_refused(url: str) -> None:
    logo, problem = check_logo(url)
    assert logo is None
    assert problem


# --- colours --------------------------------------------------------------------------------

colors = st.integers(0, 0xFFFFFF).map(lambda it: f"#{it:06x}")


@given(colors)
def test_every_colour_becomes_one_that_can_be_read(color: str) -> None:
    for dark, backgrounds in (
        (False, ("#ffffff", "#f6f6f3", "#efeeea")),
        (True, ("#1b1e22", "#131518", "#16181b")),
    ):
        found = palette(color, dark=dark)
        for background in (*backgrounds, found.soft):
            assert contrast(found.accent, background) >= CONTRAST_MIN
        assert contrast(found.ink, found.accent) >= CONTRAST_MIN


@given(colors)
def test_text_on_any_header_can_be_read(color: str) -> None:
    assert contrast(ink_on(color), color) >= CONTRAST_MIN


def test_a_colour_that_can_be_read_stays_as_it_is() -> None:
    assert palette("#2b50c8", dark=False).accent == "#2b50c8"
