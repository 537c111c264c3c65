"""Client certificates and certificate authorities: what is accepted, and when they expire.

A certificate and its key are checked before they are stored, and once more before they are used:
the files of an operator can change at any time. A reason never repeats a part of a key.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from weakref import WeakValueDictionary

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.utils import CryptographyDeprecationWarning
from msgspec import Struct

from homing.errors import FieldProblem
from homing.languages.sentences import Sentence, say
from homing.model import SPEC, Subscription, SubscriptionSpec, TlsIdentity
from homing.policy.chains import AUTHORITY_BYTES_MAX, weigh
from homing.policy.private_keys import BadKey, PrivateKey, accept_key, load_key
from homing.policy.tables import DAY_MS

CHAIN_MAX = 10  # certificates of a client: its own and its intermediate authorities
AUTHORITIES_MAX = 50
AUTHORITY_BITS_MAX = 8_192  # of an RSA key
WARN_DAYS = (30, 7, 1)  # before a client certificate expires

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_identities: WeakValueDictionary[str, TlsIdentity] = WeakValueDictionary()  # by fingerprint
_FIELDS = ("client_certificate", "client_key", "ca_certificates")
_UNREADABLE = say("must be certificates in PEM: one of them cannot be read")


class Unusable(Exception):
    """A certificate or key that cannot be used, with the reason, which begins with a verb."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class CertificateFacts(Struct, frozen=True):
    """What people may see of a certificate."""

    subject: str
    issuer: str
    fingerprint: str  # SHA-256 of the certificate, in hexadecimal
    valid_from: int
    expires_at: int


class WatchedCertificate(Struct, frozen=True):
    """A client certificate that is in use, and whose it is."""

    tenant: str  # empty: of the installation
    facts: CertificateFacts | None  # None: it cannot be used
    problem: str = ""  # why it cannot be used
    subscription_id: int = 0  # 0: it is in a file
    endpoint_id: int = 0
    url: str = ""
    file: str = ""

    def warning(self, *, wall: int) -> Warned | None:
        """The warning that began last; None: it does not expire soon."""
        if self.facts is None:
            return None
        days = warning_days(self.facts.expires_at, wall=wall)
        if days is None:
            return None
        return Warned(days, self.facts.expires_at - days * DAY_MS)


class Warned(Struct, frozen=True):
    """One of the warnings about a certificate: this many days before it expires."""

    days: int  # 0: it has expired
    since: int

    def is_due(self, *, wall: int) -> bool:
        """Whether the warning is to be sent to people.

        Only within the first day: a repeated warning is recognised by its id, and its record is
        kept for at least a day.
        """
        return 0 <= wall - self.since < DAY_MS


# --- reading ----------------------------------------------------------------------------------


@lru_cache(maxsize=1_024)  # A page of subscriptions and the warnings read the same ones again.
def certificate_facts(pem: str) -> CertificateFacts:
    """The facts of the first certificate in a PEM text; raises Unusable."""
    first = _certificates(pem, CHAIN_MAX)[0]
    return CertificateFacts(
        subject=_name(first.subject),
        issuer=_name(first.issuer),
        fingerprint=first.fingerprint(hashes.SHA256()).hex(),
        valid_from=_ms(first.not_valid_before_utc),
        expires_at=_ms(first.not_valid_after_utc),
    )


def facts_of(subscription: SubscriptionSpec) -> CertificateFacts | None:
    """The facts of a subscription's own certificate; None: it has none that can be read."""
    if not subscription.client_certificate:
        return None
    try:
        return certificate_facts(subscription.client_certificate)
    except Unusable:
        return None


def make_identity(
    *, certificate: str = "", key: str = "", authorities: str = ""
) -> TlsIdentity | None:
    """The identity of these PEM texts; None if there are none.

    An identity that cannot be used has the reason as its ``problem``: attempts with it fail. While
    an identity is in use, its texts are not read again.
    """
    if not certificate and not key and not authorities:
        return None
    texts = "\0".join((certificate, key, authorities))
    fingerprint = hashlib.sha256(texts.encode()).hexdigest()
    identity = _identities.get(fingerprint)
    if identity is None:
        identity = _read_identity(fingerprint, certificate, key, authorities)
        _identities[fingerprint] = identity
    return identity


