"""Changes between versions against what one would do without them, in the same Spark session.

    python -m benchmarks.versions [rows] [commits]

A table of 10 million rows with 100 commits: some delete and some update rows all over the table by
deletion vectors, the others append. Answers are compared by their counts; the median of several
rounds counts, in which both sides take turns.

- The changes of the last commit against a scan of the whole table, the same columns: of an append,
  and of an update inside one file.
- `appends` over a hundred appends against Iceberg's own incremental read.
- `net` over all commits against a full outer join of the two ends by the table's key, where every
  file of the start lost rows, and where a tenth of them did; and over one commit that wrote every
  file again (copy-on-write), of a table with a quarter of the rows.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everywhere

import neve
from neve.config import Settings
from neve.lake import Lake
from neve.versions.arguments import Mode
from neve.versions.changes import read_changes

ROWS = 10_000_000
COMMITS = 100
FILES = 50
WARM_UP = 1
ROUNDS = 5
NET_ROUNDS = 3
COLUMNS = ("id", "name", "amount", "day")
MERGE_ON_READ = ", ".join(
    f"'write.{operation}.mode' = 'merge-on-read'" for operation in ("delete", "update", "merge")
)


class Bench:
    """One table and its versions, the oldest first."""

    def __init__(self, lake: Lake, name: str, rows: int) -> None:
        self.lake = lake
        self.name = name
        self.rows = rows
        self.ref = lake.ref(name)
        lake.sql(
            f"CREATE TABLE {name} (id BIGINT, name STRING, amount DOUBLE, day DATE) USING iceberg "
            f"TBLPROPERTIES ('format-version' = '3', 'write.distribution-mode' = 'none', "
            f"{MERGE_ON_READ})"
        )
        self.versions: list[int] = []

    def load(self) -> None:
        """Write the first version: most of the rows, a share of the ids in each file."""
        numbers = self.lake.spark.range(0, self.rows, 1, FILES)
        _with_columns(numbers, 0).writeTo(self.name).append()
        self._remember()

    def append(self, count: int) -> None:
        first = self.rows + len(self.versions) * count
        numbers = self.lake.spark.range(first, first + count, 1, 1)
        _with_columns(numbers, len(self.versions)).writeTo(self.name).append()
        self._remember()

    def update(self, count: int, share: float = 1.0) -> None:
        """Change rows all over the table, or all over its first part."""
        self._change("UPDATE {name} SET amount = amount + 1 WHERE {rows}", count, share)

    def delete(self, count: int, share: float = 1.0) -> None:
        self._change("DELETE FROM {name} WHERE {rows}", count, share)

    def _change(self, statement: str, count: int, share: float) -> None:
        reach = int(self.rows * share)
        rows = f"id < {reach} AND id % {max(reach // count, 1)} = {len(self.versions)}"
        self.lake.sql(statement.format(name=self.name, rows=rows))
        self._remember()

    def _remember(self) -> None:
        metadata = self.lake.reader().read(self.ref.identifier)
        assert metadata.current_snapshot_id is not None
        self.versions.append(metadata.current_snapshot_id)

    def changes(self, since: int, until: int | None = None, mode: Mode = "changes") -> DataFrame:
        keys = ["id"] if mode == "net" else None
        return read_changes(self.lake, self.ref, since, until, mode, keys)

    def version(self, snapshot_id: int) -> DataFrame:
        return self.lake.sql(f"SELECT * FROM {self.name} VERSION AS OF {snapshot_id}")

    def difference(self, before: int, after: int) -> DataFrame:
        """Join two versions by key, and keep what differs."""
        old, new = self.version(before).alias("old"), self.version(after).alias("new")
        joined = old.join(new, F.col("old.id") == F.col("new.id"), how="full_outer")
        same = F.lit(True)  # noqa: FBT003 - a column
        for name in COLUMNS:
            same &= F.col(f"old.{name}").eqNullSafe(F.col(f"new.{name}"))
        return joined.where(~same)


def _with_columns(numbers: DataFrame, version: int) -> DataFrame:
    return numbers.select(
        "id",
        F.concat(F.lit("customer "), F.xxhash64("id", F.lit(version)).cast("string")).alias("name"),
        (F.pmod(F.xxhash64("id"), F.lit(1_000_000)) * 0.25).alias("amount"),
        F.date_add(F.lit("2026-01-01").cast("date"), (F.col("id") % 365).cast("int")).alias("day"),
    )


def consume(frame: DataFrame) -> None:
    """Read every column of every row, and keep nothing."""
    frame.write.format("noop").mode("overwrite").save()


def against(
    ours: Callable[[], DataFrame], theirs: Callable[[], DataFrame], rounds: int = ROUNDS
) -> tuple[float, float]:
    """Return the medians of both, taken in turns. What plans and what reads counts alike."""
    for _ in range(WARM_UP):
        _timed(ours)
        _timed(theirs)
    pairs = [(_timed(ours), _timed(theirs)) for _ in range(rounds)]
    return statistics.median(one for one, _ in pairs), statistics.median(one for _, one in pairs)


def _timed(make: Callable[[], DataFrame]) -> float:
    started = time.monotonic()
    consume(make())
    return time.monotonic() - started


def report(name: str, ours: float, theirs: float, wanted: str) -> None:
    line = {"name": name, "value": round(ours, 3), "unit": "s", "ratio": round(ours / theirs, 3)}
    print(json.dumps({**line, "wanted": wanted}), flush=True)


def run_mixed(lake: Lake, rows: int, commits: int) -> None:
    """Time the last commit, and `net` over all of them: every file loses rows."""
    bench = Bench(lake, "bench.mixed", rows)
    bench.load()
    few = max(rows // 1_000, 10)
    for number in range(1, commits - 1):
        if number % 10 == 9:
            bench.update(few)
        elif number % 10 == 4:
            bench.delete(few)
        else:
            bench.append(few)
    bench.update(few // 10, share=1 / FILES)
    before_append, before_update, last = bench.versions[-3:]
    for name, since, until in (
        ("append", before_append, before_update),
        ("update", before_update, last),
    ):
        ours, theirs = against(
            partial(bench.changes, since, until),
            lambda: bench.version(last),
        )
        report(f"versions_last_commit_{name}", ours, theirs, "<= 0.08")
    _run_net(bench, "versions_net_all_commits", "<= 1.5")


def run_partial(lake: Lake, rows: int, commits: int) -> None:
    """Time `net` where changes are in a tenth of the files."""
    bench = Bench(lake, "bench.partial", rows)
    bench.load()
    few = max(rows // 1_000, 10)
    for number in range(1, commits // 5):
        if number % 2:
            bench.update(few, share=0.1)
        else:
            bench.append(few)
    _run_net(bench, "versions_net_few_files", "<= 1")


def run_rewritten(lake: Lake, rows: int, commits: int) -> None:  # noqa: ARG001 - one commit
    """Time `net` where copy-on-write wrote every file again for a thousandth of its rows."""
    bench = Bench(lake, "bench.rewritten", rows // 4)
    bench.load()
    mode = "'write.update.mode' = 'copy-on-write'"
    lake.sql(f"ALTER TABLE {bench.name} SET TBLPROPERTIES ({mode})")
    bench.update(max(rows // 4_000, 10))
    _run_net(bench, "versions_net_rewritten", "<= 1.5")


def _run_net(bench: Bench, name: str, wanted: str) -> None:
    first, last = bench.versions[0], bench.versions[-1]
    _check_net(bench, first, last)
    ours, theirs = against(
        lambda: bench.changes(first, mode="net"), lambda: bench.difference(first, last), NET_ROUNDS
    )
    report(name, ours, theirs, wanted)


def run_appends(lake: Lake, rows: int, commits: int) -> None:
    """Time the rows of a hundred appends."""
    bench = Bench(lake, "bench.appends", rows // 10)
    bench.load()
    for _ in range(1, commits):
        bench.append(max(rows // commits, 10))
    first, last = bench.versions[0], bench.versions[-1]

    def incremental() -> DataFrame:
        return (
            lake.spark.read.option("start-snapshot-id", first)
            .option("end-snapshot-id", last)
            .table(bench.name)
        )

    count = bench.changes(first, last, "appends").count()
    if count != incremental().count():
        raise SystemExit("appends and the incremental read differ")
    ours, theirs = against(lambda: bench.changes(first, last, "appends"), incremental)
    report("versions_appends", ours, theirs, "<= 1.2")


def _check_net(bench: Bench, first: int, last: int) -> None:
    """Each key that differs has one row, or two if it was updated."""
    kinds = bench.changes(first, mode="net").groupBy("_change_type").count().collect()
    counts = {row["_change_type"]: row["count"] for row in kinds}
    keys = sum(counts.values()) - counts.get("update_postimage", 0)
    if keys != bench.difference(first, last).count():
        raise SystemExit(f"net and the join of both ends differ: {counts}")


def main(rows: int = ROWS, commits: int = COMMITS) -> None:
    with tempfile.TemporaryDirectory(prefix="neve-bench-") as directory:
        settings = Settings.model_validate(
            {
                "catalog": {
                    "type": "sqlite",
                    "uri": f"sqlite:///{directory}/catalog.db",
                    "warehouse": str(Path(directory) / "warehouse"),
                },
                "spark": {"conf": {"spark.driver.memory": "4g"}},
            }
        )
        with neve.open(settings) as lake:
            lake.sql("CREATE NAMESPACE bench")
            for run in (run_mixed, run_appends, run_rewritten, run_partial):
                run(lake, rows, commits)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
