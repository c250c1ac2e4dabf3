"""No orphans are sought where another table may have files, of whichever catalog."""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from pyiceberg.table.update import SetLocationUpdate

import neve
from neve.config import Settings
from neve.lake import metadata_reader
from neve.lake.metadata_json import MetadataJson
from neve.lake.profile import profiles
from neve.upkeep.orphans import OrphanSearch
from neve.upkeep.table_places import TablePlaces, is_same_catalog
from tests.support.lakes import sqlite_settings
from tests.support.orphaned import DAY, NAME, Bench, paths_of


@pytest.fixture
def lake(tmp_path):
    with neve.open(sqlite_settings(tmp_path)) as opened:
        yield opened


@pytest.mark.parametrize("place", ["", "/inside"])
def test_no_orphans_are_sought_in_a_shared_location(lake, place):
    bench = Bench(lake)
    bench.leave("data/killed.parquet")
    catalog, schema = lake.catalog(), bench.appender.load().schema()
    catalog.create_table(("ns", "other"), schema, location=f"{bench.location}{place}")
    plan = bench.plan()
    assert plan.skipped == "its location is shared with table ns.other"
    assert plan.orphans == ()


def test_a_location_through_a_symbolic_link_is_the_same(lake, tmp_path):
    bench = Bench(lake)
    bench.leave("data/killed.parquet")
    (tmp_path / "link").symlink_to(bench.location, target_is_directory=True)
    schema, place = bench.appender.load().schema(), f"file://{tmp_path}/link/inside"
    lake.catalog().create_table(("ns", "other"), schema, location=place)
    assert bench.plan().skipped == "its location is shared with table ns.other"


def with_further_catalog(lake, directory, uri=None):
    """Configure a second catalog, which may have tables anywhere."""
    further = {"type": "sqlite", "uri": uri or f"sqlite:///{directory}/further.db"}
    further["warehouse"] = str(directory / "further")
    document = {**lake.settings.model_dump(), "catalogs": {"archive": further}}
    lake.settings = Settings.model_validate(document)


def test_tables_of_a_further_catalog_are_asked_for_too(lake, tmp_path):
    bench = Bench(lake)
    (left,) = bench.leave("data/killed.parquet")
    with_further_catalog(lake, tmp_path)
    archive = lake.catalog("archive")
    assert paths_of(bench.plan()) == {left}
    archive.create_namespace("old")
    archive.create_table(
        ("old", "t"), bench.appender.load().schema(), location=f"{bench.location}/old"
    )
    assert bench.plan().skipped == "its location is shared with table archive.old.t"


def test_a_further_catalog_that_cannot_be_asked_forbids_it(lake, tmp_path):
    bench = Bench(lake)
    bench.leave("data/killed.parquet")
    (tmp_path / "further.db").write_bytes(b"no database" * 100)
    with_further_catalog(lake, tmp_path)
    plan = bench.plan()
    assert plan.skipped.startswith("catalog archive cannot be asked whether it has tables there: ")
    assert plan.orphans == ()


def test_a_second_catalog_in_the_same_database_has_tables_of_its_own(lake, tmp_path):
    """A database keeps tables under their catalog's name: `archive` may have another `ns.t`."""
    bench = Bench(lake)
    (left,) = bench.leave("data/killed.parquet")
    with_further_catalog(lake, tmp_path, uri=lake.settings.catalog.uri)
    assert paths_of(bench.plan()) == {left}
    archive = lake.catalog("archive")
    archive.create_namespace("ns")
    archive.create_table(NAME, bench.appender.load().schema(), location=str(bench.location))
    assert bench.plan().skipped == "its location is shared with table archive.ns.t"


@pytest.mark.parametrize(
    ("different", "is_same"),
    [
        ({}, True),
        ({"timeout_seconds": 5}, True),
        ({"warehouse": "other"}, False),
        ({"properties": {"prefix": "other"}}, False),
        ({"token": "of another"}, False),
        ({"uri": "http://127.0.0.1:2"}, False),
    ],
)
def test_two_names_of_a_rest_catalog_are_one_only_if_they_ask_for_the_same(different, is_same):
    rest = {"type": "rest", "uri": "http://127.0.0.1:1", "warehouse": "w", "token": "t"}
    document = {"catalog": rest, "catalogs": {"again": {**rest, **different}}}
    one, other = profiles(Settings.model_validate(document)).values()
    assert is_same_catalog(one, other) == is_same


