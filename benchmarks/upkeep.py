"""What maintenance gains and costs, before and after in one run.

    python -m benchmarks.upkeep [telemetry|merges|health|opens] [size] [directory]

- `telemetry`: a day of spans in `size` commits (8,640), one file each, over 24 hours. A query for
  one service in one hour and one for a trace by its id, with Spark and with DuckDB, before and
  after `neve maintain`; the compaction's rate against Iceberg's `rewrite_data_files` with binpack,
  which does not sort, on the same files in the same session; and what reading a map costs against a
  promoted column, since Iceberg's vectorised reader falls back to rows for maps. With a directory,
  the lake is made there first, and a lake that is there already is measured.
- `merges`: two mirrors with 200,000 rows, `size` merges (200) of 500 changes each, one maintained
  every 20 merges, the other never. Times of ten of the last merges, and of queries, against ten of
  the first; both are as many merges after the maintenance before them.
- `health`: of `size` tables (200) on the embedded catalog.
- `opens`: how often health and maintenance open the manifests and the data files of a table with
  `size` small files (5,000).
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

import neve
from neve.api import MaintenancePlan, MaintenanceReport, OpenLake
from neve.config import Settings
from neve.merge.merger import configured_mergers
from neve.telemetry.schemas import SCHEMAS

DAY = datetime(2026, 11, 10, tzinfo=timezone.utc)
SERVICES = 20
SPANS = 300
ROUNDS = 3
MERGES_A_MAINTENANCE = 20
TRACES = "otel.traces"


def report(name: str, value: float, unit: str, ratio: float | None, wanted: str) -> None:
    line = {"name": name, "value": round(value, 4), "unit": unit}
    line |= {"ratio": None if ratio is None else round(ratio, 3), "wanted": wanted}
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def median_seconds(work: Callable[[], object], rounds: int = ROUNDS) -> float:
    work()
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def open_lake(directory: Path, **sections: object) -> OpenLake:
    document = {
        "catalog": {
            "type": "sqlite",
            "uri": f"sqlite:///{directory}/catalog.db",
            "warehouse": str(directory / "warehouse"),
        },
        "telemetry": {"promote": [{"attribute": "city"}]},
        **sections,
    }
    return neve.open(Settings.model_validate(document))


def spans(number: int, commits: int) -> pa.Table:
    """Return the spans of one commit: of all services, within some seconds."""
    chance = np.random.default_rng(number)
    step = 86_400 / commits
    at = DAY + timedelta(seconds=number * step)
    seconds = np.sort(chance.random(SPANS) * step)
    times = [at + timedelta(seconds=float(second)) for second in seconds]
    starts = [int(each.timestamp() * 1e9) for each in times]
    durations = chance.integers(10**5, 10**9, SPANS)
    # Three spans of each trace. Once for each: seeding took half of the time of making the rows.
    traces = [trace_id(number, each) for each in range(-(-SPANS // 3))]
    cities = [f"city-{each}" for each in chance.integers(0, 50, SPANS)]
    columns = {
        "timestamp": times,
        "received_at": times,
        "service_name": [f"service-{each:02}" for each in chance.integers(0, SERVICES, SPANS)],
        "resource_attributes": [[("host.name", "a"), ("k8s.pod.name", "pod-1")]] * SPANS,
        "scope_name": ["bench"] * SPANS,
        "attributes": [
            [("http.route", f"/path/{each % 40}"), ("city", city), ("order.id", str(each))]
            for each, city in enumerate(cities)
        ],
        "trace_id": [traces[each // 3] for each in range(SPANS)],
        "span_id": [f"{number:08x}{each:08x}" for each in range(SPANS)],
        "name": [f"GET /path/{each % 40}" for each in range(SPANS)],
        "kind": ["server"] * SPANS,
        "start_time_unix_nano": starts,
        "end_time_unix_nano": np.array(starts) + durations,
        "duration_nano": durations,
        "status_code": ["ok"] * SPANS,
    }
    schema = SCHEMAS["traces"]
    arrays = [
        pa.array(columns[field.name], field.type)
        if field.name in columns
        else pa.nulls(SPANS, field.type)
        for field in schema
    ]
    rows = pa.Table.from_arrays(arrays, schema=schema)
    return rows.sort_by([("service_name", "ascending"), ("timestamp", "ascending")])


def trace_id(commit: int, number: int) -> str:
    return f"{random.Random(commit * 1000 + number).getrandbits(128):032x}"


def queries(commits: int) -> dict[str, str]:
    hour = DAY + timedelta(hours=13)
    wanted = trace_id(commits // 2, 50)
    return {
        "one service in one hour": f"SELECT count(*), avg(duration_nano) FROM {TRACES} "
        f"WHERE service_name = 'service-07' AND timestamp >= timestamp '{hour.isoformat()}' "
        f"AND timestamp < timestamp '{(hour + timedelta(hours=1)).isoformat()}'",
        "one trace by its id": f"SELECT service_name, name, duration_nano FROM {TRACES} "
        f"WHERE trace_id = '{wanted}'",
    }


def ask(lake: OpenLake, commits: int) -> dict[tuple[str, str], float]:
    return {
        (name, engine): median_seconds(partial(lake.read, text, engine))
        for name, text in queries(commits).items()
        for engine in ("spark", "duckdb")
    }


def write_day(lake: OpenLake, commits: int) -> None:
    began = time.perf_counter()
    with lake.writer() as writer:
        for number in range(commits):
            assert writer.write_and_commit("traces", None, spans(number, commits)).committed
    sys.stderr.write(f"{commits} commits in {time.perf_counter() - began:.0f} s\n")


def telemetry(commits: int, directory: str | None = None) -> None:
    with tempfile.TemporaryDirectory() as other, open_lake(Path(directory or other)) as lake:
        if ("otel", "traces") not in lake.reader().list_tables():
            write_day(lake, commits)
        before = ask(lake, commits)
        (health,) = lake.health(TRACES)
        size, first = health.bytes, lake.table(TRACES).current_snapshot_id
        warm_up(lake, first)
        binpack = binpack_seconds(lake, size)
        roll_back(lake, first)
        began = time.perf_counter()
        (done,) = lake.maintain(TRACES)
        ours = time.perf_counter() - began
        after = ask(lake, commits)
        tell_telemetry(lake, health.files, done, size, binpack, ours)
        for (name, engine), seconds in after.items():
            gain = before[name, engine] / seconds
            wanted = ">= 5" if "hour" in name else ">= 10"
            report(f"{name}, {engine}, after against before", seconds, "s", gain, wanted)
            report(f"{name}, {engine}, before", before[name, engine], "s", None, "")
        tell_maps(lake)


def tell_telemetry(
    lake: OpenLake, files: int, done: MaintenanceReport, size: int, binpack: float, ours: float
) -> None:
    assert done.error is None, done
    (health,) = lake.health(TRACES)
    sys.stderr.write(f"{files} files of {size / 1e6:.0f} MB became {health.files}\n")
    report("compaction against binpack", size / 1e6 / ours, "MB/s", binpack / ours, ">= 0.8")
    amplification = 1 + done.rewritten_bytes / size
    report("write amplification (rewritten once)", amplification, "times", None, "<= 3")


def tell_maps(lake: OpenLake) -> None:
    by_service = f"SELECT service_name AS s, avg(duration_nano), max(name) FROM {TRACES} GROUP BY s"
    times = {
        name: median_seconds(partial(lake.read, text, "spark"), 3)
        for name, text in {
            "map": f"SELECT attributes['city'] AS c, count(*) FROM {TRACES} GROUP BY c",
            "promoted": f"SELECT city AS c, count(*) FROM {TRACES} GROUP BY c",
            "plain": by_service,
            "beside a map": by_service.replace(" FROM", ", count(attributes) FROM"),
        }.items()
    }
    for name, less, more in (
        ("group by a promoted column against its map, Spark", "promoted", "map"),
        ("plain columns against the same beside a map, Spark", "plain", "beside a map"),
    ):
        report(name, times[less], "s", times[more] / times[less], "")


def warm_up(lake: OpenLake, snapshot_id: int | None) -> None:
    """Compile what both ways run, on the same files, and take it back."""
    plans = lake.plan_maintenance(TRACES)
    lake.maintain(plans=[_some(plans[0], 2)])
    roll_back(lake, snapshot_id)
    hour = (DAY + timedelta(hours=2)).isoformat()
    lake.sql(
        f"CALL system.rewrite_data_files(table => '{TRACES}', "
        f"where => 'timestamp < timestamp \"{hour}\"', options => map('min-input-files', '2'))"
    ).collect()
    roll_back(lake, snapshot_id)


def _some(plan: MaintenancePlan, count: int) -> MaintenancePlan:
    return replace(plan, actions=plan.actions[:count])


def binpack_seconds(lake: OpenLake, size: int) -> float:
    options = {
        "min-input-files": "2",
        # As many files as there are hours, so that all cores have work.
        "target-file-size-bytes": str(max(size // 24, 1)),
        "max-concurrent-file-group-rewrites": "2",
    }
    pairs = ", ".join(f"'{key}', '{value}'" for key, value in options.items())
    began = time.perf_counter()
    lake.sql(
        f"CALL system.rewrite_data_files(table => '{TRACES}', options => map({pairs}))"
    ).collect()
    return time.perf_counter() - began


def roll_back(lake: OpenLake, snapshot_id: int | None) -> None:
    lake.sql(f"CALL system.rollback_to_snapshot('{TRACES}', {snapshot_id})").collect()


def merges(count: int) -> None:
    tables = [
        {
            "namespace": "shop",
            "changelog_table": f"{name}_changes",
            "mirror_table": name,
            "primary_keys": "id",
            "sequence_column": "lsn",
        }
        for name in ("kept", "left")
    ]
    with (
        tempfile.TemporaryDirectory() as directory,
        open_lake(Path(directory), merge={"tables": tables}) as lake,
    ):
        lake.catalog().create_namespace("shop")
        for name, maintained in (("kept", True), ("left", False)):
            merge_often(lake, name, count, maintained=maintained)


def merge_often(lake: OpenLake, name: str, count: int, *, maintained: bool) -> None:
    rows, changes = 200_000, 500
    schema = pa.schema(
        [("id", pa.int64()), ("name", pa.string()), ("op", pa.string()), ("lsn", pa.int64())]
    )
    changelog = lake.catalog().create_table(f"shop.{name}_changes", schema)
    (merger,) = configured_mergers(lake, (f"shop.{name}",), lambda _: None, "auto", lambda _: None)
    keys = np.arange(rows)
    merging, asking, upkeep = [], [], 0.0
    chance = np.random.default_rng(7)
    for number in range(count + 1):
        size = len(keys)
        columns = [keys, [f"row {number}"] * size, ["U"] * size, np.full(size, number + 1)]
        changelog.append(pa.Table.from_arrays([pa.array(c) for c in columns], schema=schema))
        began = time.perf_counter()
        merger.merge()
        if number:
            merging.append(time.perf_counter() - began)
            began = time.perf_counter()
            lake.read(f"SELECT count(*), max(name) FROM shop.{name} WHERE id < 50000", "duckdb")
            asking.append(time.perf_counter() - began)
        if maintained and number % MERGES_A_MAINTENANCE == 0:
            began = time.perf_counter()
            lake.maintain("shop.*")
            upkeep += time.perf_counter() - began
        keys = chance.choice(rows, changes, replace=False)
    how = "with upkeep" if maintained else "without upkeep"
    # Files gather until the next maintenance, so that merges are compared at the same distance.
    begin = (count - 1) // MERGES_A_MAINTENANCE * MERGES_A_MAINTENANCE
    for what, times in (("merge", merging), ("query", asking)):
        # The first compile what later ones run.
        first, last = (statistics.median(times[at + 5 : at + 15]) for at in (0, begin))
        wanted = "<= 1.3" if maintained else ""
        label = f"{what} {how}, ten of the last against ten of the first"
        report(label, last, "s", last / first, wanted)
    report(f"all {count} merges {how}", sum(merging), "s", None, "")
    if maintained:
        report("upkeep meanwhile", upkeep, "s", None, "")


def health(tables: int) -> None:
    with tempfile.TemporaryDirectory() as directory, open_lake(Path(directory)) as lake:
        lake.catalog().create_namespace("shop")
        schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
        for number in range(tables):
            table = lake.catalog().create_table(f"shop.table_{number}", schema)
            for _ in range(3):
                table.append(pa.table({"id": [1, 2], "name": ["a", "b"]}, schema))
        began = time.perf_counter()
        assert len(lake.health()) == tables
        report(f"health of {tables} tables", time.perf_counter() - began, "s", None, "<= 30")


def opens(files: int) -> None:
    """Count what is opened; small commits of the direct writer, all of one hour."""
    from tests.support.file_opens import counted_opens

    with tempfile.TemporaryDirectory() as directory, open_lake(Path(directory)) as lake:
        with lake.writer() as writer:
            for number in range(files):
                rows = spans(number, 24 * files).slice(0, 3)
                assert writer.write_and_commit("traces", None, rows).committed
        table = lake.catalog().load_table(TRACES)
        location = Path(table.location().removeprefix("file://"))
        data = next((location / "data").iterdir())
        snapshot = table.current_snapshot()
        assert snapshot is not None
        manifests = {Path(each.manifest_path).name for each in snapshot.manifests(table.io)}
        with counted_opens(data, location / "metadata") as opened:
            lake.health(TRACES)
        report("opens of each manifest, health", _most(opened, manifests), "times", None, "<= 1")
        names = {path.name for path in data.glob("*.parquet")}
        plans = lake.plan_maintenance(TRACES)
        with counted_opens(data) as opened:
            (done,) = lake.maintain(plans=plans)
        assert done.rewritten_files == files, done
        report("opens of each data file, maintain", _most(opened, names), "times", None, "<= 1")


def _most(opened: Counter[str], names: set[str]) -> int:
    return max(opened[name] for name in names)


SECTIONS: dict[str, tuple[Callable[..., None], int]] = {
    "telemetry": (telemetry, 8640),
    "merges": (merges, 200),
    "health": (health, 200),
    "opens": (opens, 5000),
}


def main() -> None:
    chosen = sys.argv[1:2] or list(SECTIONS)
    for name in chosen:
        section, size = SECTIONS[name]
        section(int(sys.argv[2]) if len(sys.argv) > 2 else size, *sys.argv[3:])


if __name__ == "__main__":
    main()
