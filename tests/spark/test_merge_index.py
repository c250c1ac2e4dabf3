"""The index is an accelerator, never the truth: whatever happens to it, mirrors are the same."""

from __future__ import annotations

import json
import shutil
from contextlib import contextmanager
from pathlib import Path
from unittest import mock
from urllib.parse import urlparse

import pyarrow as pa
import pytest

from neve.errors import StorageError
from neve.index import maintain
from neve.index.compaction import with_compacted
from neve.index.current_root import find_root
from neve.index.indexed_table import observe
from neve.index.maintain import build
from neve.index.verify import verify
from neve.lake.identifier import parse_identifier
from neve.lake.live_files import live_files
from neve.lake.plain_types import NeedsSparkError
from neve.merge import strategy
from neve.merge.batch import BatchWork
from neve.merge.strategy import INDEXED_ROWS, Strategy
from tests.support.merging import Mirrored, event
from tests.support.readers import read_with_all


@pytest.fixture
def mirrored(embedded_lake):
    """A mirror whose second merge has made an index."""
    found = Mirrored(embedded_lake, strategy=Strategy.INDEX)
    found.append(*(event("I", 1, n, f"v{n}") for n in range(40)))
    found.merge()
    found.append(event("U", 2, 1, "b"), event("D", 2, 2), event("I", 2, 50, "new"))
    assert found.merge().strategy == "index"
    found.check()
    return found


def change(mirrored, lsn):
    """Merge an update, a delete, an insert and a late event, and hold the mirror against them."""
    mirrored.append(
        event("U", lsn, 3, f"at {lsn}"),
        event("D", lsn, 10 + lsn),
        event("I", lsn, 100 + lsn, "more"),
        event("U", 1, 2, "late"),
    )
    report = mirrored.merge()
    mirrored.check()
    return report


def root_path(mirrored):
    named = json.loads(mirrored.table().metadata.properties["neve.index.root"])
    return Path(urlparse(named["path"]).path)


def shards(mirrored):
    return sorted(root_path(mirrored).parent.glob("shard-*.puffin"))


def test_a_merge_keeps_the_index_in_its_own_commit(mirrored):
    report = change(mirrored, 3)
    assert (report.strategy, report.index_rebuilds, report.index_files_indexed) == ("index", 0, 0)
    assert (report.index_hits, report.index_misses) == (3, 1)
    assert report.vectors_written >= 1
    named = json.loads(mirrored.table().metadata.properties["neve.index.root"])
    assert named["snapshot_id"] == mirrored.table().metadata.current_snapshot_id
    assert verify(mirrored.lake, parse_identifier(mirrored.mirror)).differences == 0
    # Three engines read rows and vectors alike.
    wanted = sorted(key[0] for key in mirrored.wanted())
    for rows in read_with_all(mirrored.lake, mirrored.mirror).values():
        assert [row["id"] for row in rows] == wanted
    # One that was made anew as a whole is gone on from, too.
    assert build(mirrored.lake, parse_identifier(mirrored.mirror)).rebuilt
    assert change(mirrored, 4).index_rebuilds == 0


@pytest.mark.parametrize(
    "strategy", [Strategy.INDEX, pytest.param(Strategy.SCAN, marks=pytest.mark.soak)]
)
def test_data_files_without_rows_leave_the_mirror(mirrored, strategy):
    """A key that changes often would leave a dead file, and its vector, with each merge."""
    files = []
    for lsn in range(10, 13):
        mirrored.append(event("U", lsn, 3, f"at {lsn}"))
        mirrored.merge(strategy=strategy)
        table = mirrored.table()
        files.append(len(live_files(table, table.metadata.current_snapshot_id)))
    assert files == [files[0]] * 3
    mirrored.check()
    change(mirrored, 20)
    root, _ = find_root(observe(mirrored.lake, parse_identifier(mirrored.mirror)))
    known = {path for number, path in enumerate(root.files) if number not in root.removed_files}
    assert known == set(live_files(mirrored.table(), root.snapshot_id))
    assert verify(mirrored.lake, parse_identifier(mirrored.mirror)).differences == 0


