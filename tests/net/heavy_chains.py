"""Chains of certificates that take long to check: names, compared with name constraints."""

from __future__ import annotations

import ssl
import time
from contextlib import suppress
from dataclasses import dataclass
from tempfile import NamedTemporaryFile

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from net.certificates import DAY, NOW, pem_of

HOST = "hook.test"


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


@dataclass
class HeavyChain:
    """A receiver's certificates below an authority that a tenant trusts."""

    root: str
    intermediates: list[str]  # the nearest to the receiver first
    leaf: str
    key: str

    @classmethod
    def of(
        cls, *, intermediates: int, constraints: int, names: int, host: str = HOST
    ) -> HeavyChain:
        """So many intermediates with so many constraints each, and names of the receiver."""
        above = ec.generate_private_key(ec.SECP256R1())
        root = _certificate("root", above, "root", above, x509.BasicConstraints(True, None))
        issuer = "root"
        found: list[str] = []
        for number in range(intermediates):
            key = ec.generate_private_key(ec.SECP256R1())
            excluded = [x509.DNSName(f"{it:x}") for it in range(constraints)] or None
            more = [] if excluded is None else [x509.NameConstraints(None, excluded)]
            made = _certificate(
                f"i{number}", key, issuer, above, x509.BasicConstraints(True, None), *more
            )
            found.insert(0, _pem(made))
            above, issuer = key, f"i{number}"
        key = ec.generate_private_key(ec.SECP256R1())
        called = x509.SubjectAlternativeName(
            [x509.DNSName(host), *[x509.DNSName("g")] * (names - 1)]
        )
        leaf = _certificate("receiver", key, issuer, above, called)
        return cls(_pem(root), found, _pem(leaf), pem_of(key))

    def server(self, *, presents: int | None = None) -> ssl.SSLContext:
        """A server that presents the nearest intermediates; default: all of them."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with NamedTemporaryFile("w") as file:
            file.write("".join((self.leaf, *self.intermediates[:presents], self.key)))
            file.flush()
            context.load_cert_chain(file.name)
        return context


def _certificate(
    subject: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: str,
    above: ec.EllipticCurvePrivateKey,
    *extensions: x509.ExtensionType,
) -> x509.Certificate:
    builder = (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .issuer_name(_name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW - DAY)
        .not_valid_after(NOW + DAY)
    )
    for one in extensions:
        builder = builder.add_extension(
            one, critical=not isinstance(one, x509.SubjectAlternativeName)
        )
    return builder.sign(above, hashes.SHA256())


def handshake(client: ssl.SSLContext, server: ssl.SSLContext) -> tuple[float, str]:
    """The CPU time of the client's longest step, and why it failed; empty: it did not."""
    to_client, from_client, to_server, from_server = (ssl.MemoryBIO() for _ in range(4))
    ours = client.wrap_bio(to_client, from_client, server_hostname=HOST)
    theirs = server.wrap_bio(to_server, from_server, server_side=True)
    longest, why = 0.0, ""
    for _ in range(3):
        began = time.thread_time()
        try:
            ours.do_handshake()
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            why = error.reason or str(error)
        longest = max(longest, time.thread_time() - began)
        if why:
            break
        to_server.write(from_client.read())
        with suppress(ssl.SSLWantReadError):
            theirs.do_handshake()
        to_client.write(from_server.read())
    return longest, why
