"""The UUIDs of the Workfront-compatible API: made from ids, and nothing else is one of them."""

from __future__ import annotations

from uuid import RFC_4122, UUID, uuid4

from hypothesis import given
from hypothesis import strategies as st

from homing.model import show_id
from homing.policy.workfront_ids import read_either_id, read_uuid, show_uuid

IDS = st.integers(0, (1 << 63) - 1)


@given(IDS)
def test_a_uuid_leads_back_to_its_id(number: int) -> None:
    shown = show_uuid(number)
    assert (UUID(shown).version, UUID(shown).variant) == (8, RFC_4122)
    assert read_uuid(shown) == read_uuid(shown.upper()) == number
    assert read_either_id("sub", shown) == read_either_id("sub", show_id("sub", number)) == number
    assert read_either_id("ep", shown) is None


@given(IDS, st.integers(0, 127))
def test_one_other_bit_makes_it_unknown(number: int, bit: int) -> None:
    other = UUID(int=UUID(show_uuid(number)).int ^ 1 << bit)
    assert read_uuid(str(other)) is None


def test_the_uuid_of_an_id_never_changes() -> None:
    assert show_uuid(0x1234_5678_9ABC_DEF0) == "2468acf1-3579-8d3b-bd63-4dbce9615ef0"


def test_other_texts_are_no_uuid() -> None:
    shown = show_uuid(7)
    for text in ("", "7", shown[:-1], shown + "0", "{" + shown + "}", shown.replace("-", "")):
        assert read_uuid(text) is None
    assert all(read_uuid(str(uuid4())) is None for _ in range(100))
