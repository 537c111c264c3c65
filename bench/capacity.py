"""How many processes, cores, disks and cells a load needs, by what was measured here.

``python -m bench.capacity --deliveries-per-second 50000 --size 1k --retention 30d`` prints it. The
CPU time of Homing per delivery is that of part e in ``latest.json`` (batches on PostgreSQL). What a
delivery costs PostgreSQL (CPU time, write-ahead log, bytes at rest) is in ``capacity.json``, for
data of two sizes; ``python -m bench.capacity --measure`` writes that file again. The model is the
straight line through both, and a test compares it with two other sizes that were measured. From
about 2,000 bytes on PostgreSQL compresses data, which the model leaves out.

It is a model for one delivery per event whose first attempt succeeds. A failed attempt costs about
as much as a delivery, so with 10 % of failures multiply by 1.1.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import shutil
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from msgspec import Struct

HERE = Path(__file__).parent
LATEST, MEASURED = HERE / "latest.json", HERE / "capacity.json"

USED = 0.6  # of a core or a disk: what is planned to be used in the mean
CELL_CORES = 16  # of the PostgreSQL of one cell
CELL_WAL_MB = 100  # per second that its disk writes
DAY_S = 86_400
SIZES = (256, 1_800)  # bytes of data that the model is made from
CHECKS = (640, 1_024)  # bytes of data that it is checked with
EVENTS = 6_000  # in each run

_UNITS = {"": 1, "b": 1, "k": 1_024, "kb": 1_024, "m": 1 << 20, "mb": 1 << 20}


class Costs(Struct, frozen=True):
    """What one delivery costs, its event and its publishing included."""

    homing_cpu_us: float
    postgres_cpu_us: float
    wal_bytes: float
    rest_bytes: float  # in tables and indexes, until retention removes them
    commits: float


class Plan(Struct, frozen=True):
    """What a load needs."""

    processes: int  # of Homing, a core each
    homing_cores: float
    postgres_cores: float
    wal_mb_s: float
    disk_tb: float
    cells: int
    rows_a_month: int  # deliveries, events and their keys


def measured_points(text: str, part: str = "sizes") -> dict[int, dict[str, float]]:
    """The measured costs by bytes of data."""
    return {int(size): found for size, found in json.loads(text)[part].items()}


def homing_cpu_us(latest: dict[str, Any]) -> float:
    """The CPU time of Homing per delivery on PostgreSQL: the median of all rounds."""
    each = [
        part["details"]["server_cpu_us_each"]
        for one in latest["rounds"]
        for part in one
        if part["part"] == "e"
    ]
    return float(median(each))


def costs_of(size: int, points: dict[int, dict[str, float]], *, cpu_us: float) -> Costs:
    """Per delivery with data of this size; outside the measured sizes the line goes on."""
    sizes = sorted(points)
    upper = next((it for it in sizes[1:] if size <= it), sizes[-1])
    lower = sizes[sizes.index(upper) - 1]
    share = (size - lower) / (upper - lower)

    def at(name: str) -> float:
        return points[lower][name] + share * (points[upper][name] - points[lower][name])

    return Costs(
        homing_cpu_us=cpu_us,
        postgres_cpu_us=max(at("postgres_cpu_us"), 0.0),
        wal_bytes=at("wal_bytes"),
        rest_bytes=at("rest_bytes"),
        commits=at("commits"),
    )


def plan(costs: Costs, *, per_second: float, retention_s: float) -> Plan:
    """What this many deliveries a second need, if they never pause."""
    homing = per_second * costs.homing_cpu_us / 1e6
    postgres = per_second * costs.postgres_cpu_us / 1e6
    wal = per_second * costs.wal_bytes / 1e6
    cells = max(math.ceil(postgres / (CELL_CORES * USED)), math.ceil(wal / (CELL_WAL_MB * USED)), 1)
    return Plan(
        processes=max(math.ceil(homing / USED), 1),
        homing_cores=homing,
        postgres_cores=postgres,
        wal_mb_s=wal,
        disk_tb=per_second * retention_s * costs.rest_bytes / 1e12,
        cells=cells,
        rows_a_month=round(per_second * 30 * DAY_S * 3),
    )


def read_size(text: str) -> int:
    """Bytes; raises ValueError."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([kKmM]?[bB]?)", text.strip())
    if found is None:
        raise ValueError("must be a size like 300, 1k or 1m")
    return round(float(found[1]) * _UNITS[found[2].lower()])


