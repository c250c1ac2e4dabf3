"""The index of a mirror, kept over everything that happens to tables."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow as pa
import pytest

from neve.cli.app import run
from neve.errors import NotFoundError, UnsupportedError, UsageError
from neve.index import maintain
from neve.index.current_root import ROOT_PROPERTY, find_root
from neve.index.files import list_files
from neve.index.indexed_table import observe
from neve.index.maintain import remove_unreferenced
from neve.index.status import status
from neve.index.verify import verify
from neve.lake.identifier import parse_identifier
from neve.merge.strategy import Strategy
from tests.support.merging import Mirrored, event


class Indexed(Mirrored):
    """A mirror and its index, which merges leave alone unless they are told to use it."""

    def __init__(self, lake, *arguments, **settings):
        settings.setdefault("strategy", Strategy.SCAN)
        super().__init__(lake, *arguments, **settings)

    @property
    def identifier(self):
        return parse_identifier(self.mirror)

    def build(self):
        return maintain.build(self.lake, self.identifier)

    def refresh(self):
        return maintain.refresh(self.lake, self.identifier)

    def verify(self):
        """Fail unless index and table agree."""
        found = verify(self.lake, self.identifier)
        assert found.differences == 0, found
        assert found.rows == len(self.found())
        return found

    def call(self, procedure, arguments):
        return self.lake.sql(
            f"CALL system.{procedure}(table => '{self.mirror}', {arguments})"
        ).collect()

    def compact_table(self):
        self.call("rewrite_data_files", "options => map('rewrite-all', 'true')")

    def root(self):
        return find_root(observe(self.lake, self.identifier))[0]


@pytest.fixture
def indexed(embedded_lake):
    mirrored = Indexed(embedded_lake)
    mirrored.append(*(event("I", n, n, f"v{n}") for n in range(1, 40)))
    mirrored.append(event("D", 50, 3), event("D", 51, 4), event("U", 52, 5, "x"), event("D", 1, 99))
    mirrored.merge()
    return mirrored


def test_a_build_has_every_row_and_tombstone_and_is_named_twice(indexed):
    done = indexed.build()
    assert (done.outcome, done.root.rows) == ("rebuilt", 37 + 3)
    found = indexed.verify()
    assert (found.rows, found.tombstones, found.entries) == (37, 3, 40)
    metadata = indexed.table().metadata
    named = json.loads(metadata.properties[ROOT_PROPERTY])
    assert named["snapshot_id"] == metadata.current_snapshot_id
    assert [one.statistics_path for one in metadata.statistics] == [named["path"]]
    assert indexed.refresh().outcome == "fresh"
    shown = status(indexed.lake, indexed.identifier)
    assert (shown.state, shown.entries, shown.deltas, shown.snapshots_behind) == ("fresh", 40, 0, 0)
    # Nothing of it lies where the table's own orphan removal looks.
    location = indexed.table().location()
    assert not named["path"].startswith(f"{location}/")
    indexed.check()


def test_the_same_in_tasks_of_spark(indexed, monkeypatch):
    monkeypatch.setattr("neve.lake.spark_tasks.LOCAL_ROWS", 0)
    indexed.build()
    indexed.verify()
    indexed.append(event("U", 60, 7, "y"), event("D", 61, 8), event("I", 62, 100, "z"))
    indexed.merge()
    indexed.compact_table()
    done = indexed.refresh()
    # All rows were moved, so that the new run is as large as the base.
    assert (done.outcome, done.compacted) == ("refreshed", True)
    indexed.verify()


def test_only_what_changed_is_indexed_again(indexed):
    indexed.build()
    indexed.append(event("U", 60, 7, "y"), event("D", 61, 8), event("I", 62, 3, "back"))
    indexed.merge()
    shown = status(indexed.lake, indexed.identifier)
    assert (shown.state, shown.snapshots_behind) == ("stale", 1)
    done = indexed.refresh()
    assert (done.outcome, done.files_indexed) == ("refreshed", shown.files_changed)
    indexed.verify()
    # A compaction moves everything; a foreign append and delete, and keys that come and go.
    indexed.compact_table()
    name = f"`{indexed.namespace}`.rows"
    indexed.lake.sql(f"INSERT INTO {name} VALUES (500, 'f', 1, 1), (8, 'older', 1, 2)")
    indexed.lake.sql(f"DELETE FROM {name} WHERE id IN (3, 10, 11)")
    indexed.append(event("D", 70, 12), event("I", 71, 12, "again"), event("U", 71, 500, "g"))
    indexed.merge(strategy=Strategy.MERGE)
    done = indexed.refresh()
    assert done.outcome == "refreshed"
    assert done.files_removed > 0
    found = indexed.verify()
    assert found.tombstones >= 3
    assert indexed.refresh().outcome == "fresh"


@pytest.mark.soak
def test_merges_in_any_way_leave_an_index_that_agrees(indexed):
    indexed.build()
    ways = [Strategy.INDEX, Strategy.SCAN, Strategy.INDEX, Strategy.MERGE, Strategy.INDEX]
    for number, strategy in enumerate(ways):
        at = 100 * (number + 1)
        indexed.append(
            *(event("U", at + n, n, f"w{number}") for n in range(number, 30, 3)),
            *(event("D", at + n, n) for n in range(number + 1, 30, 7)),
            event("I", at, 1000 + number, "new"),
        )
        indexed.merge(strategy=strategy)
        if strategy is Strategy.INDEX:
            assert status(indexed.lake, indexed.identifier).state == "fresh"
        indexed.refresh()
        indexed.verify()
    indexed.check()


def test_a_rollback_is_noticed(indexed):
    first = indexed.build()
    then = indexed.table().metadata.current_snapshot_id
    indexed.append(event("D", 60, 7), event("I", 61, 200, "n"))
    indexed.merge()
    indexed.refresh()
    indexed.call("rollback_to_snapshot", f"snapshot_id => {then}")
    # The property names a root of the future; the statistics file still has the right one.
    assert find_root(observe(indexed.lake, indexed.identifier))[0] == first.root
    assert indexed.refresh().outcome == "fresh"
    indexed.verify()
    indexed.append(event("I", 62, 201, "m"))
    indexed.merge()
    assert indexed.refresh().outcome == "refreshed"
    indexed.verify()


def test_a_rollback_behind_the_first_index_rebuilds(embedded_lake):
    indexed = Indexed(embedded_lake)
    indexed.append(event("I", 1, 1, "a"), event("D", 2, 9))
    indexed.merge()
    then = indexed.table().metadata.current_snapshot_id
    indexed.append(event("D", 3, 1), event("I", 4, 2, "b"))
    indexed.merge()
    indexed.build()
    indexed.call("rollback_to_snapshot", f"snapshot_id => {then}")
    done = indexed.refresh()
    assert (done.outcome, "rolled back" in done.why) == ("rebuilt", True)
    found = indexed.verify()
    assert (found.rows, found.tombstones) == (1, 1)


def test_replaced_statistics_are_survived(indexed):
    indexed.build()
    indexed.call("compute_table_stats", "columns => array('id')")
    assert "index" not in indexed.table().metadata.statistics[0].statistics_path.split("/")[-1]
    assert indexed.refresh().outcome == "fresh"
    # And a lost property, too, as long as there are statistics.
    indexed.append(event("U", 60, 7, "y"))
    indexed.merge()
    indexed.refresh()
    name = f"`{indexed.namespace}`.rows"
    indexed.lake.sql(f"ALTER TABLE {name} UNSET TBLPROPERTIES ('{ROOT_PROPERTY}')")
    assert indexed.refresh().outcome == "fresh"
    indexed.verify()


def _truncate(path):
    path.write_bytes(path.read_bytes()[:-10])


def _flip(path):
    data = bytearray(path.read_bytes())
    for at in range(8, len(data) // 2):
        data[at] ^= 0xFF
    path.write_bytes(data)


# Other damage: tests/spark/test_merge_index.py; of any byte: tests/unit/index/test_search.py.
@pytest.mark.parametrize(
    "damage",
    [
        _truncate,
        pytest.param(_flip, marks=pytest.mark.soak),
        pytest.param(Path.unlink, marks=pytest.mark.soak),
    ],
)
def test_a_damaged_shard_or_root_is_noticed_and_built_anew(indexed, damage):
    shard = indexed.build().root.shards[0]
    damage(Path(shard.path.removeprefix("file://")))
    found = verify(indexed.lake, indexed.identifier)
    assert shard.path in found.corrupt
    assert found.differences
    if damage is not _flip:
        assert status(indexed.lake, indexed.identifier).state == "corrupt"
    indexed.append(event("U", 60, 7, "y"), *(event("U", 60, n, "z") for n in range(10, 30)))
    indexed.merge()
    done = indexed.refresh()
    assert (done.outcome, shard.path in done.why) == ("rebuilt", True)
    indexed.verify()
    named = json.loads(indexed.table().metadata.properties[ROOT_PROPERTY])["path"]
    damage(Path(named.removeprefix("file://")))
    # There is no other root of this snapshot.
    assert indexed.refresh().outcome == "rebuilt"
    indexed.verify()


def test_expiry_and_orphan_removal_in_between(indexed):
    indexed.build()
    for number in range(2):
        indexed.append(event("U", 60 + number, 7, f"y{number}"), event("D", 60 + number, 20))
        indexed.merge()
        indexed.refresh()
    indexed.call(
        "expire_snapshots", "older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1"
    )
    location = observe(indexed.lake, indexed.identifier).index_location
    for path in list_files(indexed.table().io, location):
        os.utime(path.removeprefix("file://"), (0, 0))
    indexed.call("remove_orphan_files", "older_than => TIMESTAMP '2001-01-01 00:00:00'")
    assert indexed.refresh().outcome == "fresh"
    indexed.verify()
    # What is indexed is expired before the index has followed: then all is read again.
    indexed.append(event("U", 80, 7, "z"))
    indexed.merge()
    indexed.call(
        "expire_snapshots", "older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1"
    )
    assert indexed.refresh().outcome == "rebuilt"
    indexed.verify()


def test_files_that_no_retained_root_names_are_removed(indexed):
    io, mirror = indexed.table().io, observe(indexed.lake, indexed.identifier)
    indexed.build()
    indexed.build()
    indexed.append(event("U", 60, 7, "y"))
    indexed.merge()
    indexed.refresh()
    before = list_files(io, mirror.index_location)
    mirror = observe(indexed.lake, indexed.identifier)
    assert remove_unreferenced(mirror) == 0
    removed = remove_unreferenced(mirror, grace_seconds=-10)
    assert removed == 2, "the root and the shard of the first build"
    left = list_files(io, mirror.index_location)
    assert len(left) == len(before) - removed
    root = indexed.root()
    assert {one.path for one in root.shards} <= left.keys()
    indexed.verify()
    # Compaction leaves one shard; what it was made of goes with the roots that name it.
    done = maintain.compact(indexed.lake, indexed.identifier)
    assert (done.compacted, len(done.root.generations())) == (True, 1)
    indexed.verify()


def test_what_differs_is_told_by_file_and_position(indexed):
    done = indexed.build()
    mirror = observe(indexed.lake, indexed.identifier)
    indexed.append(event("D", 60, 7), event("U", 61, 9, "moved"), event("I", 62, 300, "new"))
    indexed.merge()
    # A root that says it is of the present snapshot, and is not.
    now = observe(indexed.lake, indexed.identifier)
    maintain.register(indexed.lake, now, now.pinned(done.root))
    found = verify(indexed.lake, indexed.identifier)
    assert (found.missing, found.extra, found.misplaced) == (1, 0, 2)
    paths = {one.path for one in now.files()} | {""}
    assert {one.file for one in found.examples} <= paths
    assert len(found.examples) == 3
    assert mirror.main_id != now.main_id


def test_what_cannot_be_indexed_says_so(indexed):
    with pytest.raises(UsageError, match="not a mirror"):
        maintain.build(indexed.lake, parse_identifier(indexed.changelog))
    with pytest.raises(NotFoundError, match="does not exist"):
        maintain.build(indexed.lake, ("nowhere", "rows"))
    with pytest.raises(NotFoundError, match="has no index: it was never built"):
        verify(indexed.lake, indexed.identifier)
    assert status(indexed.lake, indexed.identifier).state == "missing"
    name = f"`{indexed.namespace}`.rows"
    indexed.build()
    indexed.lake.sql(f"INSERT INTO {name} VALUES (1, 'twice', 1, 1)")
    for work in (indexed.refresh, indexed.build):
        work()
        assert verify(indexed.lake, indexed.identifier).differences == 1, "a duplicate key"
    indexed.lake.sql(f"DELETE FROM {name} WHERE id = 1")
    indexed.lake.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('write.format.default' = 'orc')")
    indexed.lake.sql(f"INSERT INTO {name} VALUES (1, 'orc', 1, 1)")
    with pytest.raises(UnsupportedError, match="Parquet"):
        indexed.refresh()


def test_keys_and_sequences_of_other_types(embedded_lake):
    schema = pa.schema(
        [
            ("a", pa.int32()),
            ("b", pa.string()),
            ("op", pa.string()),
            ("commit", pa.string()),
            ("at", pa.timestamp("us", tz="UTC")),
        ]
    )
    indexed = Indexed(
        embedded_lake, schema, primary_keys=("a", "b"), sequence_column=("commit", "at")
    )
    rows = [{"a": n, "b": f"k{n % 7}", "op": "I", "commit": f"{n:04x}", "at": n} for n in range(30)]
    indexed.append(*rows)
    indexed.merge()
    indexed.build()
    indexed.verify()
    # A wider key: the same hashes, so that the index stays.
    indexed.lake.sql(f"ALTER TABLE `{indexed.namespace}`.changes ALTER COLUMN a TYPE BIGINT")
    wide = schema.set(0, pa.field("a", pa.int64()))
    more = [{**row, "op": "D" if row["a"] % 2 else "U", "commit": "1000"} for row in rows[:10]]
    indexed.append(*more, schema=wide)
    indexed.merge()
    done = indexed.refresh()
    assert done.outcome == "refreshed"
    found = verify(indexed.lake, indexed.identifier)
    assert (found.differences, found.rows, found.tombstones) == (0, 25, 5)


def test_the_commands(indexed, monkeypatch, capsys):
    settings = indexed.lake.settings
    monkeypatch.setenv("NEVE_CATALOG__URI", settings.catalog.uri)
    monkeypatch.setenv("NEVE_CATALOG__WAREHOUSE", settings.catalog.warehouse)
    monkeypatch.setenv("NEVE_SPARK__MASTER", settings.spark.master)

    def command(name, table=indexed.mirror):
        status = run(["--json", "index", name, table])
        said = capsys.readouterr()
        return status, json.loads(said.out) if said.out else None, said.err

    assert command("verify")[0] == 1
    assert command("status")[1]["state"] == "missing"
    done, built, _ = command("build")
    assert (done, built["outcome"], built["entries"]) == (0, "rebuilt", 40)
    done, verified, _ = command("verify")
    assert (done, verified["differences"], verified["rows"]) == (0, 0, 37)
    assert command("compact")[1]["outcome"] == "fresh"
    shard = indexed.root().shards[0]
    _truncate(Path(shard.path.removeprefix("file://")))
    done, verified, _ = command("verify")
    assert (done, verified["differences"]) == (3, 1)
    done, nothing, error = command("build", indexed.changelog)
    assert (done, nothing, error.count("\n")) == (2, None, 1)
    assert "is not a mirror" in error
