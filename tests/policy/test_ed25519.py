"""Ed25519 signatures: published vectors, and RFC 8032 in plain integers as the referee."""

from __future__ import annotations

from base64 import b64decode, b64encode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ed25519_reference import verifies
from homing.model import Secret
from homing.policy.rotation import rotated
from homing.policy.signature import TenantSigner, new_private_key, public_key

# RFC 8032, section 7.1: seed, public key, message, signature.
RFC_8032 = [
    (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9"
        "b46bd25bf5f0595bbe24655141438e7a100b",
    ),
    (
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f1"
        "1d8c387b2eaeb4302aeeb00d291612bb0c00",
    ),
    (
        "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984d"
        "c6594a7c15e9716ed28dc027beceea1ec40a",
    ),
]


@pytest.mark.parametrize(("seed", "public", "message", "signature"), RFC_8032)
def test_the_vectors_of_rfc_8032(seed: str, public: str, message: str, signature: str) -> None:
    key, content, right = bytes.fromhex(public), bytes.fromhex(message), bytes.fromhex(signature)
    shown = public_key(new_private_key(bytes.fromhex(seed)))
    assert shown.value == "whpk_" + b64encode(key).decode()
    assert verifies(key, content, right)
    assert not verifies(key, content + b"x", right)
    assert not verifies(key, content, right[:-1] + b"\1")


def test_the_signature_in_the_specification() -> None:
    """The v1a of the example of Standard Webhooks; its key and content are in Svix's own tests."""
    private = (
        "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbf"
        "VKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg=="
    )
    (signature,) = TenantSigner([Secret(private)]).sign(
        b"msg_p5jXN8AQM9LWM0D4loKWxJek", b"1614265330", b'{"test": 2432232314}', now=0
    )
    assert signature == (
        b"v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg=="
    )
    assert new_private_key(b64decode(private.removeprefix("whsk_"))[:32]) == private


def test_the_name_of_a_key_is_the_thumbprint_of_rfc_8037() -> None:
    shown = public_key(new_private_key(bytes.fromhex(RFC_8032[0][0])))
    assert shown.x == "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"
    assert shown.kid == "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"


@settings(max_examples=20, deadline=None)
@given(st.binary(min_size=32, max_size=32), st.binary(max_size=200))
def test_the_referee_accepts_what_is_signed_and_nothing_else(seed: bytes, body: bytes) -> None:
    signer = TenantSigner([Secret(new_private_key(seed))])
    (entry,) = signer.sign(b"dlv_1", b"1700000000", body, now=0)
    key = b64decode(signer.public_keys[0].value.removeprefix("whpk_"))
    signature = b64decode(entry.removeprefix(b"v1a,"))
    assert verifies(key, b"dlv_1.1700000000." + body, signature)
    assert not verifies(key, b"dlv_1.1700000001." + body, signature)


def test_a_key_that_was_rotated_out_signs_until_its_overlap_ends() -> None:
    keys: tuple[Secret, ...] = (Secret(new_private_key(b"a" * 32)),)
    keys = rotated(keys, new_private_key(b"b" * 32), now=1_000, overlap_ms=500)
    signer = TenantSigner(keys)
    assert [len(signer.sign(b"d", b"1", b"", now=now)) for now in (1_000, 1_499, 1_500)] == [
        2,
        2,
        1,
    ]
    assert [it.until for it in signer.public_keys] == [None, 1_500]


def test_no_private_key_is_in_a_representation() -> None:
    private = new_private_key(b"a" * 32)
    assert private not in repr(TenantSigner([Secret(private)]))
    assert private[5:] not in repr(public_key(private))
