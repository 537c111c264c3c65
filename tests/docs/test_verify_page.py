"""Every program on the page about signatures, run against a signature that we made."""

from __future__ import annotations

import base64
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from homing.policy.signature import Signer

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


def program(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    return found.group(1)


def test_the_page_shows_just_these_languages() -> None:
    assert set(re.findall(r"```(\w+)", PAGE.read_text())) == set(HOW)


@pytest.mark.parametrize("language", HOW)
def test_a_program_takes_the_right_signature_and_refuses_others(
    language: str, tmp_path: Path
) -> None:
    name, build, run = HOW[language]
    needed = [(build or run).split()[0], *(["openssl"] if language == "bash" else [])]
    missing = [tool for tool in needed if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"{missing[0]} is not installed here")
    (tmp_path / name).write_text(program(language))
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
