#!/bin/sh
# Writes requirements.lock and requirements-dev.lock: every package with its version and the hashes of all its files, for
# Python 3.11 and newer on every platform; homing-client is left out, because it is in this repository. uv is installed for
# this into a directory that is removed afterwards.
# The first argument is a Python; all others go to `uv pip compile`, as in: tools/lock.sh python3 --upgrade-package rich
set -eu
python=$1
shift
[ $# -gt 0 ] || set -- --upgrade
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
"$python" -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check uv

compile() {
    "$place/venv/bin/uv" pip compile pyproject.toml --quiet --universal --python-version 3.11 --generate-hashes \
        --group build --no-emit-package homing-client --no-emit-index-url --no-emit-find-links \
        --custom-compile-command "make lock" "$@"
}

compile --output-file requirements.lock "$@"
compile --extra dev --extra bench --constraint requirements.lock --output-file requirements-dev.lock "$@"
echo "Renewed requirements.lock ($(grep -c == requirements.lock) packages) and" \
    "requirements-dev.lock ($(grep -c == requirements-dev.lock) packages). Run the tests before you commit them."
