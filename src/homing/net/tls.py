"""TLS as a client: verified, 1.2 or newer, HTTP/1.1 only."""

from __future__ import annotations

import ssl
from pathlib import Path


def client_context(ca_file: str | None = None) -> ssl.SSLContext:
    """A context that trusts the system's authorities and those in ``ca_file``.

    Raises OSError (SSLError is one) if there is no authority to trust: a failure of the sender.
    """
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Python 3.13 adds VERIFY_X509_STRICT, which refuses many certificates of private authorities.
    # A new Python must not disable endpoints that were delivered to before.
    context.verify_flags = ssl.VERIFY_X509_TRUSTED_FIRST
    context.hostname_checks_common_name = False  # RFC 9525: only subject alternative names count.
    context.set_alpn_protocols(["http/1.1"])
    if ca_file is not None:
        context.load_verify_locations(cafile=ca_file)
    if not context.cert_store_stats()["x509_ca"] and not _has_lazy_authorities():
        raise FileNotFoundError("the system has no certificate authorities")
    return context


def _has_lazy_authorities() -> bool:
    """Whether there is a directory of authorities, which OpenSSL reads on demand."""
    directory = ssl.get_default_verify_paths().capath
    return directory is not None and any(Path(directory).iterdir())
