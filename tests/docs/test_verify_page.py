"""Every program on the page about signatures, run against a signature that we made."""

from __future__ import annotations

import base64
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from homing.model import Secret
from homing.policy.signature import Signer, TenantSigner, new_private_key

PAGE = Path(__file__).resolve().parents[2] / "docs" / "howto" / "verify-a-webhook-signature.md"
SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
BODY = '{"id":"evt_1","data":"ümlaut"}'.encode()
HOW = {  # language → file name, what builds it, what runs it
    "python": ("verify.py", "", "python3 verify.py"),
    "javascript": ("verify.js", "", "node verify.js"),
    "go": ("verify.go", "go build -o verify verify.go", "./verify"),
    "java": ("Verify.java", "javac Verify.java", "java Verify"),
    "bash": ("verify.sh", "", "bash verify.sh"),
}


HMAC, ED25519 = PAGE.read_text().split("\n## Ed25519 (v1a)\n")
HOW_ED25519 = {  # the python that runs the tests has cryptography
    "python": ("verify.py", "", f"{sys.executable} verify.py"),
    "javascript": HOW["javascript"],
    "go": HOW["go"],
}


def params(languages: Iterable[str]) -> list[Any]:
    """Each language; the compiler of Go takes longest."""
    marks = {"go": [pytest.mark.long]}
    return [pytest.param(it, marks=marks.get(it, [])) for it in languages]


def program(language: str, part: str) -> str:
    """The last program of a part of the page in this language."""
    found = re.findall(rf"```{language}\n(.*?)```", part, re.DOTALL)
    return str(found[-1])


def test_the_page_shows_just_these_languages() -> None:
    assert set(re.findall(r"```(\w+)", HMAC)) == set(HOW)
    assert set(re.findall(r"```(\w+)", ED25519)) == {*HOW_ED25519, "sh"}


@pytest.mark.parametrize("language", params(HOW_ED25519))
def test_a_program_for_ed25519_takes_the_right_signature_and_refuses_others(
    language: str, tmp_path: Path
) -> None:
    name, build, run = HOW_ED25519[language]
    tool = (build or run).split()[0]
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed here")
    (tmp_path / name).write_text(program(language, ED25519))
    if build:
        subprocess.run(build.split(), cwd=tmp_path, check=True)
    signer, stranger = (TenantSigner([Secret(new_private_key(bytes([n]) * 32))]) for n in (1, 2))

    def signed(by: TenantSigner, webhook_id: bytes = b"dlv_1") -> str:
        return by.sign(webhook_id, b"1700000000", BODY, now=0)[0].decode()

    def ends_with(signature: str, body: bytes = BODY) -> int:
        environ = {
            **os.environ,
            "PUBLIC_KEY": signer.public_keys[0].value,
            "ID": "dlv_1",
            "TIMESTAMP": "1700000000",
            "SIGNATURE": signature,
        }
        ran = subprocess.run(run.split(), cwd=tmp_path, env=environ, input=body, check=False)
        return ran.returncode

    right = signed(signer)
    hmac = Signer(SECRET).sign(b"dlv_1", b"1700000000", BODY).decode()
    assert ends_with(right) == 0
    assert ends_with(f"{hmac} {signed(stranger)} {right}") == 0
    assert ends_with(signed(stranger)) == 1
    assert ends_with(signed(signer, b"dlv_2")) == 1
    assert ends_with(right, BODY + b" ") == 1
    assert ends_with(hmac) == 1


@pytest.mark.parametrize("language", params(HOW))
def test_a_program_takes_the_right_signature_and_refuses_others(
    language: str, tmp_path: Path
) -> None:
    name, build, run = HOW[language]
    needed = [(build or run).split()[0], *(["openssl"] if language == "bash" else [])]
    missing = [tool for tool in needed if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"{missing[0]} is not installed here")
    (tmp_path / name).write_text(program(language, HMAC))
    if build:
        subprocess.run(build.split(), cwd=tmp_path, check=True)
    right = Signer(SECRET).sign(b"dlv_1", b"1700000000", BODY).decode()
    other = Signer(SECRET).sign(b"dlv_2", b"1700000000", BODY).decode()

    def ends_with(signature: str, body: bytes = BODY) -> int:
        environ = {
            **os.environ,
            "SECRET": SECRET,
            "ID": "dlv_1",
            "TIMESTAMP": "1700000000",
            "SIGNATURE": signature,
        }
        ran = subprocess.run(run.split(), cwd=tmp_path, env=environ, input=body, check=False)
        return ran.returncode

    assert ends_with(right) == 0
    assert ends_with(f"{other} {right}") == 0
    assert ends_with(other) == 1
    assert ends_with(right, BODY + b" ") == 1
