"""Arrays of events: decoded only up to the limit of a batch, and cut into their items."""

from __future__ import annotations

import msgspec
from msgspec import Raw, Struct, defstruct
from msgspec.json import Decoder
from msgspec.structs import astuple

from homing.errors import BadRequest, FieldProblem, Invalid, TooLarge
from homing.policy.admission import BATCH_EVENTS_MAX
from homing.policy.nesting import LEVELS_RULE

TOO_MANY = f"A batch may have at most {BATCH_EVENTS_MAX:,} events."


def batch_of(kind: type) -> Decoder[Struct]:
    """A decoder for an array that stops at the first item beyond the limit of a batch."""
    fields = [(f"item_{index}", kind, None) for index in range(BATCH_EVENTS_MAX)]
    batch = defstruct("Batch", fields, array_like=True, forbid_unknown_fields=True)
    return Decoder(batch)


_items = batch_of(Raw)


def cut(body: bytes) -> list[Raw]:
    """The items of an array as bytes; raises TooLarge, BadRequest or Invalid."""
    try:
        return [item for item in astuple(_items.decode(body)) if item is not None]
    except msgspec.ValidationError:
        raise TooLarge(TOO_MANY) from None
    except msgspec.DecodeError as error:
        raise BadRequest(f"The body is not JSON: {error}.") from None
    except RecursionError:
        raise Invalid(problems=(FieldProblem("events", LEVELS_RULE),)) from None
