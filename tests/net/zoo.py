"""A zoo of peers for TLS: those that must get nothing, and those that must be delivered to."""

from __future__ import annotations

import datetime as dt
import ssl
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from net.certificates import DAY, NOW, alternative

Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


class Issued(NamedTuple):
    """A certificate with its key."""

    certificate: x509.Certificate
    key: Key


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def issue(
    *names: str,
    by: Issued | None = None,  # None: signed by itself
    ca: bool = False,
    common: str = "receiver",
    since: dt.datetime = NOW - 10 * DAY,
    until: dt.datetime = NOW + DAY,
    purpose: x509.ObjectIdentifier | None = None,
    key: Key | None = None,
) -> Issued:
    """A certificate as good or as bad as it is asked to be."""
    key = key or ec.generate_private_key(ec.SECP256R1())
    issuer = _name(common) if by is None else by.certificate.subject
    builder = (
        x509.CertificateBuilder()
        .subject_name(_name(common))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(since)
        .not_valid_after(until)
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
    )
    if names:
        found = x509.SubjectAlternativeName([alternative(one) for one in names])
        builder = builder.add_extension(found, critical=False)
    if purpose is not None:
        builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
    return Issued(builder.sign(key if by is None else by.key, hashes.SHA256()), key)


class Zoo:
    """An authority that is trusted, and servers of every kind."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.root = issue(ca=True, common="trusted authority")
        self.ca_file = directory / "ca.pem"
        self.ca_file.write_bytes(_pem(self.root.certificate))

    def server(
        self, leaf: Issued, chain: Sequence[Issued] = (), *, level: int | None = None
    ) -> ssl.SSLContext:
        file = self._directory / f"{leaf.certificate.serial_number}.pem"
        key = leaf.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        file.write_bytes(key + _pem(leaf.certificate) + b"".join(_pem(c[0]) for c in chain))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        if level is not None:
            context.set_ciphers(f"ALL:@SECLEVEL={level}")
        context.load_cert_chain(file)
        return context

    def good(self, *names: str, **more: object) -> Issued:
        return issue(*names, by=self.root, **more)  # type: ignore[arg-type]

    def _only(self, version: ssl.TLSVersion, names: str = "hook.test") -> ssl.SSLContext:
        old = version < ssl.TLSVersion.TLSv1_2
        context = self.server(self.good(names), level=0 if old else None)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            context.minimum_version = context.maximum_version = version
        return context

    def _anonymous(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers("aNULL:@SECLEVEL=0")
        return context

    def bad_peer(self, case: str) -> ssl.SSLContext:
        """For the name hook.test."""
        leaves = {
            "expired": lambda: self.good("hook.test", until=NOW - DAY),
            "not_yet_valid": lambda: self.good("hook.test", since=NOW + DAY / 2),
            "wrong_name": lambda: self.good("other.test"),
            "name_in_cn_only": lambda: self.good(common="hook.test"),
            "name_is_below": lambda: self.good("*.hook.test"),
            "wildcard_too_wide": lambda: self.good("*"),
            "address_instead": lambda: self.good("127.0.0.1"),
            "self_signed": lambda: issue("hook.test"),
            "for_clients_only": lambda: self.good(
                "hook.test", purpose=ExtendedKeyUsageOID.CLIENT_AUTH
            ),
        }
        if case in leaves:
            return self.server(leaves[case]())
        return self._bad_chain(case)

    def _bad_chain(self, case: str) -> ssl.SSLContext:
        match case:
            case "unknown_authority":
                stranger = issue(ca=True, common="trusted authority")  # the name proves nothing
                return self.server(issue("hook.test", by=stranger), [stranger])
            case "signed_by_a_leaf":
                leaf = self.good("shop.test", common="shop")
                return self.server(issue("hook.test", by=leaf), [leaf])
            case "expired_authority":
                old = issue(by=self.root, ca=True, common="old", until=NOW - DAY)
                return self.server(issue("hook.test", by=old), [old])
            case "short_key":
                key = rsa.generate_private_key(65537, 1024)
                return self.server(self.good("hook.test", key=key), level=0)
            case "tls_1_0":
                return self._only(ssl.TLSVersion.TLSv1)
            case "tls_1_1":
                return self._only(ssl.TLSVersion.TLSv1_1)
            case "anonymous":
                return self._anonymous()
        raise AssertionError(case)

    def good_peer(self, case: str) -> ssl.SSLContext:
        """For the name hook.test."""
        match case:
            case "plain":
                return self.server(self.good("other.test", "hook.test"))
            case "intermediate":
                middle = issue(by=self.root, ca=True, common="middle")
                return self.server(issue("hook.test", by=middle), [middle])
            case "tls_1_2":
                return self._only(ssl.TLSVersion.TLSv1_2)
            case "tls_1_3":
                return self._only(ssl.TLSVersion.TLSv1_3)
            case "rsa":
                key = rsa.generate_private_key(65537, 2048)
                return self.server(self.good("hook.test", key=key))
        raise AssertionError(case)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


BAD = (
    "expired",
    "not_yet_valid",
    "wrong_name",
    "name_in_cn_only",
    "name_is_below",
    "wildcard_too_wide",
    "address_instead",
    "self_signed",
    "unknown_authority",
    "signed_by_a_leaf",
    "expired_authority",
    "for_clients_only",
    "short_key",
    "tls_1_0",
    "tls_1_1",
    "anonymous",
)
GOOD = ("plain", "intermediate", "tls_1_2", "tls_1_3", "rsa")
