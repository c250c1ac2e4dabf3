"""Files of a table that no catalog here knows stay: its metadata in the location tells of it."""

from __future__ import annotations

import gzip
import json
import os
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import neve
from neve.lake.file_store import FileStore
from neve.upkeep import metadata_of_others
from neve.upkeep.orphans import OrphanSearch
from tests.support.appending import Appender
from tests.support.lakes import sqlite_settings

DAY = 86_400.0


@pytest.fixture
def lake(tmp_path):
    with neve.open(sqlite_settings(tmp_path)) as opened:
        yield opened


def directory_of(appender):
    return Path(urlsplit(appender.load().location()).path)


def age(directory, days=10.0):
    for path in directory.rglob("*"):
        if path.is_file():
            os.utime(path, times=(time.time() - days * DAY,) * 2)


def search(lake, **options):
    return OrphanSearch(lake, lake.ref(("ns", "t"))).plan(time.time() - 3 * DAY, **options)


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


def lose(lake):
    """Have the catalog lose a table with rows, and a writer make it anew in the same place."""
    appender = Appender(lake)
    for number in range(3):
        appender.append(number)
    age(directory_of(appender))
    lost = appender.load()
    lake.catalog().drop_table(("ns", "t"))
    again = Appender(lake)
    again.append(7)
    assert again.load().location() == lost.location()
    return lost, again


def test_a_table_that_the_catalog_has_lost_keeps_its_files_when_it_is_made_anew(lake):
    lost, again = lose(lake)
    before = sorted(directory_of(again).rglob("*"))
    for options in ({}, {"most": 1}):
        plan = search(lake, **options)
        assert plan.skipped.startswith("its location has metadata of another table or view, file:/")
        assert plan.orphans == ()
    assert OrphanSearch(lake, lake.ref(("ns", "t"))).remove(plan).files == 0
    assert sorted(directory_of(again).rglob("*")) == before
    lake.recover_table("ns.found", metadata_file=lost.metadata_location)
    rows = lake.catalog().load_table(("ns", "found")).scan().to_arrow()
    assert sorted(rows["id"].to_pylist()) == [0, 1, 2]


def test_without_its_metadata_files_nobody_can_have_it_back_and_the_rest_goes(lake):
    lost, again = lose(lake)
    data = {file.file.file_path for file in lost.scan().plan_files()}
    for path in (directory_of(again) / "metadata").glob("*.metadata.json"):
        if str(lost.metadata.table_uuid) in path.read_text():
            path.unlink()
    plan = search(lake)
    assert plan.skipped == ""
    assert data <= {orphan.path for orphan in plan.orphans}


TABLE = {"format-version": 2, "table-uuid": "other", "snapshots": [{"snapshot-id": 1}]}
VIEW = {"view-uuid": "other", "format-version": 1}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("metadata/00001-a.metadata.json", TABLE),
        ("deep/inside/metadata/v3.metadata.json", TABLE),
        ("metadata/00001-a.gz.metadata.json", gzip.compress(json.dumps(TABLE).encode())),
        ("metadata/00001-a.metadata.json", {"a": "x" * 100_000, **TABLE}),
        ("metadata/00001-a.metadata.json", json.dumps(TABLE).encode()[:60]),
        ("view/metadata/00000-a.metadata.json", VIEW),
    ],
    ids=["table", "nested", "gzip", "id at the end", "cut off", "view"],
)
@pytest.mark.parametrize("days", [0.0, 10.0])
def test_metadata_of_another_is_known_wherever_and_however_it_is_written(lake, name, content, days):
    appender = Appender(lake)
    appender.append(1)
    write(directory_of(appender) / "data/killed.parquet", b"left")
    age(directory_of(appender))
    path = write(directory_of(appender) / name, content)
    os.utime(path, times=(time.time() - days * DAY,) * 2)
    plan = search(lake)
    assert plan.skipped.endswith(str(path))
    assert plan.orphans == ()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"left",
        b"\x1f\x8bleft",
        b'{"left',
        # Of the writer that was second when the table was made.
        {**TABLE, "snapshots": []},
        {"format-version": 2, "table-uuid": "other"},
        [],
    ],
    ids=["empty", "text", "no gzip", "cut off", "no snapshots", "none named", "no document"],
)
def test_what_has_no_version_of_another_table_is_an_orphan_like_others(lake, content):
    appender = Appender(lake)
    appender.append(1)
    age(directory_of(appender))
    path = write(directory_of(appender) / "metadata/00001-a.metadata.json", content)
    age(directory_of(appender))
    assert [urlsplit(orphan.path).path for orphan in search(lake).orphans] == [str(path)]


