"""How often a merge loads its tables from the catalog: each load is a request, and may be large."""

from __future__ import annotations

from dataclasses import replace

import pytest

from neve.merge.strategy import Strategy
from tests.support.merging import Mirrored, event

pytestmark = pytest.mark.usefixtures("embedded_lake")

# Python decides by each, and reads the changelog of a small batch by itself. Java loads what it
# reads or commits to, and makes sure once more that it is the newest. A database answers that
# without its metadata.
CHANGELOG, MIRROR = 1, 3
# A side table is loaded to be recognised, and read again by what commits to it.
SIDE = 2


@pytest.fixture(scope="module")
def mirrored(embedded_lake, faulty_lake):
    mirrored = Mirrored(faulty_lake, strategy=Strategy.INDEX)
    mirrored.append(*(event("I", 1, number, "first") for number in range(10)))
    mirrored.merge()
    return mirrored


@pytest.fixture(scope="module")
def merger(mirrored):
    """A merger of which the first batch is merged, as that of a service is."""
    merger = mirrored.merger()
    mirrored.append(event("U", 2, 1, "second"), event("D", 2, 2), event("?", 2, 3, "what"))
    assert merger.merge().strategy == "index"
    return merger


def test_a_merge_loads_no_table_more_often_than_it_has_to(mirrored, merger, faults):
    mirrored.append(event("U", 3, 4, "third"), event("D", 3, 5))
    faults.expect(mirrored.namespace)
    report = merger.merge()
    assert (report.strategy, report.batches) == ("index", 1)
    assert faults.loads == {"changes": CHANGELOG, "rows": MIRROR, "rows_tombstones": SIDE}
    mirrored.check()


def test_a_turn_with_nothing_to_do_loads_what_it_compares(mirrored, merger, faults):
    faults.expect(mirrored.namespace)
    assert merger.merge().outcome == "idle"
    assert faults.loads == {"changes": 1, "rows": 1}


def test_what_is_rejected_is_loaded_when_it_is_needed(mirrored, merger, faults):
    mirrored.append(event("?", 4, 6, "what"))
    faults.expect(mirrored.namespace)
    assert merger.merge().set_aside == 1
    assert faults.loads["rows_rejected"] == SIDE
    mirrored.check()


def test_a_backlog_is_looked_at_once(mirrored, merger, faults, monkeypatch):
    """The changelog is planned once, whatever the number of batches; only the mirror is new."""
    monkeypatch.setattr(merger, "spec", replace(mirrored.spec, batch_size=2))
    mirrored.append(*(event("U", 5, number, "fifth") for number in range(10)))
    faults.expect(mirrored.namespace)
    assert merger.merge().batches == 5
    assert faults.loads["changes"] == 2
    mirrored.check()
