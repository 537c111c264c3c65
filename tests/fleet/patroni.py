"""The page on Patroni and etcd, followed on one machine.

Files and commands are those of the page, but for what one machine must have otherwise:

- 10.0.0.x, the addresses of the page, become addresses of the loopback network (127.a.b.x), and the
  network 10.0.0.0/24 becomes 127.0.0.0/8; ports stay as they are.
- /etc/, /var/lib/ and /var/run/ are in a directory of each machine.
- The version of PostgreSQL in paths is the newest one that Debian has installed here.
- There is no systemd: ``systemctl start UNIT`` runs the command of the unit's file as Debian has
  installed it, and as the user ``postgres`` if this is root; ``systemctl enable`` only checks that
  Debian has such a unit.
- The commands that install packages are not run: the packages must be there.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil  # type: ignore[import-untyped]

from postgres import fast_folder

PAGE = Path(__file__).parents[2] / "docs/howto/run-postgresql-with-patroni.md"
PROGRAMS = Path("/usr/lib/postgresql")
UNITS = (Path("/lib/systemd/system"), Path("/etc/systemd/system"))
MACHINES = {"db1": 11, "db2": 12, "etcd1": 21}
WITHIN_S = 120.0
_LIST = "patronictl -c /etc/patroni/homing.yml list"
_BLOCK = re.compile(r"```(?:sh|yaml)?\n# on ([^\n]*)\n(.*?)```", re.DOTALL)
_UNIT_LINE = re.compile(r"^(ExecStart|EnvironmentFile)=-?(.*)$", re.MULTILINE)


class Block(NamedTuple):
    """Where a block of the page belongs, and its text."""

    where: str
    text: str


def blocks(heading: str) -> list[Block]:
    """The blocks below a heading of the page."""
    _, _, rest = PAGE.read_text().partition(f"\n## {heading}\n")
    assert rest, heading
    section = rest.partition("\n## ")[0]
    found = [Block(where, text) for where, text in _BLOCK.findall(section)]
    assert len(found) == section.count("```") // 2, f"a block below {heading} names no machine"
    return found


def missing() -> str:
    """Why the page cannot be followed here; empty if it can."""
    packages = [re.findall(r"apt-get install -y (.*)", it.text) for it in blocks(_INSTALL)]
    for name in " ".join(it for found in packages for it in found).split():
        asked = ["dpkg-query", "--show", "--showformat=${db:Status-Status}", name]
        try:
            done = subprocess.run(asked, capture_output=True, text=True, check=False)
        except OSError:
            return "this is not Debian"
        if done.stdout != "installed":
            return f"the Debian package {name} is not installed"
    return ""


_INSTALL = "Install the packages"


class Cluster:
    """etcd and two members of Patroni, as the page sets them up; made by ``cluster``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._version = max((it.name for it in PROGRAMS.iterdir()), key=int)
        self._net = f"127.{os.getpid() % 250 + 1}.{os.getpid() // 250 % 250 + 1}."
        self._user = "postgres" if os.geteuid() == 0 else None
        self._services: dict[tuple[str, str], subprocess.Popen[bytes]] = {}
        folder.chmod(0o755)
        for machine in MACHINES:
            for name in ("etc/default", "etc/patroni", "var/run/postgresql", "var/lib/etcd"):
                (folder / machine / name).mkdir(parents=True)
            (folder / machine / f"var/lib/postgresql/{self._version}").mkdir(parents=True)
        if self._user is not None:
            entry = pwd.getpwnam(self._user)
            for place in (folder, *folder.rglob("*")):
                os.chown(place, entry.pw_uid, entry.pw_gid)

    def set_up(self) -> str:
        """Follow the page until Homing can start; the address for Homing."""
        self.follow(blocks("Start etcd"))
        waits = iter(({"db1": "Leader"}, {"db1": "Leader", "db2": "Sync Standby"}))
        for block in blocks("Start Patroni"):
            self.follow([block])
            if _LIST in block.text:
                self.wait_for(next(waits))
        *commands, environment = blocks("Point Homing at both")
        self.follow(commands)
        name, _, address = self._here(environment.text, "").strip().partition("=")
        assert name == "HOMING_DATABASE_URL"
        return address

    def follow(self, followed: list[Block], *, machine: str = "") -> str:
        """Write the files and run the commands of blocks; what the commands print."""
        said = ""
        for where, text in followed:
            at = machine or re.split("[:, ]", where)[0]
            assert at in MACHINES, where
            if ": " in where:
                path = Path(self._here(where.partition(": ")[2], at))
                path.write_text(self._here(text, at))
                continue
            if "with the file of db1" in where:
                mine, theirs = (self._here("/etc/patroni/homing.yml", it) for it in (at, "db1"))
                shutil.copy(theirs, mine)
                copied = Path(mine).read_text().replace(self._place("db1"), self._place(at))
                Path(mine).write_text(copied)
            said += self._run(text, at)
        return said

    def _here(self, text: str, machine: str) -> str:
        """A text of the page as it must be on this machine: the docstring of this module."""
        text = text.replace("10.0.0.0/24", "127.0.0.0/8").replace("10.0.0.", self._net)
        text = text.replace(r"10\.0\.0\.", self._net.replace(".", r"\."))
        if machine:
            place = self._place(machine)
            text = re.sub(r"(?<![\w.])/(etc|var/lib|var/run)/", rf"{place}/\1/", text)
        return text.replace("/postgresql/15/", f"/postgresql/{self._version}/")

    def _place(self, machine: str) -> str:
        return str(self._folder / machine)

    # --- commands ------------------------------------------------------------------------------

    def _run(self, text: str, machine: str) -> str:
        said, environ = "", self._environ()
        for line in text.strip().splitlines():
            command = self._here(line, machine)
            if command.startswith("systemctl "):
                self._systemctl(machine, *command.split()[1:])
            elif command.startswith("export "):
                name, _, value = command.removeprefix("export ").partition("=")
                environ[name] = value
            elif self._user is not None or not command.startswith("chown "):
                said += _typed(command, environ)
        return said

    def _environ(self) -> dict[str, str]:
        """Nothing of this test: Patroni has packages of its own."""
        folders = (PROGRAMS / self._version / "bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
        path = os.pathsep.join(map(str, folders))
        return {"PATH": path, "HOME": str(self._folder), "LANG": "C.UTF-8"}

    def _systemctl(self, machine: str, verb: str, unit: str) -> None:
        name, at, instance = unit.partition("@")
        found = [
            it / f"{name}{at}.service" for it in UNITS if (it / f"{name}{at}.service").exists()
        ]
        assert found, f"Debian has no unit {unit}"
        if verb == "enable":
            return
        settings = dict(_UNIT_LINE.findall(found[0].read_text()))
        settings = {
            key: value.replace("%i", instance).replace("%p", name)
            for key, value in settings.items()
        }
        environ = self._environ()
        given = Path(self._here(settings.get("EnvironmentFile", "/nothing"), machine))
        if given.exists():
            lines = given.read_text().splitlines()
            environ |= dict(it.split("=", 1) for it in lines if "=" in it)
        command = re.sub(r"\$\w+", "", settings["ExecStart"])  # arguments that nobody has set
        with (self._folder / machine / f"{name}.log").open("ab") as log:
            self._services[machine, name] = subprocess.Popen(
                shlex.split(self._here(command, machine)),
                env=environ,
                user=self._user,
                cwd=self._place(machine),
                stdout=log,
                stderr=log,
            )

    # --- the members ---------------------------------------------------------------------------

    def roles(self) -> dict[str, str]:
        """The members that run, with their roles, as the page's command lists them."""
        listing = next(it for it in blocks("Start Patroni") if _LIST in it.text)
        rows = (
            [cell.strip() for cell in line.strip("|").split("|")]
            for line in self.follow([listing]).splitlines()
            if line.startswith("|")
        )
        running = {"running", "streaming"}
        return {row[0]: row[2] for row in rows if row[3] in running}

    def wait_for(self, wanted: dict[str, str]) -> None:
        ends_at = time.monotonic() + WITHIN_S
        while (found := self.roles()) != wanted:
            assert time.monotonic() < ends_at, f"{found}, not {wanted}\n{self.logs()}"
            time.sleep(0.5)

    def kill(self, machine: str) -> None:
        """Patroni and PostgreSQL of a machine, as when it loses power."""
        patroni = self._services.pop((machine, "patroni"))
        patroni.kill()
        patroni.wait()
        for process in self._postgres(machine):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()

    def _postgres(self, machine: str) -> list[psutil.Process]:
        data = f"{self._place(machine)}/var/lib/postgresql/{self._version}/homing"
        with contextlib.suppress(OSError, ValueError, psutil.NoSuchProcess):
            main = psutil.Process(int(Path(data, "postmaster.pid").read_text().split()[0]))
            if data in " ".join(main.cmdline()):
                return [main, *main.children(recursive=True)]
        return []

    def address_of(self, machine: str) -> tuple[str, int]:
        """Host and port of its PostgreSQL."""
        return f"{self._net}{MACHINES[machine]}", 5432

    def logs(self) -> str:
        found = sorted(self._folder.glob("*/*.log"))
        return "\n".join(f"{it}:\n{it.read_text()[-3000:]}" for it in found)

    def close(self) -> None:
        for machine in ("db1", "db2"):
            if (machine, "patroni") in self._services:
                self.kill(machine)
            for process in self._postgres(machine):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
        for service in self._services.values():
            service.kill()
            service.wait()


def _typed(command: str, environ: dict[str, str]) -> str:
    """Until it succeeds: a service needs some time until it responds."""
    ends_at = time.monotonic() + WITHIN_S
    while True:
        done = subprocess.run(
            ["bash", "-euc", command],
            env=environ,
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
            timeout=WITHIN_S,
        )
        if done.returncode == 0:
            return done.stdout + done.stderr
        assert time.monotonic() < ends_at, f"{command}\n{done.stdout}{done.stderr}"
        time.sleep(0.3)


@contextlib.contextmanager
def cluster() -> Iterator[Cluster]:
    """A cluster in a directory of its own, for a while."""
    place = Path(tempfile.mkdtemp(prefix="homing-patroni-", dir=fast_folder()))
    made = Cluster(place)
    try:
        yield made
    finally:
        made.close()
        shutil.rmtree(place, ignore_errors=True)
