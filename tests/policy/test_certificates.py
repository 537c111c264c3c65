"""Client certificates: what is refused at the door, with the reason, and when they expire."""

from __future__ import annotations

import datetime as dt

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa, x25519
from cryptography.x509.oid import NameOID
from msgspec.structs import replace

from homing.model import SPEC
from homing.policy.admission import draft_of
from homing.policy.certificates import (
    WatchedCertificate,
    certificate_facts,
    identity_of,
    identity_problems,
    make_identity,
    warning_days,
    why_unusable,
)
from homing.policy.tables import DAY_MS
from net.certificates import DAY, NOW, a_client_certificate, pem_of
from policy.build import a_subscription

CERTIFICATE, KEY = a_client_certificate("our sender")
OTHER_CERTIFICATE, OTHER_KEY = a_client_certificate()
AT = int(NOW.timestamp() * 1000)


def problems(**fields: str | None) -> list[tuple[str, str]]:
    draft = draft_of(a_subscription(**fields))
    return [(one.field, one.reason) for one in identity_problems(draft, before=None, now=AT)]


def _encrypted() -> str:
    key = ec.generate_private_key(ec.SECP256R1())
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    ).decode()


def _legacy_encrypted() -> str:
    key = ec.generate_private_key(ec.SECP256R1())
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.BestAvailableEncryption(b"secret"),
    ).decode()


def _x25519() -> str:
    return (
        x25519.X25519PrivateKey.generate()
        .private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        .decode()
    )


def self_signed(key: rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey) -> tuple[str, str]:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "own")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(NOW - DAY)
        .not_valid_after(NOW + DAY)
        .sign(key, hashes.SHA256() if isinstance(key, rsa.RSAPrivateKey) else None)
    )
    text = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return certificate.public_bytes(serialization.Encoding.PEM).decode(), text.decode()


def test_a_certificate_with_its_key_and_a_bundle_are_taken() -> None:
    assert problems() == []
    assert problems(client_certificate=CERTIFICATE, client_key=KEY) == []
    chain = f"{CERTIFICATE}\n# the authority, in Zürich\n{OTHER_CERTIFICATE}"
    assert problems(client_certificate=chain, client_key=KEY, ca_certificates=chain) == []
    identity = make_identity(certificate=chain, key=KEY, authorities=chain)
    assert identity is not None
    assert identity.problem == ""
    assert identity.authorities.isascii()
    assert "PRIVATE" not in repr(identity)


@pytest.mark.parametrize("key", [2048, "ed25519"])
def test_rsa_and_ed25519_are_taken(key: int | str) -> None:
    made = (
        ed25519.Ed25519PrivateKey.generate()
        if isinstance(key, str)
        else rsa.generate_private_key(65537, key)
    )
    certificate, text = self_signed(made)
    assert problems(client_certificate=certificate, client_key=text) == []