def test_a_neighbour_with_a_longer_name_is_not_inside(lake):
    bench = Bench(lake)
    (left,) = bench.leave("data/killed.parquet")
    schema = bench.appender.load().schema()
    other = lake.catalog().create_table(("ns", "t2"), schema, location=f"{bench.location}__index")
    theirs = Path(urlsplit(other.location()).path, "data", "x.parquet")
    theirs.parent.mkdir(parents=True, exist_ok=True)
    theirs.write_bytes(b"")
    os.utime(theirs, times=(0, 0))
    assert paths_of(bench.plan()) == {left}


def test_a_table_registered_between_search_and_removal_keeps_its_files(lake):
    bench = Bench(lake)
    schema, place = bench.appender.load().schema(), f"{bench.location}/inside"
    other = lake.catalog().create_table(("ns", "other"), schema, location=place)
    other.append(pa.table({"id": [1]}))
    metadata_file = lake.catalog().load_table(("ns", "other")).metadata_location
    lake.catalog().drop_table(("ns", "other"))
    bench.age()
    # Where they are seen, nothing is searched.
    versions = list(Path(urlsplit(metadata_file).path).parent.glob("*.metadata.json"))
    contents = {path: path.read_bytes() for path in versions}
    for path in contents:
        path.unlink()
    search = bench.search()
    plan = search.plan(time.time() - 3 * DAY)
    assert paths_of(plan) == bench.all_files() - bench.needed
    for path, content in contents.items():
        path.write_bytes(content)
    lake.catalog().register_table(("ns", "other"), metadata_file)
    removed = search.remove(plan)
    assert (removed.files, removed.left) == (0, len(plan.orphans))
    assert lake.catalog().load_table(("ns", "other")).scan().to_arrow()["id"].to_pylist() == [1]


def test_the_metadata_of_each_table_is_read_once_for_all_searches(lake, monkeypatch):
    schema = Bench(lake).appender.load().schema()
    for number in range(20):
        lake.catalog().create_table(("ns", f"t{number}"), schema)
    reads = Counter()
    read = metadata_reader.read_metadata_file

    def counting(identifier, *arguments, **options):
        reads[identifier] += 1
        return read(identifier, *arguments, **options)

    monkeypatch.setattr(metadata_reader, "read_metadata_file", counting)
    places = TablePlaces(lake)
    tables = lake.reader().list_tables()
    for identifier in tables:
        search = OrphanSearch(lake, lake.ref(identifier), places=places)
        assert not search.plan(time.time()).skipped
    assert reads == Counter(tables)


def test_an_unreadable_neighbour_and_gc_forbid_it(lake):
    bench = Bench(lake)
    bench.leave("data/killed.parquet")
    other = lake.catalog().create_table(("ns", "other"), bench.appender.load().schema())
    Path(urlsplit(other.metadata_location).path).write_bytes(b"{")
    assert "ns.other, which cannot be read" in bench.plan().skipped
    lake.catalog().drop_table(("ns", "other"))
    bench.appender.load().transaction().set_properties({"gc.enabled": "false"}).commit_transaction()
    assert bench.plan().skipped == "gc.enabled is false"


def test_a_location_that_is_a_whole_store_is_not_searched(lake):
    """What else lies in a bucket nobody knows."""
    Bench(lake)
    document = {**lake.reader().read_document(NAME).document, "location": "s3://lakes"}
    metadata = MetadataJson("s3://lakes/metadata/1.metadata.json", document)
    reason = OrphanSearch(lake, lake.ref(NAME))._why_not(metadata)
    assert reason == "its location s3://lakes is a whole store"


def test_no_orphans_are_sought_where_another_table_has_left_files(lake):
    """A table whose location was changed keeps its older files where they are."""
    bench = Bench(lake)
    schema = bench.appender.load().schema()
    other = lake.catalog().create_table(("ns", "other"), schema, location=f"{bench.location}/a")
    other.append(pa.table({"id": [1]}))
    moved = SetLocationUpdate(location=f"{bench.location}-elsewhere")
    lake.catalog().commit_table(other, (), (moved,))
    assert bench.plan().skipped == "its location is shared with table ns.other"
