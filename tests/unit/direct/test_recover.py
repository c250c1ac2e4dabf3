"""Recovery records and what becomes of them, on the embedded catalog."""

from __future__ import annotations

import json
import signal
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import StringType

from neve import failpoints
from neve.direct import Writer
from neve.direct import recover as recover_module
from neve.direct.recover import recover
from neve.errors import NotFoundError, StorageError
from neve.lake.data_files import data_file_of
from neve.lake.profile import DEFAULT_CATALOG, profile_named
from neve.lake.staging import StagingTable
from tests.support.direct_lake import (
    DAY,
    NEXT_DAY,
    DirectLake,
    logs,
    recover_all,
    run_until_killed,
    send_second_while_away,
    send_two,
)

# What PyIceberg says of itself, as another writer.
pytestmark = pytest.mark.filterwarnings("ignore:Parquet writer option:UserWarning")
KEPT = Counter({"before": 1, "kept": 2})


@pytest.fixture
def lake(tmp_path):
    return DirectLake(tmp_path)


def outcomes(reports):
    return [report.outcome for report in reports]


@pytest.mark.parametrize(
    ("work", "point", "acknowledged", "recovered"),
    [
        (send_two, "direct.written@2", ["first"], []),
        (send_two, "direct.committed@2", ["first"], []),
        (send_second_while_away, "direct.unconfirmed", ["first"], []),
        (send_second_while_away, "direct.recorded", ["first"], ["registered"]),
    ],
)
def test_a_killed_writer_leaves_what_it_acknowledged_exactly_once(
    tmp_path, lake, work, point, acknowledged, recovered
):
    assert run_until_killed(work, tmp_path, point) == -signal.SIGKILL
    assert outcomes(lake.recover()) == recovered
    assert lake.recover() == []
    assert lake.acknowledged_rows() == Counter(acknowledged)
    rows = lake.rows()
    # Its sender has no answer: it may be there, and never twice.
    assert rows == lake.acknowledged_rows() + Counter({"second": rows["second"]})
    assert rows["second"] == (point in ("direct.committed@2", "direct.recorded"))


def test_a_killed_recovery_registers_nothing_twice(tmp_path, lake):
    lake.leave_record("kept", (DAY, NEXT_DAY))
    assert run_until_killed(recover_all, tmp_path, "recover.registered") == -signal.SIGKILL
    (report,) = lake.recover()
    assert report.outcome == "committed"
    assert report.snapshot_id == lake.table().current_snapshot().snapshot_id
    assert lake.recover() == []
    assert lake.rows() == lake.acknowledged_rows() == KEPT


def test_the_files_are_registered_with_their_statistics_and_partitions(lake):
    lake.leave_record("kept", (DAY, NEXT_DAY))
    (planned,) = lake.recover(dry_run=True)
    assert (planned.outcome, planned.rows, planned.files) == ("to register", 2, 2)
    assert lake.rows() == Counter({"before": 1})
    (report,) = lake.recover()
    assert (report.outcome, report.table) == ("registered", "otel.logs")
    files = lake.table().inspect.files().to_pylist()
    assert all(file["readable_metrics"]["body"]["lower_bound"] for file in files)
    next_day = f"timestamp >= '{NEXT_DAY.date()}T00:00:00+00:00'"
    assert lake.table().scan(next_day).to_arrow()["body"].to_pylist() == ["kept"]


def test_records_that_an_outage_left_are_all_registered(lake):
    with Writer.open(lake.settings) as writer:
        lake.send(writer, "before")
        with lake.away():
            for number in range(3):
                lake.send(writer, f"kept {number}")
        lake.send(writer, "after")
    assert outcomes(lake.recover()) == ["registered"] * 3
    assert lake.rows() == lake.acknowledged_rows()


def test_a_record_of_what_was_committed_after_all_is_removed(lake):
    record = lake.leave_record("kept", (DAY, NEXT_DAY))
    content = record.read_bytes()
    lake.recover()
    record.write_bytes(content)
    assert outcomes(lake.recover(dry_run=True)) == ["to remove"]
    assert record.exists()
    (report,) = lake.recover()
    assert (report.outcome, record.exists()) == ("committed", False)
    # Rolled back from: a person did not want the rows.
    table = lake.table()
    first = table.history()[0].snapshot_id
    table.manage_snapshots().rollback_to_snapshot(first).commit()
    record.write_bytes(content)
    assert outcomes(lake.recover()) == ["committed"]
    assert lake.rows() == Counter({"before": 1})


