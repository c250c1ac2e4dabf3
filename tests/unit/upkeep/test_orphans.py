"""Files that nobody needs go, and no other: not young ones, not those of others."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
import pytest

import neve
from neve.errors import CorruptionError, NeveError, NotFoundError
from neve.lake import manifests
from neve.lake.expiry import reading
from neve.lake.file_store import FileStore
from neve.lake.json_table import json_table
from neve.lake.local_files import LocalFiles
from neve.lake.manifests import Manifest
from neve.lake.reachable_files import ReachableFiles
from neve.lake.unconfirmed import UnconfirmedWrite
from neve.upkeep import orphans as orphans_module
from tests.support import aged
from tests.support.appending import PATIENT, Appender
from tests.support.lakes import sqlite_settings
from tests.support.orphaned import DAY, NAME, Bench, paths_of
from tests.support.peak_memory import grown_megabytes
from tests.support.power_cut import power_cut


@pytest.fixture
def lake(tmp_path):
    with neve.open(sqlite_settings(tmp_path)) as opened:
        yield opened


def test_what_nobody_needs_goes_and_all_that_is_needed_stays(lake):
    bench = Bench(lake)
    left = bench.leave("data/killed.parquet", "metadata/refused-m0.avro", "metadata/00009-x.json")
    bench.leave("data/young.parquet", days=2)
    bench.leave("data/_hidden/a", ".b", "data/.part-0.crc")
    search = bench.search()
    plan = search.plan(time.time() - 3 * DAY)
    assert paths_of(plan) == set(left)
    assert (plan.bytes, plan.is_complete, plan.skipped) == (12, True, "")
    assert set(left) <= bench.all_files()
    removed = search.remove(plan)
    assert (removed.files, removed.bytes, removed.left) == (3, 12, 0)
    assert bench.needed <= bench.all_files()
    assert not bench.all_files() & set(left)
    assert bench.plan().orphans == ()
    assert sum(bench.appender.ids().values()) == 5


def test_lines_that_the_lists_of_snapshots_share_are_decoded_once(lake, monkeypatch):
    appender = Appender(lake)
    appender.append(0)
    aged.add_files(aged.staging(lake, "ns.t"), 30 * aged.FILES_OF_MANIFEST)
    appender.table.refresh()
    for number in range(100):
        appender.append(number)
    table = json_table(lake.profile, lake.catalog(), NAME)
    table.refresh()
    read, reads, lines = reading(table), Counter(), []
    monkeypatch.setattr(
        manifests, "Manifest", lambda **values: lines.append(1) or Manifest(**values)
    )

    def counted(path):
        reads[path] += 1
        if path in damaged:
            raise NotFoundError(path)
        return read(path)

    files = ReachableFiles()
    damaged = {appender.load().current_snapshot().manifests(appender.load().io)[0].manifest_path}
    with pytest.raises(NotFoundError):
        files.add_table(table.metadata, counted)
    damaged.clear()
    # What could not be read is read again, and is not taken for added.
    files.add_table(table.metadata, counted)
    assert all(path in files for path in {*appender.reachable(), *appender.entries()})
    snapshots = appender.load().metadata.snapshots
    assert 3 * len(lines) < sum(len(each.manifests(table.io)) for each in snapshots)
    assert max(reads.values()) <= 2


def test_no_manifest_is_read_where_every_file_is_young(lake, monkeypatch):
    bench = Bench(lake)
    bench.age(days=1)
    monkeypatch.setattr(ReachableFiles, "add_table", lambda *_: pytest.fail("manifests are read"))
    plan = bench.plan()
    assert (plan.orphans, plan.listed > 5, plan.skipped) == ((), True, "")


def test_what_a_commit_takes_up_after_the_search_stays(lake):
    """An append of old files lands between plan and removal."""
    bench = Bench(lake)
    files = bench.appender.write(100)
    bench.age()
    search = bench.search()
    plan = search.plan(time.time() - 3 * DAY)
    assert len(plan.orphans) == 1
    bench.appender.table.append(files, "late", policy=PATIENT, counters=bench.appender.counters)
    removed = search.remove(plan)
    assert (removed.files, removed.left) == (0, 1)
    assert sum(bench.appender.ids().values()) == 6


def test_files_of_an_unconfirmed_direct_write_are_needed(lake):
    bench = Bench(lake)
    files = bench.appender.write(100)
    bench.age()
    uuid = str(bench.appender.load().metadata.table_uuid)
    write = UnconfirmedWrite(NAME, uuid, 5, tuple(file.file_path for file in files))
    assert len(bench.plan().orphans) == 1
    assert bench.plan(unconfirmed=[write]).orphans == ()


def test_a_table_that_cannot_be_read_completely_is_left_alone(lake):
    bench = Bench(lake)
    bench.leave("data/killed.parquet")
    table = bench.appender.load()
    manifest = table.metadata.snapshots[0].manifests(table.io)[0].manifest_path
    Path(urlsplit(manifest).path).write_bytes(b"damaged")
    with pytest.raises(CorruptionError):
        bench.plan()
    Path(urlsplit(manifest).path).unlink()
    with pytest.raises((NeveError, OSError)):
        bench.plan()


def test_data_that_was_written_through_a_symbolic_link_is_no_orphan(lake, tmp_path, monkeypatch):
    bench = Bench(lake)
    (left,) = bench.leave("data/killed.parquet")
    (tmp_path / "link").symlink_to(bench.location / "data", target_is_directory=True)
    table = bench.appender.load()
    with table.transaction() as change:
        change.set_properties({"write.data.path": f"file://{tmp_path}/link"})
    table.append(pa.table({"id": [6]}))
    before = len(list(bench.location.rglob("*.parquet")))
    bench.age()
    resolved, real_path = Counter(), os.path.realpath
    monkeypatch.setattr(
        os.path, "realpath", lambda path: resolved.update([path]) or real_path(path)
    )
    assert paths_of(bench.plan()) == {left}
    assert before > 5
    # Those of the reachable files, and those of the table's places.
    assert max(resolved.values()) <= 2


def test_what_is_deleted_is_in_the_log_first(lake, monkeypatch, caplog):
    bench = Bench(lake)
    left = bench.leave(*(f"data/{number}.parquet" for number in range(5)))
    monkeypatch.setattr(orphans_module, "_BATCH", 3)
    caplog.set_level("DEBUG", "neve.upkeep.orphans")
    search = bench.search()
    plan = search.plan(time.time() - 3 * DAY)
    first = plan.orphans[0].path
    with power_cut("upkeep.orphans_deleted"):
        search.remove(plan)
    assert f"ns.t: deleting 3 orphans of 12 bytes, {first} first" in caplog.text
    named = {path for path in left if f"{Path(path).name}\n" in caplog.text}
    assert named == set(left) - bench.all_files()
    caplog.clear()
    monkeypatch.setattr(orphans_module, "delete_paths", lambda *_: pytest.fail("it is deleted"))
    with pytest.raises(pytest.fail.Exception):
        search.remove(plan)
    assert "ns.t: deleting 3 orphans" in caplog.text


def test_removal_stops_between_batches_and_goes_on(lake, monkeypatch):
    bench = Bench(lake)
    left = bench.leave(*(f"data/{number}.parquet" for number in range(10)))
    monkeypatch.setattr(orphans_module, "_BATCH", 3)
    search = bench.search()
    plan = search.plan(time.time() - 3 * DAY)
    stop = threading.Event()
    stop.set()
    assert search.remove(plan, stop).is_stopped
    assert set(left) <= bench.all_files()
    with power_cut("upkeep.orphans_deleted"):
        search.remove(plan)
    assert len(bench.all_files() & set(left)) == 7
    assert search.remove(plan).files == 10
    assert bench.all_files() == bench.needed


def test_a_search_that_is_stopped_names_nothing(lake, monkeypatch):
    bench = Bench(lake)
    bench.leave("data/killed.parquet")
    stop, listed = threading.Event(), []
    list_files = FileStore.list_files

    def stopping(store, location):
        for file in list_files(store, location):
            listed.append(file)
            yield file
            stop.set()

    monkeypatch.setattr(FileStore, "list_files", stopping)
    plan = bench.search().plan(time.time() - 3 * DAY, stop=stop)
    assert (plan.orphans, plan.skipped) == ((), "it was stopped")
    assert len(listed) == 2


def test_no_more_than_so_many_are_named_at_once(lake):
    bench = Bench(lake)
    bench.leave(*(f"data/{number}.parquet" for number in range(10)))
    plan = bench.search().plan(time.time() - 3 * DAY, most=4)
    assert (len(plan.orphans), plan.is_complete) == (4, False)


def test_memory_stays_flat_with_a_million_files():
    """Eight bytes for each of a million reachable files, twice while they are sorted."""
    grown = grown_megabytes(
        """
        from neve.lake.reachable_files import ReachableFiles
        files = ReachableFiles()
        files.add(f"s3://b/t/data/{n}.parquet" for n in range(10))
        assert "s3://b/t/data/11.parquet" not in files
        """,
        """
        files.add(f"s3://b/t/data/{n}.parquet" for n in range(1_000_000))
        assert "s3://b/t/data/999999.parquet" in files
        assert "s3://b/t/data/1000000.parquet" not in files
        """,
    )
    assert grown < 40


@pytest.mark.soak
def test_a_search_among_a_million_files_holds_few(tmp_path):
    """Nine of ten are needed; of the others, so many are named as one search may name."""
    grown = grown_megabytes(
        f"""
        import time
        from pathlib import Path
        import neve
        from neve.lake.stored_files import ListedFile
        from neve.lake.unconfirmed import UnconfirmedWrite
        from neve.upkeep import orphans
        from tests.support.appending import Appender
        from tests.support.lakes import sqlite_settings

        class Store:
            files = 1000

            def __init__(self, *_): pass
            def __enter__(self): return self
            def __exit__(self, *_): pass

            def list_files(self, location):
                for number in range(self.files):
                    yield ListedFile(f"{{location}}/data/{{number}}.parquet", 1, 0.0)

        orphans.FileStore = Store
        lake = neve.open(sqlite_settings(Path("{tmp_path}")))
        appender = Appender(lake)
        appender.append(1)
        location = appender.load().location()

        def search():
            needed = (f"{{location}}/data/{{n}}.parquet" for n in range(Store.files) if n % 10)
            write = UnconfirmedWrite(("ns", "t"), "", 0, needed)
            return orphans.OrphanSearch(lake, lake.ref(("ns", "t")), [write]).plan(time.time())

        assert len(search().orphans) == 100
        Store.files = 1_000_000
        """,
        """
        plan = search()
        assert (len(plan.orphans), plan.listed) == (100_000, 1_000_000)
        """,
    )
    # A hash of 8 bytes for each needed file, twice while they are sorted, and what was found.
    assert grown < 60


def test_a_directory_is_listed_file_by_file(tmp_path, monkeypatch):
    for number in range(50):
        (tmp_path / str(number)).touch()
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "deep", target_is_directory=True)
    consumed, scan = [], os.scandir

    @contextmanager
    def counting(path):
        with scan(path) as entries:
            yield (consumed.append(1) or entry for entry in entries)

    monkeypatch.setattr(os, "scandir", counting)
    files = LocalFiles().files(f"{tmp_path}/")
    next(files)
    assert len(consumed) <= 3
    names = [Path(file.path).name for file in LocalFiles().files(f"{tmp_path}/")]
    assert sorted(names) == sorted([*map(str, range(50)), "file"])


def test_links_that_lead_nowhere_or_outside_stop_no_search_and_nothing_outside_goes(lake, tmp_path):
    bench = Bench(lake)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x.parquet").write_bytes(b"theirs")
    data = bench.location / "data"
    for name, target in {
        "itself": data / "itself",
        "nowhere": tmp_path / "nothing",
        "above": bench.location,
        "directory": outside,
        "link.parquet": outside / "x.parquet",
    }.items():
        (data / name).symlink_to(target)
    bench.age()
    search = bench.search()
    plan = search.plan(time.time() - 3 * DAY)
    assert [Path(orphan.path).name for orphan in plan.orphans] == ["link.parquet"]
    assert search.remove(plan).files == 1
    assert (outside / "x.parquet").read_bytes() == b"theirs"
    assert bench.needed <= bench.all_files()


@pytest.mark.parametrize("ending", ["#old", "?x=1", "\t"])
def test_deleting_an_orphan_does_not_delete_the_file_whose_name_its_name_begins_with(lake, ending):
    """PyIceberg takes paths with a scheme for URLs: `a.parquet#old` would be `a.parquet`."""
    bench = Bench(lake)
    data = next(path for path in bench.needed if path.endswith(".parquet"))
    (left,) = bench.leave(Path(data + ending).relative_to(bench.location))
    search = bench.search()
    plan = search.plan(time.time() - 3 * DAY)
    assert [Path(orphan.path).name for orphan in plan.orphans] == [Path(left).name]
    removed = search.remove(plan)
    assert bench.needed <= bench.all_files()
    assert sum(bench.appender.ids().values()) == 5
    assert removed.files == (0 if Path(left).exists() else 1)


def test_a_needed_file_is_known_by_any_spelling_of_its_path(lake):
    """`/w//t/data/x`, `file://localhost/…`; another authority or scheme of the same store."""
    files = ReachableFiles()
    files.add(["file:///w//t/./data/x", "file://localhost/w/t/data/y"])
    files.add(["abfs://c@a.dfs.core.windows.net/t/x", "hdfs://nn:8020/t/y", "s3n://b/t//z"])
    needed = ["/w/t/data/x", "file:/w/t/data/y", "abfss://c@a.dfs.core.windows.net/t/x"]
    needed += ["hdfs:///t/y", "s3://b/t//z"]
    assert [path for path in needed if path not in files] == []
    assert "s3://b/t/z" not in files
    assert "/w/t/data/z" not in files


def test_a_file_whose_name_is_no_utf8_stops_no_search(lake):
    bench = Bench(lake)
    (left,) = bench.leave("data/killed.parquet")
    odd = os.fsencode(bench.location / "data") + b"/\xff.parquet"
    Path(os.fsdecode(odd)).write_bytes(b"left")
    os.utime(odd, times=(0, 0))
    search = bench.search()
    plan = search.plan(time.time() - 3 * DAY)
    assert paths_of(plan) == {left, os.fsdecode(odd)}
    search.remove(plan)
    assert not Path(left).exists()
    assert bench.needed <= {str(path) for path in bench.location.rglob("*")}