def test_metadata_of_the_table_itself_is_read_in_part_and_some_at_once(lake, monkeypatch):
    appender = Appender(lake)
    appender.append(1)
    directory = directory_of(appender)
    content = max(directory.glob("metadata/*.metadata.json")).read_bytes()
    for number in range(10):
        write(directory / f"metadata/00001-refused{number}.metadata.json", content)
    age(directory)
    read, together = [], []
    read_range, in_parallel = FileStore.read_range, metadata_of_others.in_parallel
    monkeypatch.setattr(
        FileStore,
        "read_range",
        lambda self, path, *part: read.append(part) or read_range(self, path, *part),
    )
    monkeypatch.setattr(
        metadata_of_others,
        "in_parallel",
        lambda work, paths: together.append(len(paths)) or in_parallel(work, paths),
    )
    monkeypatch.setattr(metadata_of_others, "_LOOKED_AT_TOGETHER", 4)
    monkeypatch.setattr(metadata_of_others, "_HEAD_BYTES", 500)
    assert len(search(lake).orphans) == 10
    assert read == [(0, 500)] * 10
    assert together == [4, 4, 2]


def versions(lake, commits):
    """Return a table of so many commits and its metadata files, the oldest first."""
    appender = Appender(lake)
    for number in range(commits):
        appender.append(number)
    age(directory_of(appender))
    return appender, sorted((directory_of(appender) / "metadata").glob("*.metadata.json"))


def set_back(lake, file):
    """Have the catalog name an older version, as one that was restored from a copy does."""
    lake.catalog().drop_table(("ns", "t"))
    lake.catalog().register_table(("ns", "t"), f"file://{file}")


def test_versions_that_a_restored_catalog_does_not_know_of_keep_their_files(lake):
    appender, files = versions(lake, 5)
    set_back(lake, files[2])
    plan = search(lake)
    said = "its location has a newer version than the catalog names, file://"
    assert plan.skipped == f"{said}{files[-1]}"
    assert plan.orphans == ()
    lake.catalog().drop_table(("ns", "t"))
    lake.recover_table("ns.t")
    assert search(lake).skipped == ""
    assert sorted(appender.ids()) == list(range(5))


def test_one_version_more_may_be_of_a_refused_commit(lake):
    _, files = versions(lake, 5)
    set_back(lake, files[-2])
    plan = search(lake)
    assert plan.skipped == ""
    assert str(files[-1]) in {urlsplit(orphan.path).path for orphan in plan.orphans}


def test_commits_during_a_search_are_no_newer_versions(lake, monkeypatch):
    appender, _ = versions(lake, 3)
    list_files = FileStore.list_files

    def late(self, location):
        for number in range(3):
            appender.append(10 + number)
        return list_files(self, location)

    monkeypatch.setattr(FileStore, "list_files", late)
    assert search(lake).skipped == ""


def test_metadata_that_was_copied_from_another_place_is_no_newer_version(lake):
    """`neve rewrite` counts anew from 0, beside the metadata files that were copied."""
    appender, files = versions(lake, 5)
    copied = json.loads(files[-1].read_text())
    before = {**copied, "location": "file:///before"}
    ends_with_location = {"a": "x" * 100_000, **before}
    directory = directory_of(appender) / "metadata"
    write(directory / "00500-a.metadata.json", before)
    write(directory / "00501-a.metadata.json", ends_with_location)
    write(directory / "00502-a.gz.metadata.json", gzip.compress(json.dumps(before).encode()))
    assert search(lake).skipped == ""
    here = write(directory / "00500-b.metadata.json", copied)
    assert search(lake).skipped.endswith(f"than the catalog names, file://{here}")


def test_versions_of_a_hadoop_catalog_have_numbers_of_their_own(lake):
    """Registered in another catalog, the table has the number 0 next."""
    appender, files = versions(lake, 5)
    hadoop = directory_of(appender) / "metadata/v500.metadata.json"
    write(hadoop, files[2].read_bytes())
    assert search(lake).skipped == ""
    set_back(lake, hadoop)
    assert search(lake).skipped.endswith(f"than the catalog names, file://{files[-1]}")
