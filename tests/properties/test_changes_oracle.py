"""Tables with random pasts: what changed between two versions is what differs between them."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import contextmanager
from unittest import mock

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyiceberg.manifest import ManifestContent

from neve.errors import UnsupportedError
from neve.query.duckdb_connection import connect
from neve.versions import spark_rows
from neve.versions.changes import read_changes
from tests.support.table_histories import TableHistory
from tests.support.version_oracle import VersionOracle, differences, read_rows
from tests.support.versioned import is_read_on_driver, read_by_spark

# An example is half a minute of Spark: a failure is told with its seed, and not shrunk.
LONG = settings(derandomize=True, deadline=None, max_examples=30, phases=(Phase.generate,))
KEYS = (None, ["id"], ["id", "part"], ["part"])


class Comparison:
    """One table with a random past, and the oracle of it."""

    def __init__(self, lake, seed, steps):
        self.history = TableHistory(lake, seed)
        self.history.live(steps)
        self.lake = lake
        self.chance = random.Random(seed + 1)
        self.ref = lake.ref(self.history.name)
        self.table = lake.load(self.ref)
        self.oracle = VersionOracle(self.table)
        self.paths = Counter()

    def check_ranges(self, count):
        """Compare every mode over the whole past, and over random parts of it."""
        for mode in ("changes", "net", "appends"):
            self.check(None, None, mode, None)
        for _ in range(count):
            since, until = self._range()
            for mode in ("changes", "net", "appends"):
                self.check(since, until, mode, self.chance.choice(KEYS))

    def _range(self):
        refs = [name for name in self.table.metadata.refs if name != "main"]
        snapshots = [snapshot.snapshot_id for snapshot in self.table.metadata.snapshots]
        until = self.chance.choice([None, *refs, *snapshots])
        line = self.oracle.line(self.oracle.end(until)[0])
        return self.chance.choice([None, *line]), until

    def check_commits(self):
        """Compare every single commit, if it is read on the driver."""
        for commit in self.oracle.line(self.oracle.end(None)[0]):
            parent = self.table.metadata.snapshot_by_id(commit).parent_snapshot_id
            keys = self.chance.choice(KEYS)
            here = read_changes(self.lake, self.ref, parent, commit, "changes", keys)
            if is_read_on_driver(here):
                self.paths["driver"] += 1
                wanted = self.oracle.changes(parent, commit, keys)
                told = list(differences(read_rows(here.toArrow().to_pylist()), wanted))
                assert not told, self.said(f"{parent=} {commit=} {keys=}", *told)

    def check(self, since, until, mode, keys):
        context = f"{mode} {since=} {until=} {keys=}"
        try:
            with read_by_spark():
                by_spark = read_changes(self.lake, self.ref, since, until, mode, keys)
            here = read_changes(self.lake, self.ref, since, until, mode, keys)
        except UnsupportedError:
            operations = self.oracle.operations(since, until)
            assert mode == "appends", self.said(context)
            assert operations - {"append", "replace"}, self.said(context)
            return
        ask = self.oracle.net if mode == "net" else self.oracle.changes
        wanted = ask(since, until, None if mode == "appends" else keys)
        names = [field.name for field in self.oracle.end(until)[1].fields]
        names += ["_change_type", "_commit_snapshot_id", "_commit_timestamp"]
        frames = {"Spark": by_spark}
        if is_read_on_driver(here):
            frames["driver"] = here
        for path, frame in frames.items():
            answer = frame.toArrow()
            told = list(differences(read_rows(answer.to_pylist()), wanted))
            assert not told, self.said(context, path, *told)
            assert answer.column_names == names, self.said(context, path)
            self.paths[path] += 1

    def check_versions(self, *, by_spark=True):
        """Every version is the same to Spark, DuckDB and PyIceberg."""
        connection = connect()
        location = self.table.metadata_location
        for snapshot in self.table.metadata.snapshots:
            number = snapshot.snapshot_id
            answers = {}
            if by_spark:
                statement = f"SELECT * FROM {self.history.name} VERSION AS OF {number}"
                answers["Spark"] = self.lake.query(statement)
            if self._is_read_by_duckdb(snapshot):
                answers["DuckDB"] = connection.execute(
                    f"FROM iceberg_scan('{location}', snapshot_from_id => {number})"
                ).to_arrow_table()
            for engine, rows in answers.items():
                told = differences(read_rows(rows.to_pylist()), self.oracle.version(number))
                assert not (lines := list(told)), self.said(f"{engine} AS OF {number}", *lines)

    def _is_read_by_duckdb(self, snapshot):
        """It reads no manifests of format version 1, nor vectors of several partition specs."""
        manifests = snapshot.manifests(self.table.io)
        specs = {manifest.partition_spec_id for manifest in manifests}
        has_deletes = any(manifest.content == ManifestContent.DELETES for manifest in manifests)
        has_vectors = has_deletes and self.table.metadata.format_version > 2
        return self.history.first_format_version > 1 and not (has_vectors and len(specs) > 1)

    def said(self, *lines):
        return "\n".join((f"seed {self.history.seed}", *self.history.statements, *lines))


@contextmanager
def size(*, is_large):
    """Let Spark take few rows for many: joined by position, and cancelled by many tasks."""
    if not is_large:
        yield
        return
    with (
        mock.patch.object(spark_rows, "_MOST_LISTED", 0),
        mock.patch.object(spark_rows, "_ONE_TASK_BYTES", 0),
    ):
        yield


@pytest.mark.parametrize("seed", [1, 16])
def test_changes_are_the_difference_of_versions(embedded_lake, seed):
    comparison = Comparison(embedded_lake, seed, steps=22)
    # What Spark reads of whole versions is what it reads for both.
    comparison.check_versions(by_spark=seed == 1)
    with size(is_large=seed == 16):
        comparison.check_ranges(2)
    comparison.check_commits()
    assert comparison.paths["driver"] > 9


@pytest.mark.soak
@LONG
@given(st.integers(0, 2**32))
def test_changes_are_the_difference_of_versions_in_many_histories(embedded_lake, seed):
    comparison = Comparison(embedded_lake, seed, steps=40)
    comparison.check_versions()
    with size(is_large=seed % 2 == 0):
        comparison.check_ranges(20)
    comparison.check_commits()
