#!/bin/sh
# Prints the path of the Python that .venv is made with: the newest one of TESTED on the PATH. A Python newer than those
# is taken only if there is no other. PYTHON=/path/to/python names one instead. Notes and errors go to standard error.
# With a version (tools/find_python.sh 3.12) it prints the Python of that version, from the PATH or from pyenv, uv or asdf,
# or it prints nothing and exits with 1.
set -u
TESTED="3.11 3.12 3.13"

PROBE='
import sys
try:
    import ensurepip, venv
    ensurepip.version()
    able = "able"
except Exception:
    able = "unable"
print("%d.%d %s %s" % (sys.version_info[0], sys.version_info[1], able, sys.executable))
'

say() { echo "$@" >&2; }

# The rank of a version: tested ones first, the newest of them highest; then newer ones, the oldest of them highest.
rank() {
    case " $TESTED " in *" $1 "*) echo "1${1#3.}00"; return ;; esac
    case $1 in
        3.1[4-9] | 3.[2-9][0-9]) echo $((1000 - ${1#3.})) ;;
        *) echo 0 ;;
    esac
}

best_rank=0
best=""
unable=""
seen=""
wanted=${1:-}
if [ -n "$wanted" ]; then
    home=${HOME:-/}
    set -- "python$wanted" python3 python "${PYENV_ROOT:-$home/.pyenv}/versions/$wanted".*/bin/python \
        "$home/.local/share/uv/python/cpython-$wanted".*/bin/python "$home/.asdf/installs/python/$wanted".*/bin/python
elif [ -n "${PYTHON:-}" ]; then
    set -- "$PYTHON"
else
    set -- python3.15 python3.14 python3.13 python3.12 python3.11 python3 python
fi
for name; do
    found=$("$name" -c "$PROBE" 2>/dev/null) || continue
    version=${found%% *} rest=${found#* }
    able=${rest%% *} path=${rest#* }
    seen="$seen $name ($version)"
    [ "${wanted:-$version}" = "$version" ] || continue
    this=$(rank "$version")
    [ "$this" -gt 0 ] || continue
    if [ "$able" = unable ]; then
        unable="$unable $version"
    elif [ "$this" -gt "$best_rank" ]; then
        best_rank=$this best=$path best_version=$version
    fi
done

if [ -n "$wanted" ]; then
    [ -n "$best" ] && echo "$best"
    exit
fi
if [ -n "$best" ]; then
    case " $TESTED " in *" $best_version "*) ;; *)
        say "Note: Homing is tested with Python $TESTED. Python $best_version is newer: packages that have no wheel for it"
        say "are compiled, which needs a C compiler." ;;
    esac
    echo "$best"
    exit 0
fi

say "Homing needs Python 3.11, 3.12 or 3.13 with its venv module."
if [ -n "$unable" ]; then
    version=${unable# } version=${version%% *}
    say "  Python $version is here, but it cannot make a virtual environment."
    say "  Debian, Ubuntu:  apt-get install python$version-venv"
    exit 1
fi
if [ -n "$seen" ]; then
    say "  Found only:$seen."
else
    say "  Found none${PYTHON:+ at $PYTHON}."
fi
say "  Debian, Ubuntu:  apt-get install python3 python3-venv"
say "  Fedora:          dnf install python3.13"
say "  macOS:           brew install python@3.13"
say "  All others:      https://www.python.org/downloads/"
say "If you have one that is not on the PATH, name it:  make run PYTHON=/path/to/python3.12"
exit 1