def _read_identity(fingerprint: str, certificate: str, key: str, authorities: str) -> TlsIdentity:
    try:
        if authorities:
            authorities = _in_pem(_authorities(authorities))
        if not certificate and not key:
            return TlsIdentity(fingerprint, authorities=authorities)
        facts = _checked_pair(certificate, key, load_key)
        certificate = _in_pem(_certificates(certificate, CHAIN_MAX))
    except _WrongField as error:
        return TlsIdentity(fingerprint, problem=_of_field(error.field, error.reason))
    except Unusable as error:
        return TlsIdentity(fingerprint, problem=_of_field("ca_certificates", error.reason))
    return TlsIdentity(
        fingerprint, certificate, key, authorities, facts.valid_from, facts.expires_at
    )


def _of_field(field: str, reason: str) -> Sentence:
    match field:
        case "client_certificate":
            return say("the client certificate {reason}", reason=reason)
        case "client_key":
            return say("the key of the client certificate {reason}", reason=reason)
        case _:
            return say("the file of CA certificates {reason}", reason=reason)


def identity_of(subscription: Subscription) -> TlsIdentity | None:
    """The identity that a subscription has of its own."""
    return make_identity(
        certificate=subscription.client_certificate or "",
        key=subscription.client_key or "",
        authorities=subscription.ca_certificates or "",
    )


def why_unusable(identity: TlsIdentity, *, wall: int) -> str:
    """Why a connection with this identity cannot be made at this time; empty: it can.

    The reason is written to the log of attempts, in English.
    """
    if identity.problem:
        return str(identity.problem)
    if not identity.certificate:
        return ""
    if wall >= identity.valid_until:
        return f"the client certificate expired on {date_text(identity.valid_until)}"
    if wall < identity.valid_from:
        return f"the client certificate is not valid before {date_text(identity.valid_from)}"
    return ""


def warning_days(expires_at: int, *, wall: int) -> int | None:
    """The smallest of WARN_DAYS that has begun, 0 once it has expired; None: not soon."""
    if wall >= expires_at:
        return 0
    begun = [days for days in WARN_DAYS if wall >= expires_at - days * DAY_MS]
    return min(begun, default=None)


def date_text(at: int) -> str:
    """A time in UTC, to the minute."""
    return f"{_EPOCH + timedelta(milliseconds=at):%Y-%m-%d %H:%M} UTC"


# --- checks of input --------------------------------------------------------------------------


class _WrongField(Exception):
    def __init__(self, field: str, reason: str) -> None:
        super().__init__(field)
        self.field, self.reason = field, reason


def identity_problems(
    draft: SubscriptionSpec, *, before: Subscription | None, now: int
) -> Iterator[FieldProblem]:
    """Every problem of the certificate, the key and the authorities of a draft.

    Values that are the same as ``before`` are not checked again: an expired certificate does not
    prevent a change of another field.
    """
    if before is not None and all(
        getattr(draft, name) == getattr(before, name) for name in _FIELDS
    ):
        return
    if (draft.client_key or "").startswith("****"):
        return  # It is refused as every masked value is.
    long = [name for name in _FIELDS if len(getattr(draft, name) or "") > SPEC[name].chars_max]
    for name in long:
        reason = say("must be at most {limit} characters", limit=SPEC[name].chars_max)
        yield FieldProblem(name, reason)
    if long:
        return
    if draft.ca_certificates:
        try:
            _authorities(draft.ca_certificates)
        except Unusable as error:
            yield FieldProblem("ca_certificates", error.reason)
    if not draft.client_certificate and not draft.client_key:
        return
    try:
        facts = _checked_pair(draft.client_certificate or "", draft.client_key or "", accept_key)
    except _WrongField as error:
        yield FieldProblem(error.field, error.reason)
        return
    if facts.expires_at <= now:
        reason = say(
            "expired on {at}: give a certificate that is valid", at=date_text(facts.expires_at)
        )
        yield FieldProblem("client_certificate", reason)


