"""E-mail through the operator's SMTP server, with the standard library in a few threads.

``smtplib`` blocks, so it has threads of its own; a server that hangs delays nothing but e-mail.
Each operation on the connection has a timeout, and the whole exchange has a deadline, after which
the event loop shuts the connection down, so that the thread ends. A package for asyncio would need
no threads, but would be one more dependency for a handful of e-mails a minute.
"""

from __future__ import annotations

import asyncio
import contextlib
import smtplib
import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from email.headerregistry import Address
from email.message import EmailMessage
from email.utils import formatdate
from typing import Literal

from msgspec import Struct

from homing.languages.sentences import say
from homing.ports import Mail

THREADS = 4
STEP_S = 10.0  # for one operation on the connection
DEADLINE_S = 30.0  # for one e-mail
ERROR_CHARS_MAX = 300


class SmtpOptions(Struct, frozen=True):
    """The operator's SMTP server."""

    host: str
    port: int = 587
    security: Literal["starttls", "tls", "none"] = "starttls"
    user: str = ""
    password: str = ""
    sender: str = ""  # the address in From
    ca_file: str | None = None

    def __repr__(self) -> str:
        return f"SmtpOptions({self.host}:{self.port}, ****)"


class SmtpMailer:
    """``Mailer`` on an SMTP server; each e-mail has a connection of its own."""

    def __init__(self, options: SmtpOptions, *, deadline_s: float = DEADLINE_S) -> None:
        self._options, self._deadline_s = options, deadline_s
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="mail")

    async def send(self, mail: Mail) -> str:
        """Empty if the server accepted the e-mail, otherwise the reason."""
        exchange = _Exchange(self._options, mail, step_s=min(STEP_S, self._deadline_s))
        loop = asyncio.get_running_loop()
        sending = loop.run_in_executor(self._threads, exchange.run)
        try:
            async with asyncio.timeout(self._deadline_s):
                return await asyncio.shield(sending)
        except TimeoutError:
            exchange.abort()
            return say(
                "the SMTP server did not respond within {seconds} s",
                seconds=f"{self._deadline_s:g}",
            )
        except asyncio.CancelledError:
            exchange.abort()
            raise

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


class _Exchange:
    """One e-mail on one connection, in a thread."""

    def __init__(self, options: SmtpOptions, mail: Mail, *, step_s: float) -> None:
        self._options, self._mail, self._step_s = options, mail, step_s
        self._server: smtplib.SMTP | None = None
        self._aborted = False

    def abort(self) -> None:
        """Make the next operation of the thread fail: the deadline has passed."""
        self._aborted = True
        found = None if self._server is None else self._server.sock
        if found is not None:
            with contextlib.suppress(OSError):
                found.shutdown(socket.SHUT_RDWR)

    def run(self) -> str:
        if self._aborted:  # It waited for a thread until its deadline.
            return say("all threads for e-mail were busy")
        try:
            self._talk()
        except smtplib.SMTPRecipientsRefused as error:
            (code, text) = next(iter(error.recipients.values()))
            reply = _short(f"{code} {_text(text)}")
            return say("the SMTP server refused the address: {reply}", reply=reply)
        except smtplib.SMTPAuthenticationError as error:  # Its reply could quote the password.
            return say(
                "the SMTP server refused the user name or the password ({code})",
                code=str(error.smtp_code),
            )
        except smtplib.SMTPResponseException as error:
            reply = _short(f"{error.smtp_code} {_text(error.smtp_error)}")
            return say("the SMTP server responded with {reply}", reply=reply)
        except (smtplib.SMTPException, OSError, ValueError) as error:
            reason = _short(f"{type(error).__name__}: {error}")
            return say("the SMTP server failed: {reason}", reason=reason)
        return ""

    def _talk(self) -> None:
        it = self._options
        context = ssl.create_default_context(cafile=it.ca_file)
        # Without a host the constructor does not connect, so ``abort`` knows the connection early.
        if it.security == "tls":
            server: smtplib.SMTP = smtplib.SMTP_SSL(timeout=self._step_s, context=context)
        else:
            server = smtplib.SMTP(timeout=self._step_s)
        self._server = server
        server._host = it.host  # type: ignore[attr-defined]  # to check the certificate's name
        try:
            server.connect(it.host, it.port)
            if self._aborted:  # While there was no connection yet, nothing could be shut down.
                raise TimeoutError("the deadline has passed")
            if it.security == "starttls":
                server.starttls(context=context)  # Raises if the server does not offer it.
            if it.user:
                server.login(it.user, it.password)
            server.send_message(_message(self._mail, it.sender))
            with contextlib.suppress(smtplib.SMTPException, OSError):
                server.quit()  # The server has accepted the e-mail, whatever happens now.
        finally:
            server.close()


def _message(mail: Mail, sender: str) -> EmailMessage:
    message = EmailMessage()
    message["Message-ID"] = f"<{mail.message_id}>"
    message["Date"] = formatdate(mail.at / 1000)
    message["From"] = Address("Homing", addr_spec=sender)
    message["To"] = mail.to
    message["Subject"] = mail.subject
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(mail.text)
    message["Content-Language"] = mail.language  # after the content, which replaces such headers
    return message


def _text(reply: bytes | str) -> str:
    return reply.decode("utf-8", "replace") if isinstance(reply, bytes) else reply


def _short(text: str) -> str:
    """The text in one line, cut to ERROR_CHARS_MAX."""
    return " ".join(text.split())[:ERROR_CHARS_MAX]
