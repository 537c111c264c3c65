"""E-mail through a real SMTP server: STARTTLS, authentication, refusals, a server that hangs."""

from __future__ import annotations

import asyncio
import email
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email import policy
from email.message import EmailMessage, Message
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, LoginPassword
from msgspec.structs import replace

from homing.net.mail import SmtpMailer, SmtpOptions
from homing.ports import Mail
from net.certificates import Authority

MAIL = Mail(
    to="ops@a.example",
    subject="Homing: 0.example is frozen — é",
    text="Line one.\n\nhttps://homing.example/endpoints/ep_0\n" + "x" * 2_000,
    message_id="msg_0@homing.example",
    at=1_800_000_000_000,
)
USER, PASSWORD = "homing", "a secret password"


class Inbox:
    """Keeps what it gets; ``reply`` is the answer to the content."""

    def __init__(self, reply: str = "250 OK") -> None:
        self.reply = reply
        self.mails: list[Message] = []
        self.raw: list[bytes] = []
        self.tls: list[bool] = []

    async def handle_DATA(self, _server: Any, session: Any, envelope: Any) -> str:  # noqa: N802
        self.raw.append(envelope.content)
        self.mails.append(email.message_from_bytes(envelope.content))
        self.tls.append(session.ssl is not None)
        return self.reply

    async def handle_RCPT(  # noqa: N802
        self, _server: Any, _session: Any, envelope: Any, address: str, _options: Any
    ) -> str:
        if address.startswith("nobody"):
            return "550 no such mailbox here"
        envelope.rcpt_tos.append(address)
        return "250 OK"


def authenticate(_server: Any, _session: Any, _envelope: Any, _how: str, data: Any) -> AuthResult:
    right = isinstance(data, LoginPassword) and data.password == PASSWORD.encode()
    return AuthResult(success=right and data.login == USER.encode(), handled=False)


@contextmanager
def serving(inbox: Inbox, context: ssl.SSLContext | None = None) -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    needs: dict[str, Any] = {
        "require_starttls": True,
        "auth_required": True,
        "authenticator": authenticate,
    }
    server = Controller(
        inbox,
        hostname="127.0.0.1",
        port=port,
        **({"tls_context": context, **needs} if context else {}),
    )
    server.start()
    try:
        yield port
    finally:
        server.stop()


def send(port: int, mail: Mail = MAIL, *, deadline_s: float = 30, **more: Any) -> str:
    values = {"security": "starttls", "user": USER, "password": PASSWORD} | more
    options = SmtpOptions(host="127.0.0.1", port=port, sender="homing@homing.example", **values)

    async def once() -> str:
        mailer = SmtpMailer(options, deadline_s=deadline_s)
        try:
            return await mailer.send(mail)
        finally:
            await mailer.close()

    assert PASSWORD not in repr(options)
    return asyncio.run(once())


def test_an_email_arrives_encrypted_and_authenticated(tmp_path: Path) -> None:
    authority, inbox = Authority(tmp_path), Inbox()
    with serving(inbox, authority.server("127.0.0.1")) as port:
        assert send(port, ca_file=str(authority.ca_file)) == ""
    (mail,) = inbox.mails
    assert inbox.tls == [True]
    assert mail["Message-ID"] == "<msg_0@homing.example>"
    assert mail["From"] == "Homing <homing@homing.example>"
    assert mail["To"] == "ops@a.example"
    assert mail["Auto-Submitted"] == "auto-generated"
    assert mail["Date"] == "Fri, 15 Jan 2027 08:00:00 -0000"
    assert mail["Content-Language"] == "en"
    text = mail.get_payload(decode=True)
    assert isinstance(text, bytes)
    assert text.decode().replace("\r\n", "\n") == MAIL.text + "\n" * (not MAIL.text.endswith("\n"))


JAPANESE = (
    "Homing：shop.example への配信が停止しました",
    "Homing：1,207 件の変更（1,200 件が無効、7 件が回復）" + "、3 件が凍結" * 20,
    "Homing: " + "a-long-name-of-a-host." * 6 + "example への配信が停止しました (x) [y]",
    "停止" * 300,
)


