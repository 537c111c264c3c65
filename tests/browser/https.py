"""HTTPS on loopback: a certificate of our own for names like app.localhost, and a TLS forwarder."""

from __future__ import annotations

import base64
import hashlib
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

CHUNK = 64 * 1024


class Certificate:
    """A certificate for some names, signed by itself, in files."""

    def __init__(self, folder: Path, *names: str) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
        now = datetime.now(UTC)
        made = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=9))
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(it) for it in names]), False)
            .sign(key, hashes.SHA256())
        )
        self.file, self.key_file = folder / "cert.pem", folder / "key.pem"
        self.file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
        self.key_file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        public = key.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        # Chromium trusts this key, and verifies everything else about TLS.
        self.pin = base64.b64encode(hashlib.sha256(public).digest()).decode()

    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.file, self.key_file)
        return context


def listening() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0))


@contextmanager
def forwarding(listener: socket.socket, certificate: Certificate, to: str) -> Iterator[None]:
    """Take TLS connections at the listener and pass their bytes on to ``host:port``."""
    host, _, port = to.rpartition(":")
    context, stopped = certificate.context(), threading.Event()

    def serve() -> None:
        while not stopped.is_set():
            with suppress(OSError):
                plain, _ = listener.accept()
                threading.Thread(target=connect, args=(plain,), daemon=True).start()

    def connect(plain: socket.socket) -> None:
        with suppress(OSError):
            outer = context.wrap_socket(plain, server_side=True)
            inner = socket.create_connection((host, int(port)))
            threading.Thread(target=pass_on, args=(outer, inner), daemon=True).start()
            pass_on(inner, outer)

    def pass_on(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while part := source.recv(CHUNK):
                target.sendall(part)
        for one in (source, target):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