def test_keys_of_two_words_that_count_up_are_all_found(embedded_lake):
    """A weak hash lost rows here: differences in one word cancelled those in the other."""
    schema = pa.schema([("id", pa.binary()), ("op", pa.string()), ("lsn", pa.int64())])
    mirrored = Mirrored(embedded_lake, schema, strategy=Strategy.INDEX)
    keys = [(n // 100).to_bytes(8, "big") + (n % 100).to_bytes(8, "big") for n in range(9000)]
    mirrored.append(*({"id": key, "op": "I", "lsn": 1} for key in keys[::2]))
    mirrored.merge()
    mirrored.append(*({"id": key, "op": "I", "lsn": 2} for key in keys[1::2]))
    report = mirrored.merge()
    assert (report.strategy, report.index_hits) == ("index", 0)
    assert len(mirrored.found()) == len(keys)


def spoil(path):
    data = bytearray(path.read_bytes())
    middle = len(data) // 3
    data[middle : middle + 64] = bytes(64)
    path.write_bytes(data)


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def test_a_damaged_index_is_noticed_and_changes_nothing(mirrored):
    cut(root_path(mirrored))
    assert change(mirrored, 3).index_rebuilds == 1
    for lsn, damage in enumerate((spoil, cut, Path.unlink), 4):
        for shard in shards(mirrored):
            damage(shard)
        assert change(mirrored, lsn).index_rebuilds == 1
    report = change(mirrored, 7)
    assert (report.strategy, report.index_rebuilds) == ("index", 0)
    # Now there is an older root, and only what came after it is indexed again.
    cut(root_path(mirrored))
    report = change(mirrored, 8)
    assert (report.strategy, report.index_rebuilds) == ("index", 0)
    assert report.index_files_indexed >= 1


@contextmanager
def away(*paths):
    """Have files there that cannot be read now, as from a store that does not answer."""
    for path in paths:
        path.rename(path.with_suffix(".away"))
        path.mkdir()
    try:
        yield
    finally:
        for path in paths:
            path.rmdir()
            path.with_suffix(".away").rename(path)


@pytest.mark.parametrize("looked_up", ["here", "in tasks", "for partial events"])
def test_a_store_that_is_away_is_no_broken_index(mirrored, monkeypatch, looked_up):
    if looked_up == "in tasks":
        reading = mock.Mock(side_effect=NeedsSparkError("as asked"))
        monkeypatch.setattr("neve.merge.batch.read_newest", reading)
    elif looked_up == "for partial events":
        partial = {"unchanged_marker": "?"}
        mirrored.settings = mirrored.settings.model_copy(update=partial)
    mirrored.append(event("U", 3, 3, "c"), event("D", 3, 4))
    before = mirrored.past()
    for paths in ([root_path(mirrored)], shards(mirrored)):
        with away(*paths), pytest.raises(StorageError) as told:
            mirrored.merge(attempts=2)
        assert told.value.retryable
        assert mirrored.past() == before
    report = mirrored.merge()
    assert (report.strategy, report.index_rebuilds) == ("index", 0)
    mirrored.check()


def test_an_index_that_breaks_between_two_looks_is_noticed_too(mirrored, monkeypatch):
    """Two different events of one sequence have the batch decided twice, with another look."""
    count, looks = BatchWork.count, []

    def broken(self, tally, *, indexed):
        count(self, tally, indexed=indexed)
        looks.append(indexed)
        self.counts.index_is_broken = looks == [True, True]

    monkeypatch.setattr(BatchWork, "count", broken)
    mirrored.append(event("U", 2, 1, "else"), event("U", 9, 3, "new"), event("D", 9, 4))
    report = mirrored.merge()
    assert (report.strategy, report.index_rebuilds, looks) == ("scan", 1, [True, True, False])
    mirrored.check()


def test_what_others_do_to_the_mirror_is_indexed_and_no_more(mirrored):
    """Compaction, other ways to merge, replaced statistics; expiry is in test_index.py."""
    mirrored.compact(mirrored.mirror)
    report = change(mirrored, 3)
    assert (report.strategy, report.index_rebuilds) == ("index", 0)
    assert report.index_files_indexed >= 1
    mirrored.append(event("U", 4, 7, "by scan"), event("D", 4, 8))
    mirrored.merge(strategy=Strategy.SCAN)
    mirrored.append(event("U", 4, 5, "by statement"), event("D", 4, 6))
    mirrored.merge(strategy=Strategy.MERGE)
    assert change(mirrored, 5).index_rebuilds == 0
    mirrored.lake.sql(f"CALL system.compute_table_stats('{mirrored.mirror}')").collect()
    report = change(mirrored, 6)
    assert (report.strategy, report.index_rebuilds, report.index_files_indexed) == ("index", 0, 0)
    assert verify(mirrored.lake, parse_identifier(mirrored.mirror)).differences == 0


def test_an_index_is_compacted_after_the_commit(mirrored, monkeypatch):
    """Also one that has grown because others have written every file of the mirror anew."""
    mirrored.compact(mirrored.mirror)
    before, commits = len(mirrored.past()), []

    def noting(*arguments):
        commits.append(len(mirrored.past()))
        return with_compacted(*arguments)

    monkeypatch.setattr(maintain, "with_compacted", noting)
    report = change(mirrored, 3)
    assert (report.strategy, report.index_rebuilds) == ("index", 0)
    assert commits == [before + 1]
    assert verify(mirrored.lake, parse_identifier(mirrored.mirror)).differences == 0


def test_a_second_row_of_a_key_costs_one_scan_when_the_key_changes(mirrored):
    mirrored.lake.sql(f"INSERT INTO lake.{mirrored.mirror} VALUES (5, 'theirs', 0, 1)")
    mirrored.append(event("U", 3, 3, "another key"))
    report = mirrored.merge()
    assert (report.strategy, report.index_rebuilds) == ("index", 0)
    mirrored.append(event("U", 4, 5, "ours"), event("U", 4, 6, "ours"))
    report = mirrored.merge()
    assert (report.strategy, report.index_rebuilds) == ("scan", 1)
    report = change(mirrored, 5)
    assert (report.strategy, report.index_rebuilds) == ("index", 0)
    assert verify(mirrored.lake, parse_identifier(mirrored.mirror)).differences == 0


def test_a_rolled_back_mirror_does_not_believe_its_index(mirrored):
    then = mirrored.table().metadata.current_snapshot_id
    change(mirrored, 3)
    mirrored.lake.sql(f"CALL system.rollback_to_snapshot('{mirrored.mirror}', {then})").collect()
    change(mirrored, 4)
    assert verify(mirrored.lake, parse_identifier(mirrored.mirror)).differences == 0


# Of a small one that counts as large: tests/spark/test_merge_preview.py.
@pytest.mark.soak
def test_a_large_mirror_gets_an_index_by_itself_and_does_not_wait_for_it(embedded_lake):
    mirrored = Mirrored(embedded_lake, strategy=Strategy.AUTO)
    mirrored.append(event("I", 1, 1, "a"))
    mirrored.merge()
    rows = embedded_lake.spark.range(1000, 1000 + INDEXED_ROWS).selectExpr(
        "id", "'x' AS name", "0L AS amount", "0L AS lsn"
    )
    rows.writeTo(f"lake.{mirrored.mirror}").append()
    mirrored.append(event("U", 2, 1000, "b"), event("I", 2, 1, "b"))
    first = mirrored.merge()
    assert (first.strategy, first.index_rebuilds) == ("scan", 1)
    preview = mirrored.merger().preview()
    assert preview.snapshots == 0
    mirrored.append(event("D", 3, 1000), event("U", 3, 1001, "c"))
    assert mirrored.merger().preview().strategy == "index"
    second = mirrored.merge()
    assert (second.strategy, second.index_rebuilds, second.rows_deleted) == ("index", 0, 1)
    found = mirrored.found()
    assert (1000,) not in found
    assert found[(1001,)]["name"] == "c"
    assert len(found) == INDEXED_ROWS


def test_a_store_that_takes_no_index_stops_no_merge(embedded_lake, monkeypatch):
    """Nor is a build tried again at once that has failed; nor does it matter after the commit."""
    monkeypatch.setattr(strategy, "INDEXED_ROWS", 0)
    mirrored = Mirrored(embedded_lake, strategy=Strategy.AUTO)
    mirrored.append(*(event("I", 1, n, f"v{n}") for n in range(40)))
    mirrored.merge()
    merger = mirrored.merger()
    mirrored.append(event("U", 2, 1, "b"))
    assert merger.merge().index_rebuilds == 1
    location = root_path(mirrored).parent
    shutil.rmtree(location)
    location.write_text("no directory")
    for lsn, notes in ((3, 1), (4, 0)):
        mirrored.append(event("U", lsn, 2, "c"), event("D", lsn, lsn))
        report = merger.merge()
        assert (report.strategy, len(report.notes)) == ("scan", notes)
    mirrored.check()


def test_each_index_hashes_by_a_seed_of_its_own(embedded_lake):
    """Else who sends keys could make some that collide."""
    schema = pa.schema([("id", pa.string()), ("op", pa.string()), ("lsn", pa.int64())])
    mirrored = Mirrored(embedded_lake, schema, strategy=Strategy.INDEX)
    identifier = parse_identifier(mirrored.mirror)
    for lsn in (1, 2):
        mirrored.append(*({"op": "U", "lsn": lsn, "id": f"key {n}"} for n in range(lsn, lsn + 9)))
        mirrored.merge()
    mirrored.check()
    assert verify(mirrored.lake, identifier).differences == 0
    seeds = {build(mirrored.lake, identifier).root.seed for _ in range(3)}
    assert len(seeds) == 3