def read_days(text: str) -> float:
    """Seconds; raises ValueError."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([dh])", text.strip())
    if found is None:
        raise ValueError("must be a time like 30d or 12h")
    return float(found[1]) * (DAY_S if found[2] == "d" else 3_600)


def lines(
    found: Plan, costs: Costs, *, per_second: float, size: int, retention_s: float
) -> list[str]:
    share = f"{USED:.0%}"
    return [
        f"{per_second:,.0f} deliveries/s with {size:,} bytes of data, kept for"
        f" {retention_s / DAY_S:g} days",
        f"  one delivery        {costs.homing_cpu_us:.0f} us CPU of Homing,"
        f" {costs.postgres_cpu_us:.0f} us of PostgreSQL, {costs.commits:.3f} commits,"
        f" {costs.wal_bytes:,.0f} bytes of WAL, {costs.rest_bytes:,.0f} bytes at rest",
        f"  Homing              {found.processes:,} processes, {found.homing_cores:.1f} cores busy"
        f" (planned at {share} of a core each)",
        f"  PostgreSQL          {found.postgres_cores:.1f} cores busy, {found.wal_mb_s:,.0f} MB/s"
        " of WAL, in all cells",
        f"  disk                {found.disk_tb:,.1f} TB in all cells",
        f"  cells               {found.cells:,} (each at {share} of {CELL_CORES} cores and of"
        f" {CELL_WAL_MB} MB/s)",
        f"  rows a month        {found.rows_a_month:,} inserted",
    ]


def measure() -> dict[str, Any]:
    """Run a server on PostgreSQL with data of each size; the receiver shares the machine."""
    from bench.measure import QUICK
    from bench.parts import BATCH, BATCH_CONNECTIONS, Hall, flood
    from bench.postgres import Postgres
    from bench.processes import Receiver, Server

    postgres, found = Postgres(), {}
    with tempfile.TemporaryDirectory(prefix="homing-capacity-") as place, Receiver() as receiver:
        hall = Hall(receiver, Path(place), postgres, QUICK)
        try:
            for size in sorted((*SIZES, *CHECKS)):
                url = postgres.database()

                def counters(url: str = url) -> dict[str, float]:
                    return {
                        "wal_bytes": postgres.wal()["wal_bytes"],
                        "rest_bytes": postgres.size(url),
                        "postgres_cpu_us": postgres.cpu_s() * 1e6,
                    }

                data = hall.folder / hall.name()
                with Server(data, database_url=url) as server:
                    server.subscribe(hall.receiver)
                    one = flood(
                        hall,
                        server,
                        count=EVENTS,
                        batch=BATCH,
                        connections=BATCH_CONNECTIONS,
                        body_bytes=size,
                        counters=counters,
                    )
                shutil.rmtree(data, ignore_errors=True)
                names = ("wal_bytes", "rest_bytes", "postgres_cpu_us")
                found[size] = {name: round(one[f"{name}_each"], 1) for name in names}
                found[size]["homing_cpu_us"] = round(one["server_cpu_us_each"], 1)
                found[size]["commits"] = round(sum(one["commits"].values()) / EVENTS, 4)
                print(size, found[size], flush=True)
        finally:
            postgres.end()
    return {
        "events": EVENTS,
        "sizes": {size: found[size] for size in SIZES},
        "checks": {size: found[size] for size in CHECKS},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--deliveries-per-second", type=float, default=1_000)
    parser.add_argument("--size", default="1k", help="of the data of an event, such as 300 or 1k")
    parser.add_argument("--retention", default="30d")
    parser.add_argument("--measure", action="store_true", help="measure PostgreSQL's part again")
    asked = parser.parse_args()
    if asked.measure:
        MEASURED.write_text(json.dumps(measure(), indent=1) + "\n")
    try:
        size, retention_s = read_size(asked.size), read_days(asked.retention)
    except ValueError as error:
        parser.error(str(error))
    cpu_us = homing_cpu_us(json.loads(LATEST.read_text()))
    costs = costs_of(size, measured_points(MEASURED.read_text()), cpu_us=cpu_us)
    per_second = asked.deliveries_per_second
    found = plan(costs, per_second=per_second, retention_s=retention_s)
    for line in lines(found, costs, per_second=per_second, size=size, retention_s=retention_s):
        print(line)


if __name__ == "__main__":
    main()
