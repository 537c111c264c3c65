"""Forms are read as browsers write them, and as the standard library reads them."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.errors import BadRequest, Invalid
from homing.policy.text import is_storable
from homing.web.dashboard.forms import FIELDS_MAX, read_form
from web.browse import Browser
from web.house import House, live

NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


@given(st.dictionaries(NAMES, st.text("é%=&+\r\n a")))
def test_what_a_browser_writes_is_read(fields: dict[str, str]) -> None:
    assert read_form(urlencode(fields).encode()) == fields


@given(st.text("%=&+;aF0é\n\r\t_-", max_size=30))
def test_anything_is_read_as_the_standard_library_reads_it(text: str) -> None:
    expected = dict(parse_qsl(text, keep_blank_values=True, errors="surrogateescape"))
    if all(map(is_storable, (*expected, *expected.values()))):
        assert read_form(text.encode()) == expected
    else:
        with pytest.raises(Invalid):
            read_form(text.encode())


def test_a_form_has_a_number_of_fields() -> None:
    assert len(read_form(b"&".join(b"%d=x" % n for n in range(FIELDS_MAX)))) == FIELDS_MAX
    with pytest.raises(BadRequest, match="at most 200 fields"):
        read_form(b"&" * FIELDS_MAX)


def test_a_form_of_percent_signs_is_refused() -> None:
    assert read_form(b"a=" + b"%" * 999) == {"a": "%" * 999}
    with pytest.raises(BadRequest, match="write % as %25"):
        read_form(b"a=" + b"%" * 100_000)


def test_a_visitor_who_is_not_signed_in_sends_little() -> None:
    async def story(house: House) -> None:
        browser = Browser(house.app)
        assert (await browser.send("/sign-in", key="x" * 16_000)).status == 401
        got = await browser.send("/sign-in", key="x" * 17_000)
        assert got.status == 413
        assert b"at most 16 KiB" in got.body
        await browser.sign_in()
        many = {f"f{n}": "x" for n in range(2 * FIELDS_MAX)}
        assert (await browser.form("/subscriptions", "/subscriptions", **many)).status == 400

    live(story)
