"""A connection on asyncio: bytes out, an answer in, all of it before a moment."""

from __future__ import annotations

import asyncio
import contextlib
import ssl

from homing.client.errors import NotTrusted, TimedOut, Unreachable
from homing.client.http1 import Answer, AnswerReader, Site
from homing.client.pace import monotonic

READ_BYTES = 64 * 1024


class StreamLine:
    """One connection; one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._loop = asyncio.get_running_loop()
        self.keep = False  # whether another request may follow

    @classmethod
    async def open(cls, site: Site, context: ssl.SSLContext | None, *, until: float) -> StreamLine:
        """Raises TimedOut, Unreachable or NotTrusted; nothing has been sent then."""
        try:
            async with asyncio.timeout(until - monotonic()):
                streams = await asyncio.open_connection(site.host, site.port, ssl=context)
        except ssl.SSLCertVerificationError as error:
            raise NotTrusted(error.verify_message) from error
        except TimeoutError as error:
            raise TimedOut("It did not take the connection.", maybe_done=False) from error
        except OSError as error:
            raise Unreachable(f"{error}.", maybe_done=False) from error
        return cls(*streams)

    async def ask(self, request: bytes, *, until: float) -> Answer:
        """Raises TimedOut, Unreachable or BadAnswer."""
        reader = AnswerReader()
        try:
            async with asyncio.timeout(until - monotonic()):
                # Not drained: the request is in memory anyway, and an answer may come before
                # its end (too large, say) that a failed drain would hide.
                self._writer.write(request)
                while reader.answer is None:
                    reader.feed(await self._reader.read(READ_BYTES))
        except TimeoutError as error:
            raise TimedOut(maybe_done=True) from error
        except EOFError as error:
            raise Unreachable("The connection ended early.", maybe_done=True) from error
        except OSError as error:
            raise Unreachable(f"{error}.", maybe_done=True) from error
        self.keep = reader.keep
        return reader.answer

    def stale(self) -> bool:
        """It has ended, or it belongs to another event loop."""
        return self._loop is not asyncio.get_running_loop() or self._reader.at_eof()

    def close(self) -> None:
        with contextlib.suppress(RuntimeError):  # Its loop is closed, and it with it.
            self._writer.close()