def expire(lake, *places):
    """Expire snapshots by their place in the table's history."""
    table = lake.table()
    ids = [table.metadata.snapshots[place].snapshot_id for place in places]
    table.maintenance.expire_snapshots().by_ids(ids).commit()


def test_files_that_are_in_the_table_are_evidence_without_the_snapshot_that_added_them(lake):
    record = lake.leave_record("kept", (DAY, NEXT_DAY))
    content = record.read_bytes()
    lake.recover()
    lake.table().append(logs("later"))
    expire(lake, 0, 1)
    record.write_bytes(content)
    (report,) = lake.recover()
    assert (report.outcome, report.reason) == ("committed", "the table has all its files")
    assert lake.rows() == KEPT + Counter(["later"])


@pytest.mark.parametrize("removed", [(0, 1), (1,)], ids=["since the base", "the append only"])
def test_an_append_whose_traces_were_erased_is_never_registered_again(lake, removed):
    """Compaction wrote the rows into other files, and expiry removed the snapshots."""
    record = lake.leave_record("kept", (DAY, NEXT_DAY))
    content = record.read_bytes()
    lake.recover()
    rows = lake.table().scan().to_arrow()
    lake.table().overwrite(rows)
    # A compaction's own steps are not evidence: only its last snapshot stays.
    steps = range(2, len(lake.table().metadata.snapshots) - 1)
    expire(lake, *removed, *steps)
    record.write_bytes(content)
    (report,) = lake.recover()
    assert report.outcome == "left"
    assert "snapshots made since were removed" in report.reason
    assert f"neve recover --forget {record.stem}" in report.hint
    assert lake.rows() == KEPT


def write_many(lake):
    """Have direct writes remove all snapshots but two."""
    direct = lake.settings.direct.model_copy(update={"max_snapshots": 2})
    few = lake.settings.model_copy(update={"direct": direct})
    with Writer.open(few) as writer:
        for _ in range(4):
            assert lake.send(writer, "later").committed
    assert len(lake.table().metadata.snapshots) == 2


def test_an_append_that_others_commit_meanwhile_is_not_registered_again(lake, monkeypatch):
    """Between the decision and the commit, its snapshot is made and removed."""
    lake.leave_record("kept", (DAY, NEXT_DAY))

    def describe(record, history):
        monkeypatch.undo()
        assert outcomes(lake.recover()) == ["registered"]
        write_many(lake)
        return described(record, history)

    described = recover_module._described
    monkeypatch.setattr(recover_module, "_described", describe)
    (report,) = recover(lake.impatient())
    assert report.outcome == "registered"
    assert report.snapshot_id not in lake.table().metadata.snapshots
    assert lake.rows() == lake.acknowledged_rows()


def test_snapshots_that_direct_writes_removed_leave_no_doubt(lake):
    """Past `direct.max_snapshots` each write removes an old snapshot; its files stay."""
    record = lake.leave_record("kept", (DAY, NEXT_DAY))
    content = record.read_bytes()
    write_many(lake)
    assert outcomes(lake.recover()) == ["registered"]
    write_many(lake)
    record.write_bytes(content)
    (report,) = lake.recover()
    assert (report.outcome, report.reason) == ("committed", "the table has all its files")
    # Compaction takes the files away, and expiry what still had them: that is a gap.
    lake.table().overwrite(lake.table().scan().to_arrow())
    while len(lake.table().metadata.snapshots) > 1:
        expire(lake, 0)
    record.write_bytes(content)
    assert outcomes(lake.recover()) == ["left"]
    assert lake.rows() == lake.acknowledged_rows()


def test_a_first_append_whose_traces_were_erased_is_never_registered_again(lake):
    """PyIceberg's expiry makes the oldest retained snapshot look like the table's first one."""
    record = lake.leave_record("kept", (DAY, NEXT_DAY))
    document = json.loads(record.read_text())
    document.update(base_snapshot_id=None, base_sequence_number=0)
    content = json.dumps(document)
    lake.recover()
    table = lake.table()
    table.delete("body = 'kept'")
    while len(lake.table().metadata.snapshots) > 1:
        expire(lake, 0)
    assert lake.table().current_snapshot().parent_snapshot_id is None
    record.write_text(content)
    assert outcomes(lake.recover()) == ["left"]
    assert lake.rows() == Counter({"before": 1})


