"""A merge commits only what adds up, on every path; the mirror's commits say the numbers."""

from __future__ import annotations

import json
from unittest import mock

import pytest

from neve.errors import UnbalancedError
from neve.merge import batch, driver_events
from neve.merge import transforms as tr
from neve.merge.double_entry import EVENTS
from neve.merge.strategy import Strategy
from tests.support.merging import Mirrored, event


def entries(mirrored):
    """What the mirror's commits say of their events, the newest first."""
    snapshots = map(mirrored.table().metadata.snapshot_by_id, mirrored.past())
    return [json.loads(each.summary[EVENTS]) for each in snapshots if each.summary[EVENTS]]


def without_one(read):
    """Read as before, but lose an event on the way."""

    def reading(*arguments):
        rows = read(*arguments)
        return rows.slice(1) if hasattr(rows, "slice") else rows.where("lsn <> 11")

    return reading


@pytest.mark.parametrize("strategy", [Strategy.INDEX, Strategy.SCAN, Strategy.MERGE])
def test_a_batch_that_lost_an_event_is_not_committed(embedded_lake, strategy):
    mirrored = Mirrored(embedded_lake, strategy=strategy)
    mirrored.append(*(event("I", key, key, "a") for key in range(1, 10)))
    mirrored.merge()
    mirrored.append(
        event("U", 11, 1, "b"),
        event("U", 12, 1, "c"),
        event("D", 13, 2),
        event("D", 14, 20),
        event("U", 2, 3, "late"),
        event("I", 4, 4, "a"),
        *([] if strategy is Strategy.INDEX else [event("?", 15, 5)]),
    )
    before = mirrored.past()
    with (
        mock.patch.object(batch, "read_changes", without_one(batch.read_changes)),
        mock.patch.object(driver_events, "read_appended", without_one(driver_events.read_appended)),
        pytest.raises(UnbalancedError, match=r"[67] events were read, and .* = [56]") as told,
    ):
        mirrored.merge()
    assert not told.value.retryable
    if strategy is not Strategy.INDEX:
        with (
            mock.patch.object(tr, "rejected", lambda rows, of=tr.rejected: of(rows).limit(0)),
            pytest.raises(UnbalancedError, match="1 rejected events were counted, and 0"),
        ):
            mirrored.merge()
    assert mirrored.past() == before
    assert mirrored.table().refs().keys() == {"main"}
    report = mirrored.merge()
    mirrored.check()
    rejected = int(strategy is not Strategy.INDEX)
    told = {"applied": 3, "superseded": 1, "late": 1, "repeated": 1}
    told |= {"rejected": rejected} if rejected else {}
    assert entries(mirrored) == [{"read": 6 + rejected, **told}, {"read": 9, "applied": 9}]
    assert (report.rows_scanned, report.applied, report.repeated) == (6 + rejected, 3, 1)


def test_a_rebuild_and_a_retry_add_up(embedded_lake):
    mirrored = Mirrored(embedded_lake, strategy=Strategy.SCAN)
    mirrored.append(event("I", 1, 1, "a"), event("T", 5, None), event("T", 4, None))
    mirrored.append(event("I", 6, 2, "b"), event("new", 7, 3, "c"), event("?", 8, 4, "d"))
    mirrored.merge()
    first = {"read": 6, "applied": 2, "superseded": 1, "rejected": 2, "truncated": 1}
    assert entries(mirrored) == [first]
    mirrored.merger().rebuild()
    assert entries(mirrored) == [first, first]
    operations = {"operations": {"new": "insert"}}
    mirrored.settings = mirrored.settings.model_copy(update=operations)
    assert mirrored.merger().retry_rejected().rows_scanned == 1
    assert entries(mirrored)[0] == {"read": 1, "applied": 1}
    assert mirrored.table("rows_rejected").scan().to_arrow()["event"].length() == 1


def test_rows_that_are_not_written_are_missed(embedded_lake):
    """A statement counts what it writes only with its commit, on a branch that nobody sees."""
    mirrored = Mirrored(embedded_lake, strategy=Strategy.MERGE)
    mirrored.append(event("I", 1, 1, "a"), event("I", 2, 2, "b"))
    mirrored.merge()
    mirrored.append(event("U", 3, 1, "c"), event("U", 4, 2, "d"))
    changes = batch.BatchWork.changes
    with (
        mock.patch.object(batch.BatchWork, "changes", lambda work: changes(work).where("id = 1")),
        pytest.raises(UnbalancedError, match="2 rows were counted, and 1 are written"),
    ):
        mirrored.merge()
    assert mirrored.table().refs().keys() == {"main"}
    mirrored.merge()
    mirrored.check()
