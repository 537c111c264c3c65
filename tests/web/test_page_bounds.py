"""What a page reads and shows is bounded, whatever stands in an address, a form or an event."""

from __future__ import annotations

import pytest

from homing.web.dashboard.characters import NAMED_MAX, visible
from homing.web.dashboard.pages.deliveries import SHOWN_BYTES_MAX, SHOWN_DEPTH_MAX, pretty
from homing.web.dashboard.search import CHARS_MAX
from web.browse import Browser, text
from web.house import House, live


def test_data_that_is_deep_is_shown_as_it_is() -> None:
    nested = b"[" * SHOWN_DEPTH_MAX + b"]" * SHOWN_DEPTH_MAX
    assert pretty(nested).count("\n") > SHOWN_DEPTH_MAX
    deep = b"[" + (b"[" * 400 + b"]" * 400 + b",") * 80 + b"1]"
    assert len(deep) < SHOWN_BYTES_MAX
    assert pretty(deep) == deep.decode()
    wide = b"[" * 31 + b",".join([b"0"] * 30_000) + b"]" * 31
    assert pretty(wide) == wide.decode()
    assert pretty(b'{"a":[1]}') == '{\n  "a": [\n    1\n  ]\n}'


def test_a_page_is_not_much_larger_than_the_text_on_it() -> None:
    hidden = "\xad\u202e" * 16_384
    shown = visible(hidden)
    assert len(shown) < 4 * len(hidden.encode())
    assert shown.count("U+00AD") == shown.count("U+202E") == NAMED_MAX // 2
    assert not set(shown) & set(hidden)
    assert visible("&" + hidden)[:5] == "&amp;"


@pytest.mark.parametrize(
    "sample", ["[" * 99 + "0" + ",0" * 32_000 + "]" * 99, '["\xad' + "\xad" * 32_000 + '"]']
)
def test_the_page_of_a_sample_at_its_limits_is_small(sample: str) -> None:
    async def story(house: House) -> None:
        browser = Browser(house.app)
        await browser.sign_in()
        made = await browser.form("/event-types/new", "/event-types", name="a.b", sample=sample)
        assert made.status == 303, text(made)
        for page in ("/event-types/default/a.b", "/event-types/default/a.b/edit"):
            assert len((await browser.get(page)).body) < 600_000

    live(story)


def test_a_search_has_a_length() -> None:
    async def story(house: House) -> None:
        browser = Browser(house.app)
        await browser.sign_in()
        assert (await browser.get("/deliveries?q=" + "a" * CHARS_MAX)).status == 200
        got = await browser.get("/deliveries?q=" + "a" * (CHARS_MAX + 1))
        assert "must be at most 1,000 characters" in text(got)
        sent = {"q": "a" * 100_000, "done": "0"}
        assert (await browser.form("/subscriptions", "/bulk/cancel", **sent)).status == 422

    live(story)


def test_a_count_that_is_no_count_begins_again() -> None:
    async def story(house: House) -> None:
        browser = Browser(house.app)
        await browser.sign_in()
        for done in ("9" * 5_000, "²", "-1", "x"):
            got = await browser.form("/subscriptions", "/bulk/cancel", q="a", done=done)
            assert got.status == 303

    live(story)
