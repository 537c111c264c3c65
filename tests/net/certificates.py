"""Certificates for tests, made on the spot."""

from __future__ import annotations

import datetime as dt
import ipaddress
import ssl
from pathlib import Path
from tempfile import TemporaryDirectory

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

NOW = dt.datetime.now(dt.UTC)
DAY = dt.timedelta(days=1)


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


SIGNS_CERTIFICATES = x509.KeyUsage(
    digital_signature=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


class Authority:
    """A certificate authority with its files in one directory."""

    def __init__(self, directory: Path, common: str = "test authority") -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._common = common
        certificate = (
            x509.CertificateBuilder()
            .subject_name(_name(common))
            .issuer_name(_name(common))
            .public_key(self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(NOW - DAY)
            .not_valid_after(NOW + DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(SIGNS_CERTIFICATES, critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False
            )
            .sign(self._key, hashes.SHA256())
        )
        self.ca_file = directory / f"{common.replace(' ', '_')}.pem"
        self.ca_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def client(
        self,
        common: str = "homing",
        *,
        since: dt.datetime = NOW - 10 * DAY,
        until: dt.datetime = NOW + DAY,
    ) -> tuple[str, str]:
        """A client certificate and its key, in PEM."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            x509.CertificateBuilder()
            .subject_name(_name(common))
            .issuer_name(_name(self._common))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(since)
            .not_valid_after(until)
            .add_extension(
                x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
            .sign(self._key, hashes.SHA256())
        )
        return certificate.public_bytes(serialization.Encoding.PEM).decode(), pem_of(key)

    def revoke(self, *certificates: str) -> Path:
        """A file with a list of these certificates, revoked."""
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(_name(self._common))
            .last_update(NOW - DAY)
            .next_update(NOW + DAY)
        )
        for pem in certificates:
            serial = x509.load_pem_x509_certificate(pem.encode()).serial_number
            revoked = x509.RevokedCertificateBuilder().serial_number(serial)
            builder = builder.add_revoked_certificate(revoked.revocation_date(NOW - DAY).build())
        file = self._directory / "revoked.pem"
        revoked_list = builder.sign(self._key, hashes.SHA256())
        file.write_bytes(revoked_list.public_bytes(serialization.Encoding.PEM))
        return file

    def server_file(self, *alternatives: str, until: dt.datetime = NOW + DAY) -> Path:
        """A file with a key and a certificate for these names and addresses."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            x509.CertificateBuilder()
            .subject_name(_name("receiver"))
            .issuer_name(_name(self._common))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(NOW - 10 * DAY)
            .not_valid_after(until)
            .add_extension(
                x509.SubjectAlternativeName([alternative(text) for text in alternatives]),
                critical=False,
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
            .sign(self._key, hashes.SHA256())
        )
        file = self._directory / f"{certificate.serial_number}.pem"
        file.write_bytes(
            pem_of(key).encode() + certificate.public_bytes(serialization.Encoding.PEM)
        )
        return file

    def server(self, *alternatives: str, until: dt.datetime = NOW + DAY) -> ssl.SSLContext:
        """A server that shows a certificate for these names and addresses."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.server_file(*alternatives, until=until))
        return context


def pem_of(key: ec.EllipticCurvePrivateKey) -> str:
    """A private key in PEM, not encrypted."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()


def alternative(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def a_client_certificate(
    common: str = "homing",
    *,
    since: dt.datetime = NOW - 10 * DAY,
    until: dt.datetime = NOW + 365 * DAY,
) -> tuple[str, str]:
    """A client certificate of an authority that nobody else knows, and its key, in PEM."""
    with TemporaryDirectory() as folder:
        certificate, key = Authority(Path(folder)).client(common, since=since, until=until)
    return certificate.strip(), key.strip()
