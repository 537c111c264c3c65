"""The Ed25519 signing keys of a tenant: show the public keys, rotate, publish them as a JWK set."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from homing.app.signing_keys import SigningKeys
from homing.errors import BadRequest, Conflict, Invalid, StoreUnavailable
from homing.policy.admission import DEFAULT_TENANT
from homing.policy.rotation import OVERLAP_MS, OVERLAP_MS_MAX
from homing.policy.signature import PublicKey
from homing.web.operation import TENANT_ONE, Call, Operation, Param
from homing.web.response import Response, json_response
from homing.web.schemas import PublicKeyView
from homing.web.show import public_key_views

JWKS_PATH = "/.well-known/jwks.json"
# The overlap of a rotation is longer by default, and a receiver may ask again at any time.
_CACHING = ((b"cache-control", b"public, max-age=300"),)


class SigningKeysView(Struct, frozen=True):
    """The public keys with which requests of a tenant are verified, newest first."""

    tenant: str
    keys: list[PublicKeyView]
    jwks: Annotated[str, Meta(description="The path of the same keys as a JWK set, for receivers.")]


class SigningKeysRotateIn(Struct, frozen=True, forbid_unknown_fields=True):
    """How to rotate; every field is optional."""

    tenant: Annotated[
        str | None, Meta(description="The tenant; default: the key's tenant, or `default`.")
    ] = None
    overlap_ms: Annotated[
        int, Meta(description=f"How long the old keys still sign, in ms: 0 to {OVERLAP_MS_MAX}.")
    ] = OVERLAP_MS


class Jwk(Struct, frozen=True):
    """A public key, as RFC 8037 writes it."""

    kty: str
    crv: str
    x: Annotated[str, Meta(description="The public key in base64url.")]
    kid: Annotated[str, Meta(description="The thumbprint of RFC 7638.")]
    use: str
    alg: str


class Jwks(Struct, frozen=True):
    """A JWK set (RFC 7517); empty for a tenant without signing keys and for an unknown one."""

    keys: list[Jwk]


async def get(call: Call) -> Response:
    found = await call.app.signing_keys.get(call.caller, tenant=call.query.tenant())
    return json_response(_view(*found))


async def rotate(call: Call) -> Response:
    given = call.content(SigningKeysRotateIn, empty=b"{}")
    found = await call.app.signing_keys.rotate(
        call.caller, tenant=given.tenant, overlap_ms=given.overlap_ms
    )
    return json_response(_view(*found))


async def jwks(call: Call) -> Response:
    tenant = call.query.tenant() or DEFAULT_TENANT
    keys = [
        Jwk("OKP", "Ed25519", it.x, it.kid, "sig", "EdDSA")
        for it in call.app.signing_keys.published(tenant)
    ]
    return json_response(Jwks(keys), headers=_CACHING)


def _view(tenant: str, keys: tuple[PublicKey, ...]) -> SigningKeysView:
    return SigningKeysView(tenant, public_key_views(keys), jwks_path(tenant))


def jwks_path(tenant: str) -> str:
    """Where the JWK set of a tenant is; the names of tenants need no escape."""
    return f"{JWKS_PATH}?tenant={tenant}"


OPERATIONS = (
    Operation(
        method="GET",
        path="/v1/signing-keys",
        id="getSigningKeys",
        use_case=SigningKeys.get,
        summary="The public keys of a tenant, for subscriptions that are signed with Ed25519.",
        handler=get,
        response=SigningKeysView,
        params=(TENANT_ONE,),
        errors=(Invalid,),
    ),
    Operation(
        method="POST",
        path="/v1/signing-keys/rotate",
        id="rotateSigningKeys",
        use_case=SigningKeys.rotate,
        summary="Sign with a new Ed25519 key, and for a while with the old one as well.",
        handler=rotate,
        request=SigningKeysRotateIn,
        response=SigningKeysView,
        errors=(BadRequest, Conflict, Invalid, StoreUnavailable),
    ),
    Operation(
        method="GET",
        path=JWKS_PATH,
        id="jwks",
        summary="The public keys of a tenant as a JWK set. It needs no key.",
        handler=jwks,
        response=Jwks,
        params=(Param("tenant", "The tenant that sends; default: `default`."),),
        errors=(Invalid,),
        open=True,
    ),
)
