"""Real servers: uvicorn, Node and nginx keep connections alive, and the sender uses them again."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from homing.net.sender import HttpSender
from net.receiver import a_free_port, a_request, a_target, ask, ask_all

NODE = r"""
const http = require("http");
let connections = 0;
const server = http.createServer((request, response) => {
  let bytes = 0;
  request.on("data", (chunk) => { bytes += chunk.length; });
  request.on("end", () => response.end(JSON.stringify({ connections, bytes })));
});
server.on("connection", () => { connections += 1; });
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
"""

NGINX = """
daemon off; worker_processes 1; pid {dir}/pid; error_log {dir}/error.log;
events {{ worker_connections 64; }}
http {{
  access_log off; client_body_temp_path {dir}; proxy_temp_path {dir}; fastcgi_temp_path {dir};
  uwsgi_temp_path {dir}; scgi_temp_path {dir};
  server {{
    listen 127.0.0.1:{port};
    location / {{ return 200 '{{"connection": $connection}}'; }}
  }}
}}
"""


@pytest.fixture
def uvicorn_app() -> Iterator[tuple[int, set[Any]]]:
    """A uvicorn in a thread; the set holds the client address of every connection seen."""
    clients: set[Any] = set()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        clients.add(tuple(scope["client"]))
        more = True
        while more:
            more = (await receive()).get("more_body", False)
        await send({"type": "http.response.start", "status": 202, "headers": []})
        await send({"type": "http.response.body", "body": b"accepted"})

    config = uvicorn.Config(app, lifespan="off", log_level="error", ws="none")
    server = uvicorn.Server(config)
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, args=([sock],), daemon=True)
    thread.start()
    for _ in range(1000):
        if server.started:
            break
        time.sleep(0.01)
    yield sock.getsockname()[1], clients
    server.should_exit = True
    thread.join(20)
    sock.close()


async def test_uvicorn(sender: HttpSender, uvicorn_app: tuple[int, set[Any]]) -> None:
    port, clients = uvicorn_app
    for body_bytes in (0, 10, 100_000, 1_000_000, 10):
        response = await ask(sender, a_request(a_target(port), body=b"x" * body_bytes))
        assert (response.code, response.excerpt) == (202, b"accepted")
    assert len(clients) == 1
    responses = await ask_all(sender, [a_request(a_target(port)) for _ in range(40)])
    assert {response.code for response in responses} == {202}
    assert len(clients) <= 40
    before = len(clients)
    responses = await ask_all(sender, [a_request(a_target(port)) for _ in range(40)])
    assert {response.code for response in responses} == {202}
    assert len(clients) == before, "forty idle connections served forty more"
    await sender.close()


async def test_node(sender: HttpSender) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed: keep-alive with Node was NOT tested")
    process = subprocess.Popen([node, "-e", NODE], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = await asyncio.to_thread(process.stdout.readline)
        for body_bytes in (0, 10, 1_000_000, 10):
            request = a_request(a_target(int(line)), body=b"x" * body_bytes)
            response = await ask(sender, request)
            assert response.code == 200
            assert json.loads(response.excerpt) == {"connections": 1, "bytes": body_bytes}
        assert b"timeout=5" in response.headers, "what Node announces is what the pool goes by"
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


async def test_nginx(sender: HttpSender, tmp_path: Path) -> None:
    nginx = shutil.which("nginx")
    if nginx is None:
        pytest.skip("nginx is not installed: keep-alive with nginx was NOT tested")
    port = a_free_port()
    config = tmp_path / "nginx.conf"
    config.write_text(NGINX.format(dir=tmp_path, port=port))
    process = subprocess.Popen([nginx, "-c", str(config), "-p", str(tmp_path)])
    try:
        for _ in range(500):
            if (await ask(sender, a_request(a_target(port)))).code == 200:
                break
            await asyncio.sleep(0.01)
        seen = set()
        for body_bytes in (0, 10, 10):
            request = a_request(a_target(port), body=b"x" * body_bytes)
            response = await ask(sender, request)
            assert response.code == 200
            seen.add(response.excerpt)
        assert len(seen) == 1
    finally:
        process.terminate()
        process.wait()
