"""How deep the data of an event may be nested: one limit for every way in.

What is within it is carried whole by all filters, schemas and formats.
"""

from __future__ import annotations

from homing.languages.sentences import say

LEVELS_MAX = 100
LEVELS_RULE = say(
    "must be nested at most {limit} levels deep: make it flatter, or send its deepest part as text",
    limit=LEVELS_MAX,
)
_NOT_BRACKETS = bytes(set(range(256)) - set(b'"[]{}'))
_TO_BITS = bytes.maketrans(b"[{]}", b"1100")
_BLOCK = 64  # brackets that are counted at once
_RISE = [2 * byte.bit_count() - 8 for byte in range(256)]  # of the level, within 8 brackets
_PEAK = [max(2 * (byte >> 8 - n).bit_count() - n for n in range(9)) for byte in range(256)]


def is_deep(data: bytes, levels_max: int = LEVELS_MAX) -> bool:
    """Whether data, which is JSON, has more levels than that.

    Most data has too few brackets for that. Nothing is decoded: data of a megabyte can have half a
    million arrays. Its brackets become bits (1 opens, 0 closes). Only where the count of 64 of them
    allows it is each of them looked at.
    """
    if len(data) <= 2 * levels_max or data.count(b"[") + data.count(b"{") <= levels_max:
        return False
    packed = _packed(data)
    level = 0
    for at, opens in enumerate(map(int.bit_count, memoryview(packed).cast("Q"))):
        if level + opens > levels_max:
            inner = level
            for byte in packed[8 * at : 8 * at + 8]:
                if inner + _PEAK[byte] > levels_max:
                    return True
                inner += _RISE[byte]
        level += 2 * opens - _BLOCK
    return False


def _packed(data: bytes) -> bytes:
    """The brackets of JSON outside its texts as bits, filled up with 0 to whole blocks."""
    if b"\\" in data:  # Afterwards every quote begins or ends a text.
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    bits = data.translate(_TO_BITS, _NOT_BRACKETS).replace(b'""', b"")
    if b'"' in bits:  # texts with brackets
        bits = b"".join(bits.split(b'"')[::2])
    bits += b"0" * (-len(bits) % _BLOCK)
    return int(bits, 2).to_bytes(len(bits) // 8, "big") if bits else b""
