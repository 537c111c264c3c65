"""The nginx and the HAProxy example: an event is published through each, with TLS."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from acceptance.running import KEY, Receiver, Server
from deploy.programs import DEPLOY, find, listening, needs, output_of, started
from net.receiver import a_free_port

NAME = "homing.example.com"


def certificate(folder: Path) -> Path:
    """A key and its certificate in one file."""
    key, file = folder / "key.pem", folder / "certificate.pem"
    subject = ("-subj", f"/CN={NAME}", "-addext", f"subjectAltName=DNS:{NAME}")
    output_of("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
              "-nodes", "-days", "2", *subject, "-keyout", key, "-out", file)  # fmt: skip
    file.write_text(file.read_text() + key.read_text())
    return file


def adapted(text: str, *, port: int, server: int, other: int, pem: Path) -> str:
    """The example with this machine's ports and certificate."""
    text = text.replace("10.0.0.11:8700", f"127.0.0.1:{server}")
    text = text.replace("10.0.0.12:8700", f"127.0.0.1:{other}")
    return re.sub(r"/etc/ssl/\S+?\.(?:pem|key)\b", str(pem), text).replace("443 ", f"{port} ")


def nginx(folder: Path, example: str) -> tuple[list[str | Path], list[str | Path]]:
    """The commands that check the example and that run it."""
    (folder / "homing.conf").write_text(example)
    whole = folder / "nginx.conf"
    places = "".join(
        f"    {it}_temp_path {folder}/{it};\n"
        for it in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    whole.write_text(
        f"pid {folder}/nginx.pid;\nerror_log stderr;\ndaemon off;\nmaster_process off;\n"
        f"events {{}}\nhttp {{\n    access_log off;\n{places}"
        f"    include {folder}/homing.conf;\n}}\n"
    )
    command: list[str | Path] = ["nginx", "-p", folder, "-c", whole, "-e", "stderr"]
    return [*command, "-t"], command


def haproxy(folder: Path, example: str) -> tuple[list[str | Path], list[str | Path]]:
    file = folder / "haproxy.cfg"
    # Its default number of connections needs more descriptors than some machines give.
    file.write_text(example.replace("maxconn 20000", "maxconn 100"))
    return ["haproxy", "-c", "-f", file], ["haproxy", "-db", "-f", file]


async def ask(port: int, pem: Path, method: str, path: str, body: bytes = b"") -> bytes:
    trust = ssl.create_default_context(cafile=str(pem))
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=trust, server_hostname=NAME
    )
    head = (
        f"{method} {path} HTTP/1.1\r\nhost: {NAME}\r\nauthorization: Bearer {KEY}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
        "connection: close\r\n\r\n"
    )
    writer.write(head.encode() + body)
    response = await reader.read()
    writer.close()
    return response


@pytest.mark.parametrize(
    ("file", "commands"),
    [
        pytest.param("nginx/homing.conf", nginx, marks=needs("nginx", "openssl")),
        pytest.param("haproxy/haproxy.cfg", haproxy, marks=needs("haproxy", "openssl")),
    ],
)
async def test_events_are_published_through_it(
    file: str,
    commands: Callable[[Path, str], tuple[list[str | Path], list[str | Path]]],
    tmp_path: Path,
) -> None:
    server = Server(tmp_path / "data", options=("--allow-loopback", "--hosts", NAME))
    port, pem, log = a_free_port(), certificate(tmp_path), tmp_path / "log"
    example = adapted(
        (DEPLOY / file).read_text(), port=port, server=server.port, other=a_free_port(), pem=pem
    )
    check, run = commands(tmp_path, example)
    output_of(*check)
    assert find(str(run[0])) is not None
    await server.start()
    async with (
        asyncio.timeout(120),
        Receiver(tmp_path / "seen").listening() as receiver,
        started(*run, log=log) as proxy,
    ):
        await listening(port, proxy, log)
        body = b'{"url": "%s", "types": ["*"]}' % receiver.url.encode()
        # The second server of the example is not there; HAProxy first has to find that out.
        while b"200" not in (await ask(port, pem, "GET", "/readyz")).partition(b"\r\n")[0]:
            await asyncio.sleep(0.05)
        assert b" 201" in (await ask(port, pem, "POST", "/v1/subscriptions", body))[:20]
        for number in range(10):
            event = b'{"type": "a.b", "id": "event-%d", "data": {}}' % number
            assert b" 202" in (await ask(port, pem, "POST", "/v1/events", event))[:20]
        while len(receiver.arrivals) < 10:
            await asyncio.sleep(0.02)
        assert b" 404" in (await ask(port, pem, "GET", "/metrics"))[:20]
        assert b" 200" in (await ask(port, pem, "GET", "/sign-in"))[:20]
    assert await server.terminate() == 0
