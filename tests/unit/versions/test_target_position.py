"""How far a follower has kept a table, also where snapshots of that table have expired."""

from __future__ import annotations

import pyarrow as pa
import pytest

import neve
from neve.errors import CorruptionError
from neve.lake.table_reads import file_reader
from neve.versions.target_position import PROPERTY_PREFIX, Position, find_position
from neve.versions.target_table import stale_branches
from tests.support.lakes import sqlite_settings

ROWS = pa.table({"id": pa.array([1], pa.int64())})


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    with neve.open(sqlite_settings(tmp_path_factory.mktemp("kept"))) as lake:
        lake.catalog().create_namespace("shop")
        yield lake


class Kept:
    """A table that a follower keeps, with commits of other writers after it."""

    def __init__(self, lake, name, format_version="2"):
        properties = {"format-version": format_version}
        self.table = lake.catalog().create_table(f"shop.{name}", ROWS.schema, properties=properties)
        self._lake, self._name = lake, name

    def keep(self):
        position = Position("a", "u", 7, 0, "batch")
        self.table.append(ROWS, snapshot_properties=position.summary())
        number = self.table.metadata.last_sequence_number
        with self.table.transaction() as change:
            change.set_properties(position.properties(number))

    def position(self, *, reads=True):
        ref = self._lake.ref(f"shop.{self._name}")
        metadata = self._lake.reader().read(ref.identifier)
        return find_position(metadata, "a", file_reader(self._lake, ref) if reads else None)


def test_a_position_whose_snapshot_pyiceberg_expired_is_in_the_copy(lake):
    """Else the table would be filled from the beginning, and have all rows twice."""
    kept = Kept(lake, "expired")
    kept.keep()
    for _ in range(2):
        kept.table.append(ROWS)
    old = [each.snapshot_id for each in kept.table.snapshots()][:2]
    kept.table.maintenance.expire_snapshots().by_ids(old).commit()
    for reads in (True, False):
        assert kept.position(reads=reads).batch_id == "batch"


@pytest.mark.parametrize("format_version", ["1", "2"])
def test_a_position_that_was_rolled_back_is_gone(lake, format_version):
    kept = Kept(lake, f"rolled_back_{format_version}", format_version)
    kept.table.append(ROWS)
    first = kept.table.current_snapshot().snapshot_id
    kept.keep()
    assert kept.position().snapshot_id == 7
    kept.table.manage_snapshots().rollback_to_snapshot(first).commit()
    assert kept.position() is None


def test_a_branch_is_stale_after_a_day():
    """That of a batch at work is not, nor is one that somebody else has called alike."""
    now = 1_800_000_000
    names = [f"neve-follow-{now - hours * 3600}-0123456789ab" for hours in (2, 25)]
    others = ["main", "neve-follow-me", "neve-follow-1-work", "neve-follow-1-"]
    assert stale_branches([*names, *others], now) == names[1:]


def test_a_position_that_cannot_be_read_is_named(lake):
    kept = Kept(lake, "damaged")
    kept.table.append(ROWS)
    with kept.table.transaction() as change:
        change.set_properties({f"{PROPERTY_PREFIX}a": '{"follower": 1}'})
    with pytest.raises(CorruptionError, match="the position of follower a cannot be read"):
        kept.position()
