"""`neve buffer forget`: only what tables remember of a buffer that is gone for good."""

import json

import pytest

import neve
from neve.buffer.buffer import open_store
from neve.cli.app import run
from neve.lake.staging import StagingTable
from neve.publish.batch import STAGED_PREFIX
from neve.publish.forget_buffer import UNNAMED
from neve.publish.publisher import Publisher
from neve.publish.ranges import MARK_PREFIX, read_marks
from neve.publish.rejected_rows import RejectedRows
from neve.signals import Signal
from tests.support.consolidation import Bench
from tests.support.lakes import sqlite_settings
from tests.support.power_cut import power_cut

GONE = "0123456789abcdef"
OLD = "logs/20260101T000000Z-0123456789ab"


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The configured buffer, as the command line sees it."""
    settings = sqlite_settings(tmp_path)
    monkeypatch.setenv("NEVE_CATALOG__URI", settings.catalog.uri)
    monkeypatch.setenv("NEVE_CATALOG__WAREHOUSE", settings.catalog.warehouse)
    with neve.open(settings) as lake:
        bench = Bench(lake, tmp_path / "here")
        monkeypatch.setenv("NEVE_BUFFER__LOCATION", bench.buffer.location)
        bench.send(Signal.LOGS, "a")
        bench.send(Signal.TRACES, "c")
        bench.run()
        yield bench


def identity(bench):
    return bench.worker().reader.buffer_id


def marks(bench, table="logs"):
    return set(read_marks(bench.lake.catalog().load_table(f"otel.{table}").properties))


def add_marks(bench, table, *streams):
    with bench.lake.catalog().load_table(f"otel.{table}").transaction() as change:
        change.set_properties({f"{MARK_PREFIX}{stream}": "3" for stream in streams})


def staged(bench):
    table = bench.lake.catalog().load_table("otel.logs")
    return StagingTable(bench.lake.profile, table).staged(STAGED_PREFIX)


def forget(capsys, *arguments, status=0):
    assert run(["--json", "buffer", "forget", *arguments]) == status
    output = capsys.readouterr()
    return json.loads(output.out) if status == 0 else output.err


def test_only_the_marks_of_that_buffer_go(here, capsys):
    ours = marks(here)
    add_marks(here, "logs", f"logs/{GONE}-1-a", f"logs/{GONE}-2-b", "logs/f123456789abcdef-1-a")
    add_marks(here, "traces", f"traces/{GONE}-1-a")
    before = here.lake.catalog().load_table("otel.logs").current_snapshot()
    assert forget(capsys, GONE) == [
        {"table": "otel.logs", "marks": 2, "staged_batches": 0},
        {"table": "otel.traces", "marks": 1, "staged_batches": 0},
    ]
    assert marks(here) == {*ours, "logs/f123456789abcdef-1-a"}
    # A REST catalog checks nothing but the ref: marks change only in a commit that moves main.
    after = here.lake.catalog().load_table("otel.logs").current_snapshot()
    assert after.parent_snapshot_id == before.snapshot_id
    assert here.names("logs").total() == 2


def test_the_configured_and_an_unknown_buffer_are_refused(here, capsys):
    add_marks(here, "logs", f"logs/{GONE}-1-a")
    assert "is the configured buffer" in forget(capsys, identity(here), status=2)
    message = forget(capsys, "ffffffffffffffff", status=1)
    assert "no table knows a buffer ffffffffffffffff" in message
    assert f"{GONE} (tables: 1, marks: 1, staged batches: 0)" in message
    assert f"{identity(here)} (the configured buffer, tables: 2" in message
    assert len(marks(here)) == 2


def test_staged_batches_are_the_last_copy_and_go_only_when_asked(here, tmp_path, capsys):
    gone = Bench(here.lake, tmp_path / "gone")
    gone.send(Signal.LOGS, "b")
    with power_cut("publish.staged"):
        gone.run()
    [batch] = staged(here)
    message = forget(capsys, identity(gone), status=2)
    assert f"neve staged publish otel.logs {batch.summary['neve.batch-id']}" in message
    assert len(staged(here)) == 1
    # Rows of it that an audit set aside.
    table = StagingTable(here.lake.profile, here.lake.catalog().load_table("otel.logs"))
    RejectedRows(here.lake, Publisher(table, gone.worker().reader)).stage("b-1", [], batch)
    assert forget(capsys, identity(gone), "--discard-staged") == [
        {"table": "otel.logs", "marks": 0, "staged_batches": 1},
        {"table": "otel.logs_rejected", "marks": 0, "staged_batches": 1},
    ]
    assert staged(here) == []


def test_marks_of_the_old_naming_are_unnamed_unless_their_stream_is_here(here, capsys):
    add_marks(here, "logs", OLD, f"{OLD}x")
    open_store(here.buffer).put_new(f"{OLD}/000000000003.retired", b"")
    assert forget(capsys, UNNAMED) == [{"table": "otel.logs", "marks": 1, "staged_batches": 0}]
    assert OLD in marks(here)
    assert f"{OLD}x" not in marks(here)
    assert len(marks(here)) == 2
