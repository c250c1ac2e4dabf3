"""What another table references stays, wherever it lies."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
import pytest

import neve
from neve.config import Settings
from neve.lake import reachable_files
from neve.upkeep.orphans import OrphanSearch
from neve.upkeep.table_places import TablePlaces
from tests.support.lakes import sqlite_settings
from tests.support.orphaned import DAY, Bench, paths_of

OTHER = ("ns", "other")


@pytest.fixture
def lake(tmp_path):
    document = sqlite_settings(tmp_path).model_dump()
    further = {"type": "sqlite", "uri": f"sqlite:///{tmp_path}/further.db"}
    further["warehouse"] = str(tmp_path / "further")
    document["catalogs"] = {"archive": further}
    with neve.open(Settings.model_validate(document)) as opened:
        opened.catalog("archive")
        yield opened


def table_that_wrote_into(bench, *, catalog="lake"):
    """Make another table with a place of its own, whose first file lies among the bench's."""
    target = bench.lake.catalog(catalog)
    target.create_namespace_if_not_exists("ns")
    other = target.create_table(OTHER, bench.appender.load().schema())
    place = f"file://{bench.location}/data/theirs"
    other.transaction().set_properties({"write.data.path": place}).commit_transaction()
    other.append(pa.table({"id": [1]}))
    bench.age()
    return other


def unset(other):
    other.transaction().remove_properties("write.data.path").commit_transaction()


def as_folder_storage(other):
    place = other.properties["write.data.path"]
    unset(other)
    other.transaction().set_properties({"write.folder-storage.path": place}).commit_transaction()


def overwritten(other):
    """Keep the file in an older version only."""
    unset(other)
    other.overwrite(pa.table({"id": [2]}))


@pytest.mark.parametrize(
    ("change", "catalog"),
    [(unset, "lake"), (as_folder_storage, "lake"), (overwritten, "lake"), (overwritten, "archive")],
)
def test_a_file_that_another_table_wrote_there_once_stays(lake, change, catalog):
    bench = Bench(lake)
    (left,) = bench.leave("data/killed.parquet")
    other = table_that_wrote_into(bench, catalog=catalog)
    change(other)
    first = other.metadata.snapshots[0].snapshot_id
    search = bench.search()
    plan = search.plan(time.time() - 3 * DAY)
    assert paths_of(plan) == {left}
    assert search.remove(plan).files == 1
    assert other.scan(snapshot_id=first).to_arrow()["id"].to_pylist() == [1]


def test_a_catalog_whose_database_is_away_forbids_it(lake, tmp_path):
    """It may be on a disk that is not mounted: nobody knows what its tables reference."""
    bench = Bench(lake)
    bench.leave("data/killed.parquet")
    unset(table_that_wrote_into(bench, catalog="archive"))
    (tmp_path / "further.db").rename(tmp_path / "away.db")
    plan = bench.plan()
    assert paths_of(plan) == set()
    assert "catalog archive cannot be asked" in plan.skipped
    assert "further.db does not exist" in plan.skipped


def test_a_file_that_another_table_has_added_stays(lake):
    bench = Bench(lake)
    left, added = bench.leave("data/killed.parquet", "data/exported.parquet")
    pa.parquet.write_table(pa.table({"id": [1]}), added)
    other = lake.catalog().create_table(OTHER, bench.appender.load().schema())
    other.add_files([f"file://{added}"])
    bench.age()
    assert paths_of(bench.plan()) == {left}


def test_what_another_table_takes_up_after_the_search_stays(lake):
    bench = Bench(lake)
    left, added = bench.leave("data/killed.parquet", "data/exported.parquet")
    pa.parquet.write_table(pa.table({"id": [1]}), added)
    other = lake.catalog().create_table(OTHER, bench.appender.load().schema())
    bench.age()
    search = bench.search()
    plan = search.plan(time.time() - 3 * DAY)
    assert paths_of(plan) == {left, added}
    other.add_files([f"file://{added}"])
    removed = search.remove(plan)
    assert (removed.files, removed.left) == (1, 1)
    assert other.scan().to_arrow()["id"].to_pylist() == [1]


