"""Merges against `MERGE INTO`: the same rows, the same changes, the same Spark session.

    python -m benchmarks.merge [name…]

The aged cases have a mirror of 512 data files and 512 snapshots, on both sides.

The opponent is one MERGE INTO statement, merge-on-read on format version 3, given the changes as a
DataFrame with each key once. Ours is all that a cycle does: read the changelog, reduce, look up,
write, bury, commit, and keep the index.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everywhere

import neve
from neve.api import OpenLake
from neve.config import Settings
from neve.index.maintain import build
from neve.lake.java_tables import MAIN, JavaTable
from neve.merge.merger import Merger
from neve.merge.spec import merge_specs
from neve.merge.strategy import Strategy
from tests.support.servers import running_spark_cluster

SEED = 11
WARM_UP = 3
ROUNDS = 5
MILLION = 1_000_000
LSN_STEP = 1000
# A mirror that has been merged into for a night.
AGED_FILES = 512
AGED_SNAPSHOTS = 512


@dataclass(frozen=True)
class Case:
    """A mirror, and how much of it changes."""

    name: str
    rows: int
    changes: int
    key: str
    wanted: str
    aged: bool = False


CASES = {
    case.name: case
    for case in (
        Case("merge_10m_100k_bigint", 10 * MILLION, 100_000, "bigint", ">= 6"),
        Case("merge_10m_1k_bigint", 10 * MILLION, 1_000, "bigint", ">= 12"),
        Case("merge_10m_100k_string", 10 * MILLION, 100_000, "string", ">= 3"),
        Case("merge_40m_100k_bigint", 40 * MILLION, 100_000, "bigint", ">= 18"),
        Case("merge_10m_100k_bigint_aged", 10 * MILLION, 100_000, "bigint", ">= 6", aged=True),
        Case("merge_10m_1k_bigint_aged", 10 * MILLION, 1_000, "bigint", ">= 12", aged=True),
        Case("merge_40m_100k_bigint_aged", 40 * MILLION, 100_000, "bigint", ">= 18", aged=True),
    )
}
GROWTH = "merge_growth_5m_40m"
ENDURANCE = "merge_200_in_a_row"
LARGE = "merge_large_batch"


class Bench:
    """One mirror of ours and one of the opponent's, with the same rows."""

    def __init__(
        self, directory: Path, rows: int, key: str, *, aged: bool = False, master: str = ""
    ) -> None:
        self.rows = rows
        self.key = key
        self.aged = aged
        settings = local_settings(directory, master)
        self.lake: OpenLake = neve.open(settings)
        self.merger = Merger(
            self.lake,
            merge_specs(settings)[0],
            progress=lambda _: None,
            strategy=Strategy.INDEX,
        )
        self.round = 0
        self._load()

    def _load(self) -> None:
        """Fill both mirrors by plain appends, and build the index."""
        kind = "STRING" if self.key == "string" else "BIGINT"
        self.lake.sql("CREATE NAMESPACE bench")
        self.lake.sql(
            f"CREATE TABLE bench.changes (id {kind}, name STRING, amount DOUBLE, lsn BIGINT, "
            "op STRING) USING iceberg"
        )
        self.append(self.changes(1).limit(0))
        self.merger.merge()
        self.lake.sql(
            f"CREATE TABLE bench.theirs (id {kind}, name STRING, amount DOUBLE, lsn BIGINT) "
            "USING iceberg TBLPROPERTIES ('format-version' = '3', 'write.merge.mode' = "
            "'merge-on-read', 'write.delete.mode' = 'merge-on-read', 'write.update.mode' = "
            "'merge-on-read')"
        )
        files = AGED_FILES if self.aged else max(2, self.rows // (2 * MILLION))
        numbers = self.lake.spark.range(0, self.rows, 1, files)
        rows = with_columns(numbers, self.key, F.lit(0))
        for table in ("bench.rows", "bench.theirs"):
            rows.writeTo(table).append()
            if self.aged:
                self._add_snapshots(table)

    def _add_snapshots(self, name: str) -> None:
        """Let a table look as if it had been merged into all night: empty merges, one after other.

        Of the mirror each says what a merge says, so that all of them count as merges.
        """
        table = self.lake.load(self.lake.ref(name))
        merged = next(iter(table.metadata.snapshots)).summary
        summary = {
            key: value
            for key, value in (merged.additional_properties if merged else {}).items()
            if key.startswith("neve.")
        }
        java = JavaTable(self.lake, self.lake.spark, self.lake.ref(name))
        for _ in range(AGED_SNAPSHOTS):
            java.append_nothing(MAIN, summary)

    def changes(self, count: int) -> DataFrame:
        """80% updates, 10% inserts, 10% deletes of random keys, each key once."""
        self.round += 1
        pick = F.pmod(F.xxhash64(F.col("number"), F.lit(SEED + self.round)), F.lit(self.rows))
        numbers = self.lake.spark.range(0, count).withColumnRenamed("id", "number")
        share = F.col("number") % 10
        new = self.rows + self.round * MILLION + F.col("number")
        chosen = numbers.select(
            F.when(share == 8, new).otherwise(pick).alias("id"),
            F.when(share == 9, "d").when(share == 8, "c").otherwise("u").alias("op"),
        ).dropDuplicates(["id"])
        lsn = F.lit(self.round * LSN_STEP)
        return with_columns(chosen, self.key, lsn)

    def append(self, changes: DataFrame) -> None:
        changes.writeTo("bench.changes").append()

    def measure(self, count: int) -> tuple[float, float]:
        """Merge new changes both ways; return our seconds and theirs."""
        changes = self.changes(count).persist()
        changes.count()
        self.append(changes)
        ours = _timed(self.merger.merge)
        changes.createOrReplaceTempView("bench_changes")
        theirs = _timed(
            lambda: self.lake.sql(
                "MERGE INTO bench.theirs AS t USING bench_changes AS s ON t.id = s.id "
                "WHEN MATCHED AND s.op = 'd' THEN DELETE "
                "WHEN MATCHED AND s.lsn > t.lsn THEN UPDATE SET t.name = s.name, "
                "t.amount = s.amount, t.lsn = s.lsn "
                "WHEN NOT MATCHED AND s.op <> 'd' THEN INSERT (id, name, amount, lsn) "
                "VALUES (s.id, s.name, s.amount, s.lsn)"
            )
        )
        changes.unpersist()
        return ours, theirs

    def check(self) -> None:
        """Both mirrors must have the same rows."""
        found = self.lake.query(
            "SELECT (SELECT count(*) FROM (SELECT * FROM bench.rows EXCEPT ALL "
            "SELECT * FROM bench.theirs)) AS ours, (SELECT count(*) FROM (SELECT * FROM "
            "bench.theirs EXCEPT ALL SELECT * FROM bench.rows)) AS theirs"
        ).to_pylist()[0]
        if any(found.values()):
            raise SystemExit(f"the mirrors differ: {found}")

    def build(self) -> float:
        """Build the index; return its bytes a row. What that costs is in benchmarks/index_build."""
        root = build(self.lake, ("bench", "rows"), lambda _: None).root
        return root.size / self.rows


def with_columns(numbers: DataFrame, key: str, lsn: Column) -> DataFrame:
    digest = F.md5(F.col("id").cast("string"))
    text = F.concat_ws(
        "-",
        *(
            F.substring(digest, start, length)
            for start, length in ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))
        ),
    )
    columns = [
        (text if key == "string" else F.col("id")).alias("id"),
        F.concat(F.lit("customer "), F.col("id")).alias("name"),
        (F.col("id") * 0.25).alias("amount"),
        lsn.cast("bigint").alias("lsn"),
    ]
    kept = [name for name in ("op",) if name in numbers.columns]
    return numbers.select(*columns, *kept)


