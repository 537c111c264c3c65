"""``homing subscribe`` with the files of a certificate, and what ``homing doctor`` says of it."""

from __future__ import annotations

from pathlib import Path

from cli.terminal import Terminal
from net.certificates import DAY, NOW, a_client_certificate

URL = "https://receiver.example/mtls"


def _files(terminal: Terminal, pair: tuple[str, str], name: str) -> tuple[str, ...]:
    certificate, key = Path(terminal.place, f"{name}.pem"), Path(terminal.place, f"{name}.key")
    certificate.write_text(pair[0])
    key.write_text(pair[1])
    return ("--client-certificate", str(certificate), "--client-key", str(key))


def test_a_certificate_and_its_key_are_read_from_files(terminal: Terminal) -> None:
    pair = a_client_certificate("from files")
    options = _files(terminal, pair, "good")
    done = terminal.well("subscribe", URL, *options, "--ca-certificates", options[1])
    assert "CN=from files, expires at 20" in done.out
    assert "1 certificate" in done.out
    made = terminal.well("subscribe", URL, *options, "--json").document
    assert made["client_key"] == "****"
    assert made["certificate"]["subject"] == "CN=from files"
    secret = pair[1].splitlines()[1]
    assert secret not in done.out + terminal.well("subscriptions", "--json").out


def test_a_file_that_is_missing_or_wrong_is_named_with_its_option(terminal: Terminal) -> None:
    missing = terminal.run("subscribe", URL, "--client-key", "/no/such.key")
    assert missing.code == 2
    assert "--client-key /no/such.key cannot be read: No such file" in missing.err
    good, other = a_client_certificate(), a_client_certificate()
    options = _files(terminal, (good[0], other[1]), "mixed")
    refused = terminal.run("subscribe", URL, *options)
    assert refused.code == 1
    assert "client_key" in refused.err
    assert "does not fit the client certificate" in refused.err
    large = Path(terminal.place, "large.pem")
    large.write_text("x" * 100_000)
    refused = terminal.run("subscribe", URL, "--ca-certificates", str(large))
    assert "must be at most 65,536 characters" in refused.err


def test_the_doctor_warns_of_a_certificate_that_expires(terminal: Terminal) -> None:
    def check() -> tuple[str, str]:
        checks = terminal.run("doctor", "--json").document["checks"]
        (found,) = [one for one in checks if one["name"] == "certs"]
        return found["status"], found["sentence"]

    assert check()[0] == "ok"
    soon = a_client_certificate("soon", until=NOW + 3 * DAY)
    terminal.well("subscribe", URL, *_files(terminal, soon, "soon"))
    status, sentence = check()
    assert status == "warning"
    assert "CN=soon" in sentence
    assert "expires at 20" in sentence


def test_the_doctor_reads_the_files_of_the_settings(tmp_path: Path) -> None:
    here = Terminal(tmp_path)
    options = _files(here, a_client_certificate("ours", until=NOW + 3 * DAY), "ours")
    other = _files(here, a_client_certificate(), "other")
    (tmp_path / "homing.toml").write_text(
        f'client_certificate_file = "{options[1]}"\nclient_key_file = "{options[3]}"\n'
        f'[tenants.acme]\nclient_certificate_file = "{options[1]}"\n'
        f'client_key_file = "{other[3]}"\n'
    )
    checks = here.run("doctor", "--json").document["checks"]
    found = [(one["status"], one["sentence"]) for one in checks if one["name"] == "tls"]
    assert [status for status, _ in found] == ["warning", "error"]
    assert "of this installation is valid until 20" in found[0][1]
    assert "of the tenant acme cannot be used: the key" in found[1][1]