def _checked_pair(
    certificate: str, key: str, read: Callable[[str], PrivateKey]
) -> CertificateFacts:
    """The facts of a certificate whose key, which ``read`` reads, fits; raises _WrongField."""
    if not certificate:
        raise _WrongField(
            "client_certificate",
            say("is missing: a client key needs its certificate"),
        )
    if not key:
        reason = say("is missing: a client certificate needs its private key")
        raise _WrongField("client_key", reason)
    try:
        chain = _certificates(certificate, CHAIN_MAX)
        public = chain[0].public_key()
        facts = certificate_facts(certificate)
    except Unusable as error:
        raise _WrongField("client_certificate", error.reason) from None
    except (UnsupportedAlgorithm, ValueError):
        reason = say("has a public key of an unknown kind: use RSA or an elliptic curve")
        raise _WrongField("client_certificate", reason) from None
    if "PRIVATE KEY" in certificate:
        reason = say(
            "must not contain a private key: give it as {field}, which is kept secret",
            field="client_key",
        )
        raise _WrongField("client_certificate", reason)
    try:
        private = read(key)
    except BadKey as error:
        raise _WrongField("client_key", error.reason) from None
    if _spki(private.public_key()) != _spki(public):
        fits = any(_spki(it.public_key()) == _spki(private.public_key()) for it in chain[1:])
        reason = (
            say(
                "does not fit the first certificate: put the client's own certificate first, "
                "then its authorities"
            )
            if fits
            else say("does not fit the client certificate: give the key that it was made with")
        )
        raise _WrongField("client_key", reason)
    return facts


def _certificates(pem: str, count_max: int) -> list[x509.Certificate]:
    if "-----BEGIN CERTIFICATE-----" not in pem:
        raise Unusable(say("must be in PEM: it has no line -----BEGIN CERTIFICATE-----"))
    if pem.count("-----BEGIN CERTIFICATE-----") > count_max:
        raise Unusable(say("must have at most {limit} certificates", limit=count_max))
    if pem.count("-----BEGIN CERTIFICATE-----") != pem.count("-----END CERTIFICATE-----"):
        raise Unusable(say("must be whole: a certificate has no line -----END CERTIFICATE-----"))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CryptographyDeprecationWarning)
            found = x509.load_pem_x509_certificates(pem.encode())
        for one in found:
            _ = one.subject, one.issuer, one.public_key()  # These are read lazily.
    except (ValueError, UnsupportedAlgorithm):
        raise Unusable(_UNREADABLE) from None
    if len(found) != pem.count("-----BEGIN CERTIFICATE-----"):
        raise Unusable(_UNREADABLE)
    return found


def _authorities(pem: str) -> list[x509.Certificate]:
    """The authorities in a PEM text, whose check in a handshake has a limit; raises Unusable."""
    found = _certificates(pem, AUTHORITIES_MAX)
    texts = [it.public_bytes(serialization.Encoding.DER) for it in found]
    if any(len(it) > AUTHORITY_BYTES_MAX for it in texts):
        reason = say(
            "must have no certificate of more than {kib} KiB", kib=AUTHORITY_BYTES_MAX // 1024
        )
        raise Unusable(reason)
    if weigh(b"".join(texts)).is_too_much:
        reason = say(
            "must have fewer names and name constraints: to compare all of them would take too "
            "long in each TLS handshake"
        )
        raise Unusable(reason)
    for it in found:
        key = it.public_key()
        if isinstance(key, rsa.RSAPublicKey) and key.key_size > AUTHORITY_BITS_MAX:
            reason = say(
                "must have RSA keys of at most {limit} bits, not of {bits}",
                limit=str(AUTHORITY_BITS_MAX),
                bits=str(key.key_size),
            )
            raise Unusable(reason)
    return found


def _in_pem(certificates: Sequence[x509.Certificate]) -> str:
    """The certificates alone: comments between them need not be ASCII."""
    return "".join(it.public_bytes(serialization.Encoding.PEM).decode() for it in certificates)


def _spki(key: CertificatePublicKeyTypes) -> bytes:
    return key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def _name(name: x509.Name) -> str:
    text = name.rfc4514_string()
    return text if len(text) <= 200 else text[:199] + "…"


def _ms(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(milliseconds=1)
