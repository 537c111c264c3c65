"""Why there is no response, as a value: a failure of the receiver or of the sender.

The difference matters: a failure of the receiver counts against its endpoint. A failure of the
sender (no route, no descriptors, no resolver) counts against no endpoint and is retried shortly.
"""

from __future__ import annotations

import errno
import os
import ssl

from msgspec import Struct

from homing.model import Failure


class Trouble(Struct, frozen=True):
    """A failure with one line for people."""

    failure: Failure
    detail: str


_BY_ERRNO = {
    errno.ECONNREFUSED: Failure.REFUSED,
    errno.ECONNRESET: Failure.RESET,
    errno.ECONNABORTED: Failure.RESET,
    errno.EPIPE: Failure.RESET,
    errno.ETIMEDOUT: Failure.TIMEOUT,
    errno.EHOSTUNREACH: Failure.UNREACHABLE,
    errno.EHOSTDOWN: Failure.UNREACHABLE,
    errno.ENETUNREACH: Failure.SENDER_NETWORK,
    errno.ENETDOWN: Failure.SENDER_NETWORK,
    errno.EAFNOSUPPORT: Failure.SENDER_NETWORK,
    errno.EACCES: Failure.SENDER_NETWORK,  # a packet filter of this machine
    errno.EPERM: Failure.SENDER_NETWORK,
    errno.EINVAL: Failure.SENDER_NETWORK,  # Linux, for a blackhole route
    errno.EMFILE: Failure.SENDER_LIMITS,
    errno.ENFILE: Failure.SENDER_LIMITS,
    errno.ENOMEM: Failure.SENDER_LIMITS,
    errno.ENOBUFS: Failure.SENDER_LIMITS,
    errno.EADDRNOTAVAIL: Failure.SENDER_LIMITS,  # no free local port
    errno.EADDRINUSE: Failure.SENDER_LIMITS,
}


def of_error(error: BaseException) -> Trouble:
    """The failure of a network exception; any other exception is a fault of the sender."""
    match error:
        case ssl.SSLCertVerificationError():
            why = getattr(error, "verify_message", "it does not fit the name")
            return Trouble(Failure.TLS, f"certificate refused: {why}")
        case ssl.SSLError():
            reason = getattr(error, "reason", None) or type(error).__name__  # Python's have none
            reason = reason.lower().replace("_", " ")
            return Trouble(Failure.TLS, f"TLS failed: {reason}")
        case OSError() if error.errno in _BY_ERRNO:
            return Trouble(_BY_ERRNO[error.errno], os.strerror(error.errno).lower())
        case ConnectionError():  # asyncio raises these without an errno
            return Trouble(Failure.RESET, "connection reset by peer")
        case MemoryError():
            return Trouble(Failure.SENDER_LIMITS, "out of memory")
        case _:
            # Only the type: the text of an unexpected error could hold a part of a request.
            return Trouble(Failure.SENDER_FAULT, f"unexpected {type(error).__name__} in the sender")
