"""Replacing rows on real catalogs, also while commits go wrong: applied once, or not at all."""

from __future__ import annotations

import pyarrow as pa
import pytest

from neve.errors import ConflictError, UnknownOutcomeError
from neve.lake.row_delta import StatisticsFile, prepare_row_delta, read_statistics
from tests.support.catalog_faults import FAULTS, after
from tests.support.mirrors import Mirror
from tests.support.readers import by_all

pytestmark = pytest.mark.usefixtures("embedded_lake")
NEW = pa.table({"id": [2, 7], "v": ["new", "new"]})
BEFORE = [{"id": one, "v": "old"} for one in range(5)]
AFTER = sorted([*BEFORE[:2], *BEFORE[3:], *NEW.to_pylist()], key=lambda row: row["id"])
# Refused, not applied without a word, and applied without one.
ESSENTIAL = ("409", "504", "dropped after it was applied")
NOT_APPLIED = {
    "409": ConflictError,
    **dict.fromkeys(("500", "503", "504", "dropped before"), UnknownOutcomeError),
}


def prepared(mirror):
    mirror.fill(0, 5)
    changes = mirror.changes(NEW, mirror.where(2))
    return prepare_row_delta(mirror.lake, mirror.table, changes)


@pytest.mark.parametrize("kind", ["postgres", "rest"])
def test_rows_are_replaced(request, kind):
    mirror = Mirror(request.getfixturevalue(f"{kind}_lake"))
    commit = prepared(mirror)
    file = StatisticsFile(commit.snapshot_id, "s3://lake/somewhere/root.puffin", 400, 200)
    assert commit.commit({"mark": "1"}, file) == mirror.main
    assert mirror.read() == by_all(AFTER)
    assert read_statistics(mirror.table) == {mirror.main: file}
    assert mirror.table.properties["mark"] == "1"
    second = prepare_row_delta(mirror.lake, mirror.table, mirror.changes(NEW))
    mirror.fill(50, 51)
    with pytest.raises(ConflictError):
        second.commit({"mark": "2"})
    assert mirror.table.properties["mark"] == "1"


@pytest.mark.parametrize(
    "name",
    [pytest.param(one, marks=() if one in ESSENTIAL else pytest.mark.soak) for one in FAULTS],
)
def test_commits_that_go_wrong(faulty_lake, faults, name):
    mirror = Mirror(faulty_lake)
    commit = prepared(mirror)
    faults.expect(mirror.identifier[0], {1: FAULTS[name]})
    if name in NOT_APPLIED:
        with pytest.raises(NOT_APPLIED[name], match=str(commit.snapshot_id)):
            commit.commit()
    else:
        assert commit.commit() == mirror.main
    assert faults.commits == 1
    assert mirror.read() == by_all(BEFORE if name in NOT_APPLIED else AFTER)


def test_somebody_is_first_while_it_is_on_its_way(faulty_lake, faults):
    mirror = Mirror(faulty_lake)
    commit = prepared(mirror)
    faults.expect(mirror.identifier[0], {1: after(lambda: mirror.fill(60, 61))})
    with pytest.raises(ConflictError):
        commit.commit()
    assert mirror.read() == by_all([*BEFORE, {"id": 60, "v": "old"}])
