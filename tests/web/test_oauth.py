"""A server, Authlib's OAuth server and a receiver behind it: events arrive with a token."""

from __future__ import annotations

import json
from typing import Any

from homing.testing import HomingServer, running_server
from net.oauth_server import Client, OAuthServer, oauth_server

SECRET = "secret-of-the-client"


def subscribe(server: HomingServer, peer: OAuthServer, **more: Any) -> Any:
    return server.client.subscribe(
        peer.hook_url,
        ["*"],
        oauth_token_url=peer.token_url,
        oauth_client_id="homing",
        oauth_client_secret=SECRET,
        oauth_scope="events.write",
        **more,
    )


def attempts(server: HomingServer) -> list[Any]:
    (one,) = server.client.deliveries()
    return list(server.client.delivery(one.id).attempts)


def test_an_event_arrives_with_a_token_also_after_it_was_revoked() -> None:
    with oauth_server() as peer, running_server() as server:
        peer.add(Client("homing", "client_secret_basic", SECRET))
        made = subscribe(server, peer)
        assert made.oauth_client_secret == "****ient"
        server.client.publish("a.b", {"n": 1})
        server.settle()
        peer.revoke_all()
        server.client.publish("a.b", {"n": 2})
        server.settle()

        rows = list(server.client.deliveries())
        assert {row.status for row in rows} == {"delivered"}
        shown = [server.client.delivery(row.id).attempts for row in rows]
        assert [len(it) for it in shown] == [1, 1]
        assert {"fetched after a 401" in it.detail for (it,) in shown} == {True, False}
        assert [code for _, code in peer.arrived] == [200, 401, 200]
        text = json.dumps([[str(it) for it in one] for one in shown])
        assert not any(value in text for value in (SECRET, *peer.tokens))
        assert "authorization: Bearer ****" in text


def test_a_wrong_secret_is_told_and_a_corrected_one_reaches_what_waits() -> None:
    with oauth_server() as peer, running_server() as server:
        peer.add(Client("homing", "client_secret_basic", "another one"))
        made = subscribe(server, peer)
        server.client.publish("a.b", {"n": 1})
        server.settle()
        (first,) = attempts(server)
        assert (first.outcome, first.failure) == ("failed", "token")
        assert first.detail == "the token endpoint 127.0.0.1 responded 401 invalid_client"
        server.client.change_subscription(made.id, oauth_client_secret="another one")
        server.live_through(minutes=2)
        assert [it.outcome for it in attempts(server)] == ["failed", "delivered"]