@pytest.mark.parametrize(
    ("given", "field", "reason"),
    [
        ({"client_certificate": CERTIFICATE}, "client_key", "is missing"),
        ({"client_key": KEY}, "client_certificate", "is missing"),
        (
            {"client_certificate": CERTIFICATE, "client_key": OTHER_KEY},
            "client_key",
            "does not fit the client certificate",
        ),
        (
            {"client_certificate": f"{OTHER_CERTIFICATE}\n{CERTIFICATE}", "client_key": KEY},
            "client_key",
            "does not fit the first certificate",
        ),
        (
            {"client_certificate": CERTIFICATE, "client_key": _encrypted()},
            "client_key",
            "is encrypted",
        ),
        (
            {"client_certificate": CERTIFICATE, "client_key": _legacy_encrypted()},
            "client_key",
            "is encrypted",
        ),
        (
            {"client_certificate": CERTIFICATE, "client_key": CERTIFICATE},
            "client_key",
            "must be a private key in PEM",
        ),
        (
            {"client_certificate": CERTIFICATE, "client_key": KEY[:80] + KEY[90:]},
            "client_key",
            "it cannot be read",
        ),
        (
            {"client_certificate": CERTIFICATE, "client_key": _x25519()},
            "client_key",
            "must be a key that can sign",
        ),
        (
            {"client_certificate": f"{CERTIFICATE}\n{KEY}", "client_key": KEY},
            "client_certificate",
            "must not contain a private key",
        ),
        (
            {"client_certificate": "Bag Attributes", "client_key": KEY},
            "client_certificate",
            "must be in PEM",
        ),
        (
            {"client_certificate": CERTIFICATE.replace("M", "N"), "client_key": KEY},
            "client_certificate",
            "cannot be read",
        ),
        (
            {"client_certificate": "\n".join([CERTIFICATE] * 11), "client_key": KEY},
            "client_certificate",
            "at most 10 certificates",
        ),
        ({"ca_certificates": CERTIFICATE[:-10]}, "ca_certificates", "must be whole"),
        ({"ca_certificates": CERTIFICATE.replace("M", "N")}, "ca_certificates", "cannot be read"),
        ({"ca_certificates": KEY}, "ca_certificates", "must be in PEM"),
        (
            {"ca_certificates": "\n".join([CERTIFICATE] * 51)},
            "ca_certificates",
            "at most 50 certificates",
        ),
        (
            {"ca_certificates": "x" * (SPEC["ca_certificates"].chars_max + 1)},
            "ca_certificates",
            "must be at most 65,536 characters",
        ),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_reason(
    given: dict[str, str], field: str, reason: str
) -> None:
    ((named, said),) = problems(**given)
    assert named == field
    assert reason in said
    assert not any(line in said for line in KEY.splitlines()[1:-1])


def test_a_short_rsa_key_is_refused() -> None:
    certificate, key = self_signed(rsa.generate_private_key(65537, 1024))
    ((field, reason),) = problems(client_certificate=certificate, client_key=key)
    assert (field, reason) == ("client_key", "must be an RSA key of 2048 to 4096 bits, not of 1024")


def test_an_expired_certificate_is_refused_when_it_is_given_and_not_when_it_is_kept() -> None:
    certificate, key = a_client_certificate(until=NOW - DAY)
    own = {"client_certificate": certificate, "client_key": key}
    ((field, reason),) = problems(**own)
    assert field == "client_certificate"
    assert reason.startswith("expired on ")
    before = a_subscription(**own)
    kept = replace(draft_of(before), description="another")
    assert list(identity_problems(kept, before=before, now=AT)) == []


def test_the_facts_of_a_certificate() -> None:
    facts = certificate_facts(CERTIFICATE)
    assert (facts.subject, facts.issuer) == ("CN=our sender", "CN=test authority")
    loaded = x509.load_pem_x509_certificate(CERTIFICATE.encode())
    assert bytes.fromhex(facts.fingerprint) == loaded.fingerprint(hashes.SHA256())
    assert facts.expires_at == int(loaded.not_valid_after_utc.timestamp() * 1000)


def test_identities_are_equal_if_all_texts_are() -> None:
    one = identity_of(a_subscription(client_certificate=CERTIFICATE, client_key=KEY))
    two = identity_of(a_subscription(client_certificate=CERTIFICATE, client_key=KEY))
    assert one == two
    assert identity_of(a_subscription()) is None
    trusting = identity_of(a_subscription(ca_certificates=CERTIFICATE))
    assert trusting is not None
    assert one is not None
    assert trusting.fingerprint != one.fingerprint
    assert why_unusable(trusting, wall=0) == ""


def test_a_stored_key_that_does_not_fit_makes_an_identity_with_its_problem() -> None:
    other = pem_of(ec.generate_private_key(ec.SECP256R1()))
    identity = identity_of(a_subscription(client_certificate=CERTIFICATE, client_key=other))
    assert identity is not None
    assert why_unusable(identity, wall=AT).startswith(
        "the key of the client certificate does not fit"
    )
    assert (identity.certificate, identity.key) == ("", "")


@pytest.mark.parametrize(
    ("left", "days"),
    [
        (dt.timedelta(days=30, seconds=1), None),
        (dt.timedelta(days=30), 30),
        (dt.timedelta(days=7, seconds=1), 30),
        (dt.timedelta(days=7), 7),
        (dt.timedelta(days=1), 1),
        (dt.timedelta(seconds=1), 1),
        (dt.timedelta(0), 0),
        (-dt.timedelta(days=400), 0),
    ],
)
def test_the_warning_that_has_begun(left: dt.timedelta, days: int | None) -> None:
    assert warning_days(AT + int(left.total_seconds() * 1000), wall=AT) == days


def test_a_warning_is_due_for_a_day() -> None:
    facts = certificate_facts(CERTIFICATE)
    it = WatchedCertificate("acme", facts)
    begin = facts.expires_at - 30 * DAY_MS
    for wall, due in ((begin, True), (begin + DAY_MS - 1, True), (begin + DAY_MS, False)):
        warned = it.warning(wall=wall)
        assert warned is not None
        assert (warned.days, warned.is_due(wall=wall)) == (30, due)
    assert it.warning(wall=begin - 1) is None
    assert WatchedCertificate("acme", None, "broken").warning(wall=begin) is None
