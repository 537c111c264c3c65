"""A real OAuth 2.0 server (Authlib on Flask): it issues tokens, and its own API checks them.

It is the referee: Authlib verifies how a client authenticates (``client_secret_basic``,
``client_secret_post``, ``private_key_jwt``), issues bearer tokens, and protects the receiver.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from authlib.integrations.flask_oauth2 import AuthorizationServer, ResourceProtector
from authlib.oauth2 import OAuth2Error
from authlib.oauth2.rfc6749 import ClientMixin, TokenMixin, grants, list_to_scope, scope_to_list
from authlib.oauth2.rfc6750 import BearerTokenValidator
from authlib.oauth2.rfc7523 import JWTBearerClientAssertion
from flask import Flask, request
from joserfc.jwk import import_key
from werkzeug.serving import make_server

METHODS = ["client_secret_basic", "client_secret_post", "private_key_jwt"]


@dataclass
class Client(ClientMixin):  # type: ignore[misc]
    """A registered client."""

    client_id: str
    method: str
    secret: str = ""
    public_key: str = ""  # PEM
    key_kind: str = "RSA"
    scope: str = "events.write events.read"

    def get_client_id(self) -> str:
        return self.client_id

    def get_default_redirect_uri(self) -> str:
        return ""

    def get_allowed_scope(self, scope: str) -> str:
        known = set(self.scope.split())
        return list_to_scope([it for it in scope_to_list(scope) or () if it in known]) or ""

    def check_redirect_uri(self, _uri: str) -> bool:
        return False

    def check_client_secret(self, given: str) -> bool:
        return bool(self.secret) and given == self.secret

    def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:
        return endpoint == "token" and method == self.method

    def check_response_type(self, _kind: str) -> bool:
        return False

    def check_grant_type(self, kind: str) -> bool:
        return kind == "client_credentials"


@dataclass
class Issued(TokenMixin):  # type: ignore[misc]
    """An access token."""

    value: str
    client_id: str
    scope: str
    audience: str
    revoked: bool = False
    expired: bool = False

    def check_client(self, client: Client) -> bool:
        return client.client_id == self.client_id

    def get_scope(self) -> str:
        return self.scope

    def get_expires_in(self) -> int:
        return 3600

    def is_expired(self) -> bool:
        return self.expired

    def is_revoked(self) -> bool:
        return self.revoked


class _Grant(grants.ClientCredentialsGrant):  # type: ignore[misc]
    TOKEN_ENDPOINT_AUTH_METHODS = METHODS


@dataclass
class OAuthServer:
    """The server; a test changes its clients and tokens while it runs."""

    port: int = 0
    life_s: int = 3600
    clients: dict[str, Client] = field(default_factory=dict)
    tokens: dict[str, Issued] = field(default_factory=dict)
    asked: list[dict[str, str]] = field(default_factory=list)  # the forms of token requests
    arrived: list[tuple[str, int]] = field(default_factory=list)  # token and status of each hit
    refuse_all: bool = False  # the receiver refuses every token
    failing: int = 0  # so many token requests are answered with 503

    @property
    def token_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/oauth/token"

    @property
    def hook_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    def add(self, client: Client) -> Client:
        self.clients[client.client_id] = client
        return client

    def revoke_all(self) -> None:
        for token in self.tokens.values():
            token.revoked = True

    def expire_all(self) -> None:
        for token in self.tokens.values():
            token.expired = True

    def save(self, token: dict[str, Any], asked: Any) -> None:
        value, scope = token["access_token"], token.get("scope") or ""
        audience = request.form.get("audience", "")
        self.tokens[value] = Issued(value, asked.client.client_id, scope, audience)


class _Assertion(JWTBearerClientAssertion):  # type: ignore[misc]
    CLIENT_AUTH_METHOD = "private_key_jwt"

    def __init__(self, server: OAuthServer) -> None:
        super().__init__()
        self._server, self._used = server, set[str]()

    def get_audiences(self) -> list[str]:
        return [self._server.token_url]

    def validate_jti(self, _claims: object, jti: str) -> bool:
        new = jti not in self._used
        self._used.add(jti)
        return new

    def resolve_client_public_key(self, client: Client) -> Any:
        kind: Any = client.key_kind
        return import_key(client.public_key, kind)


class _Validator(BearerTokenValidator):  # type: ignore[misc]
    def __init__(self, server: OAuthServer) -> None:
        super().__init__()
        self._server = server

    def authenticate_token(self, value: str) -> Issued | None:
        return self._server.tokens.get(value)


def _app(it: OAuthServer) -> Flask:
    app = Flask("oauth server")
    app.config["OAUTH2_TOKEN_EXPIRES_IN"] = {"client_credentials": it.life_s}
    app.config["OAUTH2_SCOPES_SUPPORTED"] = ["events.write", "events.read"]
    server = AuthorizationServer(app, query_client=it.clients.get, save_token=it.save)
    server.register_grant(_Grant)
    server.register_client_auth_method("private_key_jwt", _Assertion(it))
    guarded = ResourceProtector()
    guarded.register_token_validator(_Validator(it))

    @app.post("/oauth/token")
    def issue() -> Any:
        it.asked.append(request.form.to_dict())
        if it.failing:
            it.failing -= 1
            return "try again later", 503
        return server.create_token_response()

    @app.post("/hook")
    def hook() -> Any:
        value, code = request.headers.get("authorization", "").removeprefix("Bearer "), 200
        try:
            guarded.acquire_token(["events.write"])
        except OAuth2Error as error:
            code = error.status_code
        code = 401 if it.refuse_all else code
        it.arrived.append((value, code))
        return "", code

    return app


@contextmanager
def oauth_server(*, life_s: int = 3600) -> Iterator[OAuthServer]:
    """A server in a thread, on loopback."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    it = OAuthServer(life_s=life_s)
    server = make_server("127.0.0.1", 0, _app(it), threaded=True)
    it.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield it
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
