"""The house rules that a machine can check."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
PAGES = sorted(path for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
NO_NAMES = {"utils", "helpers", "common", "manager", "service", "misc"}


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", [*SOURCES, *TESTS], ids=name)
def test_a_module_opens_with_a_sentence_and_has_a_name_of_its_own(path: Path) -> None:
    text = path.read_text()
    opening = (ast.get_docstring(ast.parse(text)) or "").split("\n\n")[0]
    assert opening.endswith((".", ":", "``")), "no opening sentence"
    assert path.stem not in NO_NAMES


@pytest.mark.parametrize(
    ("pattern", "home", "reason"),
    [
        (
            r"\bos\.environ|\bgetenv\(",
            "homing/server/settings/",
            "only server/settings reads the environment",
        ),
        (
            r"\btime\.(time|monotonic|perf_counter)(_ns)?\b|datetime\.(now|utcnow)\(",
            "homing/net/clock.py homing_client/time_and_random.py",
            "only net/clock reads time, and homing_client/time_and_random for the client",
        ),
        (
            r"\b(SELECT|DELETE)\b[^\n]*\bFROM\b|\bINSERT INTO\b|\bUPDATE \w+ SET\b",
            "homing/store/ homing_client/outbox.py",
            "only store holds SQL, and homing_client/outbox for callers' databases",
        ),
        (
            r"\bimport random\b|\brandom\.\w|\bsecrets\.(token|rand|choice)",
            "homing/engine/operate.py homing/engine/keys.py homing/engine/notice_targets.py"
            " homing/store/postgres.py homing/store/encryption.py homing/net/oauth.py homing/cli/"
            " homing/server/admin_key.py homing/server/encryption_key.py homing/server/wiring.py"
            " homing_client/time_and_random.py",
            "random is an argument",
        ),
        (
            r"\bcasefold\b|\blower\(\)[^\n]*\b(person|groups?|who)\b",
            "-",
            "policy/text (ascii_lower) compares names: folding makes two different names one",
        ),
    ],
    ids=["environment", "time", "sql", "random", "case"],
)
def test_each_part_of_the_world_has_one_door(pattern: str, home: str, reason: str) -> None:
    for path in SOURCES:
        inside = str(path.relative_to(ROOT / "src"))
        if not inside.startswith(tuple(home.split())):
            found = re.search(pattern, path.read_text())
            assert found is None, f"{inside}: {found and found.group(0)!r}: {reason}"


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_links_between_pages_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", path.read_text()):
        if "://" not in target:
            assert (path.parent / target).exists(), target


TITLED = [path for path in PAGES if path.parent.name in {"tutorial", "howto", "explanation"}]


@pytest.mark.parametrize("path", TITLED, ids=name)
def test_the_file_name_of_a_page_follows_its_title(path: Path) -> None:
    title = path.read_text().split("\n")[0].removeprefix("# ").partition(":")[0]
    assert path.stem == re.sub(r"[^a-z0-9]+", "-", title.lower())


NEVER_SLEEP = ("app", "bench", "browser", "docs", "languages", "policy", "server", "tidy")
ON_VIRTUAL_TIME = ("engine", "simulation")
BLOCKS_A_THREAD = "test_simulate_trouble.py"  # which must take no virtual time


def sleeps(path: Path) -> list[str]:
    """The calls in a test that let time pass; a sleep of 0 lets other tasks run."""
    calls = (it for it in ast.walk(ast.parse(path.read_text())) if isinstance(it, ast.Call))
    texts = (ast.unparse(it) for it in calls)
    return [it for it in texts if re.match(r"(\w+\.)*sleep\((?!0\))", it)]


def test_only_tests_of_real_processes_sockets_and_databases_wait() -> None:
    for path in TESTS:
        folder = path.relative_to(ROOT / "tests").parts[0]
        if folder in NEVER_SLEEP:
            assert sleeps(path) == [], name(path)
        elif folder in ON_VIRTUAL_TIME and path.name != BLOCKS_A_THREAD:
            assert [it for it in sleeps(path) if not it.startswith("asyncio.")] == [], name(path)
