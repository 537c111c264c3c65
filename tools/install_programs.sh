#!/bin/sh
# Installs the programs that some tests use and PyPI does not have, as far as they are missing, and names the tests that are
# skipped without them. It installs only as root on Debian, all of them with one call of apt-get: two at the same time would
# fail, because the second finds apt's lock taken.
#
#   tools/install_programs.sh NAME...    of: chromium pgbouncer libfaketime nginx tinyproxy patroni
set -u
PATH=$PATH:/usr/sbin:/sbin

missing() {
    case $1 in
        chromium) ! command -v chromium && ! command -v chromium-browser ;;
        libfaketime) ! ls /usr/lib/*/faketime/libfaketimeMT.so.1 ;;
        patroni) ! { command -v patroni && command -v etcd; } ;;
        *) ! command -v "$1" ;;
    esac >/dev/null 2>&1
}

packages_of() {
    case $1 in
        nginx) echo nginx-light ;;
        tinyproxy) echo tinyproxy-bin ;;
        patroni) echo postgresql patroni etcd-server etcd-client ;;
        *) echo "$1" ;;
    esac
}

tests_of() {
    case $1 in
        chromium) echo "the browser tests" ;;
        libfaketime) echo "the tests that change a server's clock" ;;
        tinyproxy) echo "the tests with a proxy" ;;
        patroni) echo "the test of the page on Patroni" ;;
        *) echo "the tests with $1" ;;
    esac
}

install() { DEBIAN_FRONTEND=noninteractive apt-get install -qq -y -o DPkg::Lock::Timeout=300 "$@" >/dev/null 2>&1; }

packages=""
for name; do
    missing "$name" && packages="$packages $(packages_of "$name")"
done
if [ -n "$packages" ] && command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
    echo "Installing with apt-get:$packages"
    # shellcheck disable=SC2086 # one word for each package
    install $packages || { apt-get update -qq >/dev/null 2>&1 && install $packages; }
fi
for name; do
    missing "$name" && echo "$name is not installed; skipped: $(tests_of "$name")"
done
exit 0
