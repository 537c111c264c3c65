"""A browser without a screen: it keeps cookies, sends forms, and says what a browser says."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from html import unescape
from urllib.parse import urlencode

from starlette.types import ASGIApp, Message

from web.asgi import KEY, Got

HOST = "127.0.0.1:8700"


class Browser:
    """Calls the app as a person's browser does."""

    def __init__(self, app: ASGIApp, *, host: str = HOST) -> None:
        self.app, self.host = app, host
        self.cookies: dict[str, str] = {}

    async def sign_in(self, key: str = KEY) -> Got:
        return await self.send("/sign-in", key=key)

    async def open_portal(self, url: str) -> Got:
        """Open a link of the customer portal, as its page does."""
        path = "/portal/open/" + url.rpartition("/")[2]
        assert (await self.get(path)).status == 200
        return await self.send(path)

    async def get(self, path: str, *more: tuple[str, str]) -> Got:
        return await self.call("GET", path, headers=more)

    async def form(self, page: str, path: str, *more: tuple[str, str], **fields: str) -> Got:
        """Send a form with the hidden fields that it has on this page."""
        return await self.send(path, *more, **{**await self.hidden(page, path), **fields})

    async def hidden(self, page: str, path: str) -> dict[str, str]:
        """The hidden fields of the form that is sent to ``path``; else only the page's token."""
        shown = (await self.get(page)).body.decode()
        forms = [
            it
            for it in re.split(r"(?=<form\b)", shown)[1:]
            if f'method="post" action="{path}"' in it
        ]
        if not forms:
            return {"csrf": await self.token(page)}
        form = forms[0].partition("</form>")[0]
        found = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', form)
        return {name: unescape(value) for name, value in found}

    async def token(self, page: str) -> str:
        found = re.search(rb'name="csrf" value="([0-9a-f]+)"', (await self.get(page)).body)
        assert found is not None, "no form on the page"
        return found[1].decode()

    async def send(self, path: str, *more: tuple[str, str], **fields: str) -> Got:
        kind = ("content-type", "application/x-www-form-urlencoded")
        same_origin = () if any(name == "origin" for name, _ in more) else self._same_origin()
        body = urlencode(fields).encode()
        return await self.call("POST", path, body=body, headers=(kind, *same_origin, *more))

    def _same_origin(self) -> tuple[tuple[str, str], ...]:
        return (("origin", f"http://{self.host}"), ("sec-fetch-site", "same-origin"))

    async def call(
        self, method: str, path: str, *, body: bytes = b"", headers: Sequence[tuple[str, str]] = ()
    ) -> Got:
        asked, _, query = path.partition("?")
        lines = [("host", self.host), ("accept", "text/html"), *headers]
        if self.cookies:
            jar = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
            lines.append(("cookie", jar))
        scope = {
            "type": "http",
            "method": method,
            "path": asked,
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in lines],
        }
        sent: list[Message] = []
        parts = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Message:
            if not parts:  # The browser waits for the rest of the response.
                await asyncio.get_running_loop().create_future()
            return parts.pop()

        async def send(message: Message) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        for name, value in sent[0]["headers"]:
            if name == b"set-cookie":
                self._keep(value.decode())
        found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return Got(sent[0]["status"], found, b"".join(it.get("body", b"") for it in sent[1:]))

    def _keep(self, line: str) -> None:
        name, _, value = line.partition(";")[0].partition("=")
        if "Max-Age=0" in line:
            self.cookies.pop(name, None)
        else:
            self.cookies[name] = value


def text(got: Got) -> str:
    """What a page says, without its markup."""
    body = re.sub(r"<(script|style|svg)\b.*?</\1>", " ", got.body.decode(), flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", body)).split())