def _timed(work: Callable[[], object]) -> float:
    started = time.monotonic()
    work()
    return time.monotonic() - started


def local_settings(directory: Path, master: str) -> Settings:
    spark: dict[str, object] = {"conf": {"spark.driver.memory": "4g"}}
    if master:
        conf = {
            "spark.driver.memory": "2g",
            "spark.driver.host": "127.0.0.1",
            "spark.executor.memory": "900m",
            "spark.pyspark.python": sys.executable,
            "spark.sql.shuffle.partitions": 4,
        }
        spark = {"master": master, "conf": conf, "shared_paths": [str(directory)]}
    return Settings.model_validate(
        {
            "catalog": {
                "type": "sqlite",
                "uri": f"sqlite:///{directory}/catalog.db",
                "warehouse": str(directory / "warehouse"),
            },
            "spark": spark,
            "upkeep": {"retain": "10s", "reader_grace": "10s"},
            "merge": {
                "interval": "5s",
                "tables": [
                    {
                        "namespace": "bench",
                        "changelog_table": "changes",
                        "mirror_table": "rows",
                        "primary_keys": "id",
                        "sequence_column": "lsn",
                    }
                ],
            },
        }
    )


def report(name: str, value: float, unit: str, ratio: float | None, wanted: str) -> None:
    line = {"name": name, "value": round(value, 3), "unit": unit, "wanted": wanted}
    print(json.dumps({**line, "ratio": None if ratio is None else round(ratio, 2)}), flush=True)