def test_a_rollback_whose_traces_were_erased_is_not_undone(lake):
    record = lake.leave_record("kept", (DAY, NEXT_DAY))
    content = record.read_bytes()
    lake.recover()
    table = lake.table()
    table.manage_snapshots().rollback_to_snapshot(table.history()[0].snapshot_id).commit()
    expire(lake, 1)
    record.write_bytes(content)
    assert outcomes(lake.recover()) == ["left"]
    assert lake.rows() == Counter({"before": 1})


@pytest.mark.parametrize(
    ("count", "outcome", "reason"),
    [
        (1, "left", "the table has 1 of its 2 files"),
        (2, "committed", "the table has all its files"),
    ],
)
def test_files_that_somebody_else_registered_are_not_registered_again(lake, count, outcome, reason):
    record = lake.leave_record("kept", (DAY, NEXT_DAY))
    files = json.loads(record.read_text())["files"][:count]
    table = lake.table()
    described = [
        data_file_of(table.metadata, table.io, file["path"], Record(*file["partition"]), 0, 1)
        for file in files
    ]
    profile = profile_named(lake.settings, DEFAULT_CATALOG)
    StagingTable(profile, table).append(described, {})
    (report,) = lake.recover()
    assert (report.outcome, report.reason) == (outcome, reason)
    assert lake.rows() == Counter({"before": 1, "kept": count})


def test_a_table_that_was_dropped_or_made_anew_keeps_its_record(lake):
    record = lake.leave_record("kept", (DAY, NEXT_DAY))
    table = lake.table()
    table.catalog.drop_table("otel.logs")
    (report,) = lake.recover()
    assert (report.outcome, report.reason) == ("left", "the table does not exist")
    with Writer.open(lake.settings) as writer:
        lake.send(writer, "anew")
    (report,) = lake.recover()
    assert (report.outcome, record.exists()) == ("left", True)
    assert "made anew" in report.reason
    assert lake.rows() == Counter(["anew"])


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"PAR1")])
def test_a_file_that_is_missing_or_damaged_keeps_the_record(lake, damage):
    record = lake.leave_record("kept", (DAY, NEXT_DAY))
    path = json.loads(record.read_text())["files"][1]["path"]
    damage(Path(path.removeprefix("file://")))
    (report,) = lake.recover(dry_run=True)
    assert lake.recover() == [report]
    assert (report.outcome, record.exists()) == ("left", True)
    assert path in report.reason
    # Not one of the two files alone, either.
    assert lake.rows() == Counter({"before": 1})


def test_a_file_with_other_rows_of_the_same_size_keeps_the_record(lake):
    record = lake.leave_record("kept")
    document = json.loads(record.read_text())
    document["files"][0]["rows"] += 1
    record.write_text(json.dumps(document))
    (report,) = lake.recover()
    assert "other rows than were written" in report.reason
    assert lake.rows() == Counter({"before": 1})


def test_a_table_that_changed_meanwhile_takes_the_files(lake):
    lake.leave_record("kept", (DAY, NEXT_DAY))
    with lake.table().update_schema() as schema:
        schema.add_column("added", StringType())
    with lake.table().update_spec() as spec:
        spec.add_field("service_name", IdentityTransform(), "service")
    assert outcomes(lake.recover()) == ["registered"]
    assert lake.rows() == KEPT
    partitions = lake.table().inspect.files().to_pylist()
    assert {file["spec_id"] for file in partitions} == {0}


def test_two_recoveries_at_once_register_each_record_once(lake):
    for number in range(3):
        lake.leave_record(f"kept {number}")
    gate = threading.Barrier(2)

    def run(_: int) -> set[str]:
        gate.wait()
        return {report.outcome for report in recover(lake.settings)}

    with ThreadPoolExecutor(2) as pool:
        done = set().union(*pool.map(run, range(2)))
    assert done <= {"registered", "committed"}
    assert lake.rows() == lake.acknowledged_rows()
    assert lake.recover() == []


def test_a_catalog_that_is_still_away_keeps_all_records(lake):
    record = lake.leave_record("kept")
    with lake.away(), pytest.raises(Exception, match="is locked by another process"):
        lake.recover()
    assert record.exists()