@pytest.mark.parametrize("content", [b"damaged", None])
def test_a_table_with_an_unreadable_manifest_forbids_it(lake, content):
    """Also one of an old version: nobody knows which files it names."""
    bench = Bench(lake)
    bench.leave("data/killed.parquet")
    other = lake.catalog().create_table(OTHER, bench.appender.load().schema())
    other.append(pa.table({"id": [1]}))
    other.append(pa.table({"id": [2]}))
    manifest_list = Path(urlsplit(other.metadata.snapshots[0].manifest_list).path)
    if content is None:
        manifest_list.unlink()
    else:
        manifest_list.write_bytes(content)
    plan = bench.plan()
    assert plan.orphans == ()
    assert "table ns.other, which cannot be read completely, may need files there: " in plan.skipped
    assert manifest_list.name in plan.skipped


def test_odd_metadata_of_another_table_is_named_and_nothing_is_removed(lake):
    """Not expected of any table: a statistics file without a path."""
    bench = Bench(lake)
    bench.leave("data/killed.parquet")
    other = lake.catalog().create_table(OTHER, bench.appender.load().schema())
    path = Path(urlsplit(other.metadata_location).path)
    document = json.loads(path.read_bytes())
    path.write_text(json.dumps({**document, "statistics": [{"snapshot-id": 1}]}))
    reason = "table ns.other, which cannot be read, may lie there: internal error: KeyError"
    assert bench.plan().skipped == reason


def test_a_table_that_is_damaged_after_the_search_stops_the_removal(lake):
    bench = Bench(lake)
    bench.leave("data/killed.parquet")
    other = lake.catalog().create_table(OTHER, bench.appender.load().schema())
    search = bench.search()
    plan = search.plan(time.time() - 3 * DAY)
    other.append(pa.table({"id": [1]}))
    Path(urlsplit(other.metadata.snapshots[0].manifest_list).path).write_bytes(b"damaged")
    removed = search.remove(plan)
    assert (removed.files, removed.left) == (0, 1)


def test_an_unreadable_table_of_another_store_does_not_forbid_it(lake, tmp_path):
    bench = Bench(lake)
    (left,) = bench.leave("data/killed.parquet")
    lake.catalog().create_table(OTHER, bench.appender.load().schema())
    with sqlite3.connect(Path(lake.settings.catalog.uri.removeprefix("sqlite:///"))) as database:
        database.execute(
            "UPDATE iceberg_tables SET metadata_location = ? WHERE table_name = 'other'",
            ("hdfs://nowhere:1/other/metadata/00000-a.metadata.json",),
        )
    assert paths_of(bench.plan()) == {left}


def test_manifests_of_others_are_read_once_for_all_searches_and_only_where_needed(
    lake, monkeypatch
):
    """Reading those of all tables for each table would take the square of their number."""
    bench = Bench(lake)
    schema, reads = bench.appender.load().schema(), Counter()
    for number in range(8):
        table = lake.catalog().create_table(("ns", f"t{number}"), schema)
        table.append(pa.table({"id": [1]}))
        left = Path(urlsplit(table.location()).path, "data", "killed.parquet")
        left.write_bytes(b"left")
        os.utime(left, times=(0, 0))
    live_files_of_all = reachable_files.live_files_of_all

    def counting(read, manifests):
        reads.update(each.path for each in manifests)
        return live_files_of_all(read, manifests)

    monkeypatch.setattr(reachable_files, "live_files_of_all", counting)
    places = TablePlaces(lake)
    tables = [lake.ref(("ns", f"t{number}")) for number in range(8)]
    for ref in tables:
        plan = OrphanSearch(lake, ref, places=places).plan(time.time() - 3 * DAY)
        assert len(plan.orphans) == 1
    # By the search of its own table, and once for all others.
    assert len(reads) > 8
    assert max(reads.values()) == 2


def test_what_lies_in_no_other_table_takes_no_memory(lake):
    bench = Bench(lake)
    bench.leave("data/killed.parquet")
    other = table_that_wrote_into(bench)
    unset(other)
    other.append(pa.table({"id": [2]}))
    search = bench.search()
    search.plan(time.time() - 3 * DAY)
    (files,) = (each.files for each in search._references._tables.values())
    assert len(files._sorted) + len(files._added) == 1
