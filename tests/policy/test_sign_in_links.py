"""A sign-in link: signed with the admin key, and for a quarter of an hour."""

from __future__ import annotations

import pytest

from homing.policy.sign_in_links import LIFE_MS, make_link, read_link

KEY, NOW, NAME = "hk_admin", 1_790_000_000_000, "0123456789abcdef"


def test_a_link_is_read_until_it_is_too_old() -> None:
    link = make_link(KEY, name=NAME, wall=NOW).encode()
    assert read_link(link, KEY, wall=NOW) == NAME
    assert read_link(link, KEY, wall=NOW + LIFE_MS - 1) == NAME
    assert read_link(link, KEY, wall=NOW + LIFE_MS) is None


@pytest.mark.parametrize("at", [5, 20, 40, -1])
def test_a_link_with_another_character_is_refused(at: int) -> None:
    link = bytearray(make_link(KEY, name=NAME, wall=NOW).encode())
    link[at] = ord("7") if link[at] != ord("7") else ord("8")
    assert read_link(bytes(link), KEY, wall=NOW) is None


@pytest.mark.parametrize("text", [b"", b"hl_", b"hl_1_2_3", b"hl_" + b"9" * 5_000, b"\xff" * 40])
def test_other_text_is_no_link(text: bytes) -> None:
    assert read_link(text, KEY, wall=NOW) is None


def test_a_link_of_another_admin_key_or_of_the_far_future_is_refused() -> None:
    assert read_link(make_link("hk_x", name=NAME, wall=NOW).encode(), KEY, wall=NOW) is None
    later = make_link(KEY, name=NAME, wall=NOW + 10 * LIFE_MS).encode()
    assert read_link(later, KEY, wall=NOW) is None
