"""What a small batch costs in a lake that looks old: `benchmarks/age.py` in short."""

import pytest
from pyiceberg.table.metadata import TableMetadataUtil

from neve.lake.metadata_json import MetadataJson
from tests.support import aged
from tests.support.aged_expiry import expiring_table
from tests.support.aged_lake import (
    DAY,
    LEDGER,
    LOGS,
    MONTH,
    NEW,
    WEEK,
    Age,
    aged_lake,
    embedded_settings,
)

MOST_SECONDS = 0.25
RUNS = 5


def processor_seconds(age: Age, directory) -> float:
    directory.mkdir()
    with aged_lake(age, embedded_settings(directory)) as lake:
        costs = []
        for _ in range(RUNS):
            lake.send()
            costs.append(lake.consolidate())
    assert [cost.documents for cost in costs] == [0] * RUNS
    return min(cost.processor_seconds for cost in costs)


def expiry_seconds(age: Age, directory) -> float:
    directory.mkdir()
    with expiring_table(age, embedded_settings(directory), groups=2, group=40) as table:
        return min(table.expire().processor_seconds for _ in range(2))


def test_a_batch_at_1455_snapshots_parses_the_metadata_once_and_never_the_history(
    tmp_path, monkeypatch
):
    """It took 1.36 s of processor time, and nine parses of all snapshots."""
    parsed = []
    parse = TableMetadataUtil.parse_obj

    def counting(document):
        parsed.append(len(document.get("snapshots") or ()))
        return parse(document)

    settings = embedded_settings(tmp_path)
    age = Age("old", snapshots=DAY.snapshots)
    with aged_lake(age, settings) as lake:
        monkeypatch.setattr(TableMetadataUtil, "parse_obj", counting)
        lake.send()
        assert lake.consolidate().documents == 0
        # As `neve consolidate --once` does: a worker that has not seen the table yet.
        lake.worker = type(lake.worker)(lake.lake, lake.worker.spec, lake.worker.runner)
        lake.send()
        cost = lake.consolidate()
    # Of the table, of that for rejected rows if there is one, and of the ledger.
    assert cost.documents <= 2
    assert all(snapshots == 0 for snapshots in parsed), "a shape has no snapshots"


def test_a_batch_and_a_ledger_write_look_at_the_newest_snapshots_only(tmp_path, monkeypatch):
    """They walked the whole history four times."""
    looked_at = []
    walk = MetadataJson.iter_main_history

    def counting(metadata):
        for snapshot in walk(metadata):
            looked_at.append(snapshot["snapshot-id"])
            yield snapshot

    with aged_lake(Age("old", snapshots=300), embedded_settings(tmp_path)) as lake:
        monkeypatch.setattr(MetadataJson, "iter_main_history", counting)
        lake.send()
        lake.consolidate()
        lake.write_ledger()
    assert 0 < len(looked_at) < 20


def test_a_batch_and_a_ledger_write_expire_nothing(tmp_path):
    """It took 2 to 5 s of a batch: upkeep does it, beside the batches."""
    with aged_lake(NEW, embedded_settings(tmp_path)) as lake:
        for name in (LOGS, LEDGER):
            table = aged.staging(lake.lake, name)
            aged.add_snapshots(table, 30, every_ms=24 * 3600 * 1000)
        before = {name: set(snapshots_of(lake, name)) for name in (LOGS, LEDGER)}
        lake.send()
        lake.consolidate()
        lake.write_ledger()
        for name, snapshots in before.items():
            assert len(snapshots) > 30
            assert snapshots < set(snapshots_of(lake, name))


def snapshots_of(lake, name):
    return aged.staging(lake.lake, name).document.snapshots


@pytest.mark.timed
def test_a_batch_in_a_lake_of_a_week_costs_what_it_costs_in_a_new_one(tmp_path):
    young = processor_seconds(NEW, tmp_path / "new")
    old = processor_seconds(WEEK, tmp_path / "week")
    assert old <= MOST_SECONDS
    # The difference was 1.3 s. Some milliseconds are the clock's.
    assert old <= 1.5 * young + 0.02


@pytest.mark.timed
def test_expiring_snapshots_of_a_week_costs_what_it_costs_in_a_new_table(tmp_path):
    """It took 50 times as long."""
    young, old = (expiry_seconds(age, tmp_path / age.name) for age in (NEW, WEEK))
    # Once, the lists of a week have to be decoded.
    assert old <= 1.5 * young + 0.05


@pytest.mark.soak
def test_a_batch_in_a_lake_of_a_month_costs_little(tmp_path):
    assert processor_seconds(MONTH, tmp_path / "month") <= MOST_SECONDS