@pytest.mark.parametrize("subject", JAPANESE)
def test_an_email_in_japanese_arrives_as_it_was_written(subject: str) -> None:
    """Headers are ASCII on the way: a server need not support anything else."""
    text = "shop.example への配信が停止しました。\n\n詳細：https://homing.example/endpoints/ep_0\n"
    mail = replace(MAIL, subject=subject, text=text, language="ja")
    inbox = Inbox()
    with serving(inbox) as port:
        assert send(port, mail, security="none", user="", password="") == ""
    (raw,) = inbox.raw
    head = raw.partition(b"\r\n\r\n")[0]
    assert head.isascii()
    assert max(len(line) for line in raw.split(b"\r\n")) <= 998
    got = email.message_from_bytes(raw, policy=policy.default)
    assert isinstance(got, EmailMessage)
    assert got["Subject"] == subject
    assert got["Content-Language"] == "ja"
    assert got["To"] == "ops@a.example"
    assert got.get_content().replace("\r\n", "\n") == text


def test_a_wrong_password_is_an_answer_without_the_password(tmp_path: Path) -> None:
    authority, inbox = Authority(tmp_path), Inbox()
    with serving(inbox, authority.server("127.0.0.1")) as port:
        said = send(port, ca_file=str(authority.ca_file), password="wrong-and-secret")
    assert said == "the SMTP server refused the user name or the password (535)"
    assert "wrong-and-secret" not in said
    assert inbox.mails == []


def test_a_certificate_that_is_not_trusted_or_of_another_name_is_refused(tmp_path: Path) -> None:
    authority, inbox = Authority(tmp_path), Inbox()
    with serving(inbox, authority.server("127.0.0.1")) as port:
        assert "CERTIFICATE_VERIFY_FAILED" in send(port)
    with serving(inbox, authority.server("other.example")) as port:
        assert "CERTIFICATE_VERIFY_FAILED" in send(port, ca_file=str(authority.ca_file))
    assert inbox.mails == []


def test_a_server_without_starttls_gets_nothing() -> None:
    inbox = Inbox()
    with serving(inbox) as port:
        assert "STARTTLS" in send(port)
    assert inbox.mails == []


def test_a_refused_address_and_a_busy_server_are_answers() -> None:
    inbox = Inbox("451 try again later")
    with serving(inbox) as port:
        plain: dict[str, Any] = {"security": "none", "user": ""}
        nobody = Mail("nobody@a.example", "s", "t", "m@x", 0)
        assert send(port, nobody, **plain) == (
            "the SMTP server refused the address: 550 no such mailbox here"
        )
        assert send(port, **plain) == "the SMTP server responded with 451 try again later"


def test_nothing_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    assert "ConnectionRefusedError" in send(port)


def test_a_subject_with_a_line_break_is_not_sent() -> None:
    inbox = Inbox()
    forged = Mail("ops@a.example", "x\r\nBcc: all@a.example", "t", "m@x", 0)
    with serving(inbox) as port:
        assert "ValueError" in send(port, forged, security="none", user="")
    assert inbox.mails == []


@pytest.mark.parametrize("drips", [False, True], ids=["silent", "drips"])
def test_a_server_that_hangs_is_left_at_the_deadline(drips: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = int(listener.getsockname()[1])
        stop = threading.Event()

        def hang() -> None:
            connection, _ = listener.accept()
            with connection:
                while not stop.wait(0.05):
                    if drips:
                        try:
                            connection.sendall(b"2")
                        except OSError:
                            return

        thread = threading.Thread(target=hang)
        thread.start()
        assert "the SMTP server did not respond" in send(port, deadline_s=0.5)
        stop.set()
        thread.join()


def test_a_connection_made_after_the_deadline_sends_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inbox, late, connect = Inbox(), threading.Event(), socket.create_connection

    def connect_late(*args: Any, **more: Any) -> socket.socket:
        late.wait()
        return connect(*args, **more)

    with serving(inbox) as port:
        monkeypatch.setattr(socket, "create_connection", connect_late)
        said = send(port, security="none", user="", deadline_s=0.1)
        assert said == "the SMTP server did not respond within 0.1 s"
        late.set()
        for thread in threading.enumerate():
            if thread.name.startswith("mail"):
                thread.join()
        monkeypatch.undo()
    assert inbox.mails == []
