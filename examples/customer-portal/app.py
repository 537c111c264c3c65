"""A small web application that shows the customer portal in a frame, with the standard library.

    HOMING_SERVER=https://hooks.example.com HOMING_KEY=hk_… python app.py

HOMING_KEY is a key with the role manager of one tenant. It stays on this server: the browser gets a
link that works once. With TLS_CERTIFICATE and TLS_KEY (files in PEM) the application speaks https,
as it must wherever it is not on your own machine.
"""

from __future__ import annotations

import json
import os
import ssl
import urllib.request
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SERVER = os.environ["HOMING_SERVER"]
KEY = os.environ["HOMING_KEY"]
ROLE = os.environ.get("ROLE", "manager")
LISTEN = os.environ.get("LISTEN", "127.0.0.1:8800")

PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Shop</title>
<style>
  body {{ margin: 0; font: 16px sans-serif; display: grid; grid-template-rows: auto 1fr; height: 100vh; }}
  header {{ padding: 12px 20px; background: #123524; color: #fff; }}
  iframe {{ width: 100%; height: 100%; border: 0; }}
</style>
<header>Shop · signed in as {user}</header>
<iframe title="Webhooks" src="{url}" allow="clipboard-write" referrerpolicy="no-referrer"></iframe>
<script>
  // When the access has ended, the portal says so, and this page asks for a new link. One try per
  // minute: a user whose access was withdrawn for good must not make links without an end.
  let last = Date.now();
  addEventListener("message", (event) => {{
    const frame = document.querySelector("iframe");
    if (event.source !== frame.contentWindow || event.data?.type !== "homing.portal.closed") return;
    document.body.dataset.closed = event.data.reason;
    if (Date.now() - last < 60_000) return;
    last = Date.now();
    location.reload();
  }});
</script>
"""


def portal_link(user: str) -> str:
    """The URL of a new link for this user; it works once, within 15 minutes."""
    request = urllib.request.Request(
        f"{SERVER}/v1/portal-links",
        data=json.dumps({"role": ROLE, "subject": user}).encode(),
        headers={"authorization": f"Bearer {KEY}", "content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=10, context=TRUST) as response:
        return json.load(response)["url"]


class Shop(BaseHTTPRequestHandler):
    """One page: your own application knows who is signed in."""

    def do_GET(self) -> None:
        if self.path != "/":
            self.send_error(404)
            return
        user = "ada@shop.example"
        body = PAGE.format(user=escape(user), url=escape(portal_link(user))).encode()
        self.send_response(200)
        self.send_header("content-type", "text/html; charset=utf-8")
        self.send_header("cache-control", "no-store")  # the link in it works once
        self.end_headers()
        self.wfile.write(body)


def main() -> None:
    host, _, port = LISTEN.rpartition(":")
    server = ThreadingHTTPServer((host, int(port)), Shop)
    if "TLS_CERTIFICATE" in os.environ:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(os.environ["TLS_CERTIFICATE"], os.environ["TLS_KEY"])
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    print(f"listening on {LISTEN}", flush=True)
    server.serve_forever()


# The authority of a certificate that you made yourself; without it, those of the system.
TRUST = ssl.create_default_context(cafile=os.environ.get("CA_FILE"))

if __name__ == "__main__":
    main()
