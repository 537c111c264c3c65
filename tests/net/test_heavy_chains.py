"""A tenant's own authorities and the certificates below them take no long time to check."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from homing.model import Failure
from homing.net.tls import BoundedContext, client_context
from homing.policy.admission import draft_of
from homing.policy.certificates import identity_problems, make_identity
from net.certificates import Authority
from net.heavy_chains import HOST, HeavyChain, handshake
from net.receiver import a_request, a_target, ask, receiver, say_ok
from net.test_client_certificates import a_sender
from policy.build import a_subscription

HEAVY = "too many names and name constraints"
CPU_MAX_S = 0.02  # It takes 60 ms without the limits, and 200 ms on a slow machine.


def trusting(authorities: str) -> BoundedContext:
    context = client_context()
    context.trust(authorities)
    return context


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_heavy_chain_is_refused_before_it_is_checked(version: ssl.TLSVersion) -> None:
    chain = HeavyChain.of(intermediates=4, constraints=400, names=2_000)
    server = chain.server()
    server.minimum_version = server.maximum_version = version
    took_s, why = handshake(trusting(chain.root), server)
    assert HEAVY in why
    assert took_s < CPU_MAX_S


def test_a_receiver_may_send_only_so_much_before_it_is_trusted() -> None:
    chain = HeavyChain.of(intermediates=8, constraints=1_000, names=1_000)
    took_s, why = handshake(trusting(chain.root), chain.server())
    assert "more than 32 KiB" in why
    assert took_s < CPU_MAX_S
    many = HeavyChain.of(intermediates=120, constraints=0, names=1)
    took_s, why = handshake(client_context(), many.server())
    assert "more than 32 KiB" in why
    assert took_s < CPU_MAX_S


def test_a_usual_chain_with_name_constraints_is_trusted() -> None:
    chain = HeavyChain.of(intermediates=3, constraints=20, names=100)
    assert handshake(trusting(chain.root), chain.server())[1] == ""
    own = trusting("".join((chain.root, *chain.intermediates)))
    assert handshake(own, chain.server(presents=0))[1] == ""


def test_what_a_receiver_presents_counts_with_the_authorities_that_are_trusted() -> None:
    chain = HeavyChain.of(intermediates=1, constraints=400, names=3_000)
    own = trusting("".join((chain.root, *chain.intermediates)))
    took_s, why = handshake(own, chain.server(presents=0))
    assert HEAVY in why
    assert took_s < CPU_MAX_S


def test_authorities_that_take_long_to_check_are_refused_and_stored_ones_not_used() -> None:
    chain = HeavyChain.of(intermediates=3, constraints=1_000, names=1)
    own = "".join((chain.root, *chain.intermediates))
    draft = draft_of(a_subscription(ca_certificates=own))
    (problem,) = identity_problems(draft, before=None, now=0)
    assert (problem.field, "fewer names and name constraints" in problem.reason) == (
        "ca_certificates",
        True,
    )
    stored = make_identity(authorities=own)
    assert stored is not None
    assert "fewer names and name constraints" in stored.problem
    one = HeavyChain.of(intermediates=1, constraints=1_500, names=1)
    draft = draft_of(a_subscription(ca_certificates="".join((one.root, *one.intermediates))))
    (problem,) = identity_problems(draft, before=None, now=0)
    assert "no certificate of more than 8 KiB" in problem.reason


async def test_an_attempt_says_why_a_heavy_chain_is_refused(tmp_path: Path) -> None:
    chain = HeavyChain.of(intermediates=4, constraints=400, names=2_000)
    sender = a_sender(ca_file=str(Authority(tmp_path).ca_file))
    async with receiver(say_ok, tls=chain.server()) as peer:
        target = a_target(peer.port, scheme="https", host=HOST)
        own = make_identity(authorities=chain.root)
        response = await ask(sender, a_request(target, tls=own))
    assert response.failure is Failure.TLS
    assert HEAVY in response.detail
    await sender.close()