def run_cases(cases: list[Case]) -> None:
    """Measure cases that have the same mirrors, one after the other."""
    first = cases[0]
    with tempfile.TemporaryDirectory(prefix="neve-bench-") as directory:
        bench = Bench(Path(directory), first.rows, first.key, aged=first.aged)
        with bench.lake:
            limit = 24 if first.key == "bigint" else 40
            width = bench.build()
            report(f"index_width_{first.name[6:]}", width, "bytes a row", None, f"<= {limit}")
            for case in cases:
                for _ in range(WARM_UP):
                    bench.measure(case.changes)  # both sides
                pairs = [bench.measure(case.changes) for _ in range(ROUNDS)]
                ours = statistics.median(one for one, _ in pairs)
                theirs = statistics.median(one for _, one in pairs)
                report(case.name, ours, "s", theirs / ours, case.wanted)
                report(f"{case.name}_merge_into", theirs, "s", None, "")
            bench.check()


def run_endurance(rows: int = MILLION, changes: int = 1_000, merges: int = 200) -> None:
    """Merge again and again: the last ten against the first ten, after a warm-up.

    Once with maintenance after every 20 merges, which expires versions older than ten seconds and
    joins files; once without.
    """
    for is_maintained in (True, False):
        with tempfile.TemporaryDirectory(prefix="neve-bench-") as directory:
            bench = Bench(Path(directory), rows, "bigint")
            with bench.lake:
                bench.build()
                seconds = []
                for number in range(WARM_UP + merges):
                    bench.append(bench.changes(changes))
                    seconds.append(_timed(bench.merger.merge))
                    if is_maintained and number % 20 == 19:
                        bench.lake.maintain("bench.rows*")
                mirror = bench.lake.load(bench.lake.ref("bench.rows"))
                left = len(mirror.metadata.snapshots)
        last = statistics.median(seconds[-10:])
        first = statistics.median(seconds[WARM_UP : WARM_UP + 10])
        name = ENDURANCE if is_maintained else f"{ENDURANCE}_without_upkeep"
        report(name, last, "s", last / first, "<= 1.3" if is_maintained else "")
        report(f"{name}_snapshots", left, "snapshots", None, "")


def run_large(rows: int = 4 * MILLION, changes: int = MILLION) -> None:
    """One large batch on a standalone cluster of one worker, then of two, of one core each.

    Each worker is pinned to its core. The driver is not: it has what the workers leave of both.
    """
    seconds = []
    for workers in (1, 2):
        with (
            tempfile.TemporaryDirectory(prefix="neve-bench-") as directory,
            running_spark_cluster(Path(directory), workers, are_pinned=True) as master,
        ):
            bench = Bench(Path(directory), rows, "bigint", master=master)
            with bench.lake:
                bench.build()
                rounds = []
                for _ in range(WARM_UP + ROUNDS):
                    bench.append(bench.changes(changes))
                    rounds.append(_timed(bench.merger.merge))
        seconds.append(statistics.median(rounds[WARM_UP:]))
        report(f"{LARGE}_{workers}_workers", seconds[-1], "s", None, "")
    report(LARGE, seconds[1], "s", seconds[0] / seconds[1], ">= 1.6")


def run_growth(small: int = 5 * MILLION, large: int = 40 * MILLION, changes: int = 10_000) -> None:
    """The same changes at two sizes: a merge should cost what changed."""
    seconds = []
    for rows in (small, large):
        with tempfile.TemporaryDirectory(prefix="neve-bench-") as directory:
            bench = Bench(Path(directory), rows, "bigint")
            with bench.lake:
                bench.build()
                for _ in range(WARM_UP):
                    bench.measure(changes)
                seconds.append(statistics.median(bench.measure(changes)[0] for _ in range(ROUNDS)))
    report(GROWTH, seconds[1], "s", seconds[1] / seconds[0], "<= 2.5")


def main(names: list[str]) -> None:
    chosen = names or [*CASES, GROWTH, ENDURANCE, LARGE]
    for _, cases in groupby(
        (CASES[name] for name in chosen if name in CASES),
        key=lambda case: (case.rows, case.key, case.aged),
    ):
        run_cases(list(cases))
    if GROWTH in chosen:
        run_growth()
    if ENDURANCE in chosen:
        run_endurance()
    if LARGE in chosen:
        run_large()


if __name__ == "__main__":
    main(sys.argv[1:])
