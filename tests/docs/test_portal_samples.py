"""The code that the customer portal shows for verifying requests, run in each language."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from homing.policy.signature import Signer
from homing.web.portal.pages import SAMPLES, sample_code

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
OTHER = "whsec_" + base64.b64encode(bytes(32)).decode()
BODY = '{"id":"evt_1","data":"ümlaut"}'.encode()

# For each language: the files besides the sample, its own name, what builds it, what runs it. Each
# program reads a secret, headers and a body from standard input, and ends with 0 if they fit.
MAIN: dict[str, tuple[str, str, str, str, str]] = {
    "python": (
        "webhook.py",
        "main.py",
        "import base64, json, sys\nsys.path.insert(0, '.')\nfrom webhook import verify\n"
        "it = json.load(sys.stdin)\n"
        "sys.exit(not verify(it['secret'], it['headers'], base64.b64decode(it['body'])))\n",
        "",
        f"{sys.executable} -I -S main.py",
    ),
    "javascript": (
        "webhook.js",
        "main.js",
        "const check = eval(require('fs').readFileSync('webhook.js', 'utf8') + '; verify');\n"
        "const it = JSON.parse(require('fs').readFileSync(0));\n"
        "const body = Buffer.from(it.body, 'base64');\n"
        "process.exit(check(it.secret, it.headers, body) ? 0 : 1);\n",
        "",
        "node main.js",
    ),
    "go": (
        "webhook.go",
        "main.go",
        'package main\n\nimport (\n\t"encoding/json"\n\t"net/http"\n\t"os"\n)\n\n'
        "func main() {\n\tvar it struct {\n\t\tSecret  string\n\t\tHeaders map[string]string\n"
        "\t\tBody    []byte\n\t}\n\tif json.NewDecoder(os.Stdin).Decode(&it) != nil {\n"
        "\t\tos.Exit(2)\n\t}\n\theaders := http.Header{}\n"
        "\tfor name, value := range it.Headers {\n\t\theaders.Set(name, value)\n\t}\n"
        "\tif !verify(it.Secret, headers, it.Body) {\n\t\tos.Exit(1)\n\t}\n}\n",
        "go build -o main webhook.go main.go",
        "./main",
    ),
    "java": (
        "Webhook.java",
        "Main.java",
        "import java.util.*;\n\npublic class Main {\n"
        "    public static void main(String[] args) throws Exception {\n"
        "        Scanner in = new Scanner(System.in);\n        String secret = in.nextLine();\n"
        "        byte[] body = Base64.getDecoder().decode(in.nextLine());\n"
        "        Map<String, String> headers = new HashMap<>();\n"
        "        while (in.hasNextLine()) {\n"
        '            String[] pair = in.nextLine().split(": ", 2);\n'
        "            headers.put(pair[0], pair[1]);\n        }\n"
        "        System.exit(Webhook.verify(secret, headers, body) ? 0 : 1);\n    }\n}\n",
        "javac Webhook.java Main.java",
        "java Main",
    ),
    "php": (
        "webhook.php",
        "main.php",
        "<?php\nrequire 'webhook.php';\n"
        "$it = json_decode(stream_get_contents(STDIN), true);\n"
        "exit(verify($it['secret'], $it['headers'], base64_decode($it['body'])) ? 0 : 1);\n",
        "",
        "php main.php",
    ),
}


def languages() -> list[Any]:
    """Each language; the compilers take longest."""
    slow = {"go": [pytest.mark.long], "java": [pytest.mark.long]}
    return [pytest.param(name, marks=slow.get(name, [])) for _, name in SAMPLES]


def test_there_is_code_in_five_languages() -> None:
    assert {name for _, name in SAMPLES} == set(MAIN)
    assert len(SAMPLES) == 5


@pytest.mark.parametrize("language", languages())
def test_the_code_accepts_genuine_requests_only(language: str, tmp_path: Path) -> None:
    file, main, text, build, run = MAIN[language]
    tool = (build or run).split()[0]
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed here")
    (tmp_path / file).write_text(sample_code(language))
    (tmp_path / main).write_text(text)
    if build:
        subprocess.run(build.split(), cwd=tmp_path, check=True)

    def ends_with(*, signer: str = SECRET, age_s: int = 0, prefix: str = "", **change: Any) -> int:
        timestamp = str(int(time.time()) - age_s)
        signature = Signer(signer).sign(b"dlv_1", timestamp.encode(), BODY).decode()
        headers = {
            "webhook-id": change.get("id", "dlv_1"),
            "webhook-timestamp": change.get("timestamp", timestamp),
            "webhook-signature": prefix + signature,
        }
        body = base64.b64encode(change.get("body", BODY)).decode()
        given = json.dumps({"secret": SECRET, "headers": headers, "body": body})
        if language == "java":
            lines = [f"{name}: {value}" for name, value in headers.items()]
            given = "\n".join((SECRET, body, *lines))
        ran = subprocess.run(run.split(), cwd=tmp_path, input=given.encode(), check=False)
        return ran.returncode

    old = Signer(OTHER).sign(b"dlv_1", b"1", BODY).decode()
    assert ends_with() == 0
    assert ends_with(prefix=f"{old} ") == 0, "while a secret is rotated there are two"
    assert ends_with(prefix="v1a,abc ") == 0
    assert ends_with(signer=OTHER) == 1
    assert ends_with(body=BODY + b" ") == 1
    assert ends_with(id="dlv_2") == 1
    assert ends_with(age_s=3_600) == 1, "an old request that is sent again"
    assert ends_with(age_s=-3_600) == 1
    assert ends_with(timestamp="soon") == 1
