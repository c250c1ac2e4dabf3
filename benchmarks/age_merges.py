"""What a small merge costs into a mirror that looks a week old, against a new one.

    python -m benchmarks.age_merges [--rows 1000000] [--runs 15]

All mirrors have the same rows and an index, in one Spark session, and are merged by turns. A merge
every ten seconds leaves:

- of the mirror and its tombstones, with upkeep's defaults, the snapshots of an hour, and a version
  of each hour of a day and of each day of a month;
- of the changelog, whose writer expires it, the snapshots of a day.

Age is written as metadata. What real merges leave in files, vectors and the index is measured by
`merge_200_in_a_row` of `benchmarks/merge.py`.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import neve
from benchmarks.merge import report
from neve.api import OpenLake
from neve.config import Settings
from neve.index.maintain import build
from neve.lake.java_tables import MAIN, JavaTable
from neve.merge.merger import Merger
from neve.merge.spec import MergeSpec, merge_specs
from neve.merge.strategy import Strategy
from tests.support import aged

MERGES_A_DAY = 8_640
CHANGES = 1_000
WARM_UP = 3


@dataclass(frozen=True)
class MirrorAge:
    """How old a mirror and its changelog look."""

    name: str
    mirror_snapshots: int = 0
    changelog_snapshots: int = 0
    wanted: str = ""


NEW = MirrorAge("new")
AGES = (NEW, MirrorAge("week", 360 + 24 + 7, MERGES_A_DAY, "<= 1.5"))


class AgedMirror:
    """A mirror of an age, and changes for it."""

    def __init__(self, lake: OpenLake, spec: MergeSpec, age: MirrorAge, rows: int) -> None:
        self._lake, self._age, self._rows = lake, age, rows
        self._namespace = _namespace(age)
        self._merger = Merger(lake, spec, progress=lambda _: None, strategy=Strategy.INDEX)
        self._round = 0
        self._load()

    def _load(self) -> None:
        self._lake.sql(f"CREATE NAMESPACE {self._namespace}")
        columns = "id BIGINT, name STRING, amount DOUBLE, lsn BIGINT, op STRING"
        self._lake.sql(f"CREATE TABLE {self._namespace}.changes ({columns}) USING iceberg")
        self._append(1)
        self._merger.merge()
        if self._age.changelog_snapshots:
            changelog = aged.staging(self._lake, f"{self._namespace}.changes")
            aged.add_snapshots(changelog, self._age.changelog_snapshots, every_ms=10_000)
        self._lake.sql(
            f"INSERT INTO {self._namespace}.rows SELECT id, concat('customer ', id), id * 0.25, 0 "
            f"FROM range(1, {self._rows}, 1, 2)"
        )
        build(self._lake, (self._namespace, "rows"), lambda _: None)
        self._append(CHANGES)
        self._merger.merge()
        for table in ("rows", "rows_tombstones"):
            self._add_snapshots(f"{self._namespace}.{table}")

    def _add_snapshots(self, name: str) -> None:
        """Give a table empty commits that say what its newest merge says."""
        ref = self._lake.ref(name)
        said = self._lake.reader().read(ref.identifier).current_summary or {}
        summary = {key: value for key, value in said.items() if key.startswith("neve.")}
        java = JavaTable(self._lake, self._lake.spark, ref)
        for _ in range(self._age.mirror_snapshots):
            java.append_nothing(MAIN, summary)

    def _append(self, changes: int) -> None:
        self._round += 1
        self._lake.sql(
            f"INSERT INTO {self._namespace}.changes SELECT pmod(xxhash64(id, {self._round}), "
            f"{self._rows}), concat('customer ', id), id * 0.5, {self._round}, "
            f"if(id % 10 = 9, 'd', 'u') FROM range(0, {changes}, 1, 1)"
        )

    def merge(self) -> float:
        """Merge new changes; return how long the merge took."""
        self._append(CHANGES)
        began = time.monotonic()
        self._merger.merge()
        return time.monotonic() - began


def _namespace(age: MirrorAge) -> str:
    return f"bench_{age.name}"


def _settings(directory: Path) -> Settings:
    names = {"changelog_table": "changes", "mirror_table": "rows"}
    columns = {"primary_keys": "id", "sequence_column": "lsn"}
    tables = [{"namespace": _namespace(age), **names, **columns} for age in AGES]
    return Settings.model_validate(
        {
            "catalog": {
                "uri": f"sqlite:///{directory}/catalog.db",
                "warehouse": str(directory / "warehouse"),
            },
            "spark": {"conf": {"spark.driver.memory": "3g"}},
            "merge": {"tables": tables},
        }
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=15)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="neve-bench-") as directory:
        settings = _settings(Path(directory))
        with neve.open(settings) as lake:
            mirrors = [
                AgedMirror(lake, spec, age, options.rows)
                for spec, age in zip(merge_specs(settings), AGES, strict=True)
            ]
            rounds = [[each.merge() for each in mirrors] for _ in range(WARM_UP + options.runs)]
    of_new, *_ = medians = [statistics.median(of) for of in zip(*rounds[WARM_UP:], strict=True)]
    for age, seconds in zip(AGES, medians, strict=True):
        ratio = None if age is NEW else seconds / of_new
        report(f"age_{age.name}_merge", seconds * 1000, "ms", ratio, age.wanted)


if __name__ == "__main__":
    main()
