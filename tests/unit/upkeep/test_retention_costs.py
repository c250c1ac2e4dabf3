"""An expiry costs what it removes, however large its table is."""

from __future__ import annotations

import time

import pytest

import neve
from neve.lake import manifests, readable_main
from neve.lake.manifests import Manifest, _lists_kept
from tests.support import aged
from tests.support.appending import Appender
from tests.support.lakes import sqlite_settings
from tests.support.retained import DAY, HOUR, NAME, NOW, Bench, fill, manifests_of
from tests.support.spread_times import spread

MANIFESTS = 600


@pytest.fixture
def lake(tmp_path):
    with neve.open(sqlite_settings(tmp_path)) as opened:
        yield opened


def test_its_cost_does_not_grow_with_the_files_of_the_table(lake, monkeypatch):
    """Of a table with many manifests and snapshots, those next to what goes are read."""
    appender, _ = fill(lake, 60, apart_seconds=10)
    bench = Bench(lake, now=NOW + DAY, keep_daily=0, keep_hourly=0, retain_min=50)
    bench.run()
    appender.append(300)
    spread(lake, NAME, 10, NOW)
    _lists_kept.clear()
    reads = []
    monkeypatch.setattr("neve.lake.expiry.reading", lambda table: _counted(table.io, reads))
    assert bench.run().snapshots == 1
    # The list that goes, its neighbour's and that of main; and the one manifest that main gained.
    lists = [path for path in reads if "/snap-" in path]
    assert (len(lists), len(reads)) == (3, 4)


def test_its_cost_does_not_grow_with_the_lines_of_the_lists(lake, monkeypatch):
    """The lists of what goes and of what stays have most of their bytes in common."""
    appender, _ = fill(lake, 1)
    aged.add_files(aged.staging(lake, "ns.t"), MANIFESTS * aged.FILES_OF_MANIFEST)
    appender.table.refresh()
    for number in range(30):
        appender.append(number)
    spread(lake, NAME, HOUR, NOW - 60)
    lines = []
    monkeypatch.setattr(
        manifests, "Manifest", lambda **values: lines.append(1) or Manifest(**values)
    )
    assert Bench(lake, keep_daily=0, keep_hourly=0).run().snapshots > 25
    # Each of the thirty lists has all of them.
    assert MANIFESTS < len(lines) < 4 * MANIFESTS


def _counted(io, reads):
    def read(path):
        reads.append(path)
        with io.new_input(path).open() as file:
            return file.read()

    return read


def test_an_expiry_reads_only_manifests_of_main_that_are_new(lake, monkeypatch):
    fill(lake, 25)
    bench = Bench(lake, keep_hourly=0, keep_daily=0)
    assert bench.run().snapshots > 20
    read, live_files_of = [], readable_main.live_files_of

    def counting(reads, manifest):
        read.append(manifest.path)
        return live_files_of(reads, manifest)

    monkeypatch.setattr(readable_main, "live_files_of", counting)
    assert bench.run().snapshots == 0
    assert read == []
    appender = Appender(lake)
    appender.append(100)
    appender.append(101)
    later = Bench(lake, now=time.time() + 2 * DAY, keep_hourly=0, keep_daily=0)
    assert later.run().snapshots > 0
    assert 0 < len(read) <= 2
    assert len(manifests_of(appender.load(), appender.load().current_snapshot())) > len(read)