def test_a_catalog_that_goes_away_meanwhile_keeps_the_other_records(lake, monkeypatch):
    for number in range(3):
        lake.leave_record(f"kept {number}")
    with ExitStack() as catalog:

        def go_away(_: str) -> None:
            catalog.enter_context(lake.away())

        monkeypatch.setattr(failpoints, "reach", go_away)
        reports = recover(lake.impatient())
        assert outcomes(reports) == ["registered", "left", "left"]
        # The last one was not even tried: the catalog is away.
        assert reports[1].reason == reports[2].reason
        monkeypatch.undo()
    assert outcomes(lake.recover()) == ["registered", "registered"]
    assert lake.rows() == lake.acknowledged_rows()


@pytest.mark.parametrize("error", [StorageError("503", retryable=True), KeyError("a defect")])
def test_a_table_that_cannot_be_read_keeps_no_other_from_its_records(lake, monkeypatch, error):
    record = lake.leave_record("kept")
    document = {**json.loads(record.read_text()), "table": ["otel", "odd"]}
    for name in ("0", "1"):
        document |= {"append_id": name, "written_at": f"2026-01-01T00:00:0{name}+00:00"}
        (lake.records / f"{name}.json").write_text(json.dumps(document))
    load = recover_module.load_if_exists

    def failing(profile, catalog, identifier):
        if identifier == ("otel", "odd"):
            raise error
        return load(profile, catalog, identifier)

    monkeypatch.setattr(recover_module, "load_if_exists", failing)
    reports = lake.recover()
    assert outcomes(reports) == ["left", "left", "registered"]
    assert reports[0].reason in ("503", "internal error: KeyError")
    assert lake.rows() == lake.acknowledged_rows()


def test_a_table_that_was_never_loaded_is_refused_while_the_catalog_is_away(lake):
    with Writer.open(lake.settings) as writer:
        with lake.away():
            result = lake.send(writer, "refused")
        assert (result.is_kept, result.files) == (False, ())
        assert "is locked by another process" in str(result.error)
        assert list(lake.records.parent.glob("**/*.json")) == []
        lake.send(writer, "kept")
    assert lake.rows() == Counter(["kept"])


def test_rows_of_a_table_that_was_dropped_are_not_accepted(lake):
    with Writer.open(lake.settings) as writer:
        lake.send(writer, "before")
        lake.table().catalog.drop_table("otel.logs")
        result = lake.send(writer, "refused")
    assert (result.committed, result.is_kept) == (False, False)


def test_a_record_that_cannot_be_written_is_no_acknowledgement(lake):
    lake.records.parent.mkdir(parents=True)
    lake.records.write_text("in the way")
    with Writer.open(lake.settings) as writer:
        lake.send(writer, "before")
        with lake.away():
            result = lake.send(writer, "refused")
    assert (result.committed, result.is_kept) == (False, False)
    assert lake.acknowledged_rows() == Counter(["before"])


def test_damaged_records_are_reported_and_left(lake):
    record = lake.leave_record("kept")
    document = json.loads(record.read_text())
    damaged = {
        "empty": b"",
        "cut": record.read_bytes()[:-20],
        "list": b"[]",
        "newer": json.dumps({**document, "version": 2}).encode(),
        "renamed": record.read_bytes(),
        "untyped": json.dumps({**document, "append_id": "untyped", "files": [3]}).encode(),
        "textual": json.dumps({**document, "base_sequence_number": "1"}).encode(),
    }
    for name, content in damaged.items():
        (lake.records / f"{name}.json").write_bytes(content)
    # What a killed writer left is no record.
    (lake.records / "copying-1234").write_bytes(b"{")
    reports = {report.id: report for report in lake.recover()}
    assert reports.pop(record.stem).outcome == "registered"
    assert {name: report.outcome for name, report in reports.items()} == dict.fromkeys(
        damaged, "left"
    )
    assert "version 2" in reports["newer"].reason
    assert all((lake.records / f"{name}.json").exists() for name in damaged)


def test_records_are_read_back_as_they_were_written(lake):
    lake.leave_record("first", (DAY, NEXT_DAY))
    lake.leave_record("second")
    with lake.store() as store:
        records = [stored.content for stored in store.read_all()]
        assert [record.rows for record in records] == [2, 1]
        assert all(record.table == ("otel", "logs") for record in records)
        with pytest.raises(NotFoundError, match="no recovery record"):
            store.read("../../catalog")
