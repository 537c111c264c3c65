"""The nginx example of the how-to page, with a real nginx and a server that signs people in."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from acceptance.running import Server
from net.receiver import a_free_port

PAGE = Path(__file__).parents[2] / "docs/howto/name-people-with-an-authenticating-proxy.md"
PROXY = "127.0.0.2"  # the address from which nginx connects: not that of this test
SETTINGS = {
    "HOMING_PROXY_USER_HEADER": "X-Forwarded-User",
    "HOMING_PROXY_GROUPS_HEADER": "X-Forwarded-Groups",
    "HOMING_PROXY_NETWORKS": f"{PROXY}/32",
    "HOMING_PEOPLE": "group:ops=admin",
    "HOMING_HOSTS": "homing.example.com",
}


async def ask(port: int, path: str, *lines: str) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = (f"GET {path} HTTP/1.1", "Host: homing.example.com", "Connection: close", *lines)
    writer.write("\r\n".join((*head, "", "")).encode())
    found = await reader.read()
    writer.close()
    return found.decode()


@asynccontextmanager
async def signing_in() -> AsyncIterator[int]:
    """As oauth2-proxy does: who has its cookie is ada, of the group ops."""

    async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        status, more, body = "401 Unauthorized", "", ""
        if head.startswith("GET /oauth2/sign_in"):
            status, body = "403 Forbidden", "Sign in with your account."
        elif "cookie: _oauth2_proxy=ada" in head.lower():
            status = "202 Accepted"
            more = "X-Auth-Request-Email: ada@example.com\r\nX-Auth-Request-Groups: dev,ops\r\n"
        text = f"HTTP/1.1 {status}\r\n{more}Content-Length: {len(body)}\r\nConnection: close"
        writer.write(f"{text}\r\n\r\n{body}".encode())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(reply, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@asynccontextmanager
async def nginx(folder: Path, site: str) -> AsyncIterator[None]:
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if program is None:
        pytest.skip("nginx is not installed: the example of the page was NOT tested")
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    places = "".join(f"{kind}_temp_path {folder}/{kind};\n" for kind in kinds)
    config = folder / "nginx.conf"
    config.write_text(
        f"daemon off; pid {folder}/nginx.pid; error_log {folder}/error.log;\n"
        "events { worker_connections 64; }\n"
        f"http {{ access_log off; proxy_bind {PROXY};\n{places}{site} }}\n"
    )
    process = await asyncio.create_subprocess_exec(program, "-c", str(config), "-p", str(folder))
    try:
        yield
    finally:
        process.terminate()
        await process.wait()


async def test_the_nginx_example_names_the_person_and_nobody_else_can(tmp_path: Path) -> None:
    (example,) = re.findall(r"```nginx\n(.*?)```", PAGE.read_text(), re.DOTALL)
    front, server = a_free_port(), Server(tmp_path / "data", environ=SETTINGS)
    await server.start()
    try:
        async with signing_in() as accounts:
            site = (
                example.replace("listen 443 ssl", f"listen 127.0.0.1:{front}")
                .replace("127.0.0.1:4180", f"127.0.0.1:{accounts}")
                .replace("127.0.0.1:8700", f"127.0.0.1:{server.port}")
            )
            async with nginx(tmp_path, site):
                for _ in range(500):
                    try:
                        (await asyncio.open_connection("127.0.0.1", front))[1].close()
                        break
                    except OSError:
                        await asyncio.sleep(0.02)
                spoofed = "X-Forwarded-User: eve@example.com", "X-Forwarded-Groups: ops"
                cookie = "Cookie: _oauth2_proxy=ada"
                for lines in ((cookie,), (cookie, *spoofed)):
                    page = await ask(front, "/", *lines)
                    assert page.startswith("HTTP/1.1 200"), page[:500]
                    assert "ada@example.com" in page
                    assert "eve@" not in page
                nobody = await ask(front, "/", *spoofed)
                assert "Sign in with your account." in nobody
                assert "ada" not in nobody
                direct = await ask(server.port, "/", *spoofed)
                assert direct.startswith("HTTP/1.1 303")
                assert "/sign-in" in direct
    finally:
        await server.terminate()
