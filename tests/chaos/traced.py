"""A program under strace, which kills it or lets a call fail at the N-th of one kind.

``CHAOS_PROGRAM`` is what Python runs, ``CHAOS_TRACE`` where the trace goes,
``CHAOS_CALLS`` what is counted, ``CHAOS_INJECT`` what is done to one of these calls instead.
"""

from __future__ import annotations

import os
import shlex
import sys


def command(environ: dict[str, str], words: list[str]) -> list[str]:
    # Without --seccomp-bpf, however much faster: with it, strace 6.1 miscounts what to inject.
    tracer = ["strace", "-f", "-q", "-o", environ["CHAOS_TRACE"]]
    if fault := environ.get("CHAOS_INJECT"):
        tracer += ["-e", f"trace={fault.split(':')[0]}", "-e", f"inject={fault}"]
    else:
        tracer += ["-e", f"trace={environ['CHAOS_CALLS']}"]
    return [*tracer, sys.executable, *shlex.split(environ["CHAOS_PROGRAM"]), *words]


if __name__ == "__main__":
    line = command(dict(os.environ), sys.argv[1:])
    os.execvp(line[0], line)
