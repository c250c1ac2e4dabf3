"""Rows that a caller made, into the telemetry tables; on the embedded catalog."""

import logging
import threading
from datetime import datetime, timezone

import pyarrow as pa
import pytest
from pyiceberg.types import LongType

from neve.direct.deadline import Deadline
from neve.errors import CatalogError, UnavailableError, UsageError
from neve.signals import Signal
from neve.telemetry.schemas import ATTRIBUTES
from tests.support.otlp_bodies import protobuf

NOW = datetime(2026, 11, 17, tzinfo=timezone.utc)
TIMES = {name: pa.array([NOW], pa.timestamp("us", "UTC")) for name in ("timestamp", "received_at")}
STATUS = {"promote": [{"attribute": "http.status", "type": "int"}]}


def log(body="a", **columns):
    return pa.table({**TIMES, "body": [body], **columns})


def bodies(rows):
    return sorted(row["body"] for row in rows("logs", "body"))


def test_tables_and_record_batches_land_in_their_table(open_writer, rows):
    writer = open_writer()
    first = writer.write_and_commit("logs", None, log("a"))
    (batch,) = log("b").to_batches()
    second = writer.write_and_commit(Signal.LOGS, None, batch)
    assert first.committed
    assert second.committed
    assert first.snapshot_id != second.snapshot_id
    assert (first.table, first.rows, len(first.files)) == ("otel.logs", 1, 1)
    assert bodies(rows) == ["a", "b"]


def test_metrics_go_to_the_table_of_their_type(open_writer, rows):
    point = pa.table({**TIMES, "value": [1.5]})
    assert open_writer().write_and_commit("metrics", "gauge", point).committed
    assert rows("metrics_gauge", "value") == [{"value": 1.5}]


@pytest.mark.parametrize(
    ("signal", "metric_type", "said"),
    [
        ("metrics", None, "no table for metrics of the type None"),
        ("metrics", "gauges", "no table for metrics of the type gauges"),
        ("logs", "gauge", "no table for logs of the type gauge"),
        ("profiles", None, "no signal profiles"),
    ],
)
def test_a_table_that_does_not_exist_is_refused(open_writer, signal, metric_type, said):
    with pytest.raises(UsageError, match=said):
        open_writer().write_and_commit(signal, metric_type, log())


NAIVE = pa.array([NOW], pa.timestamp("us"))
WRONG = {
    "an unknown column": ({"colour": ["red"]}, "otel.logs has no column colour"),
    "a wrong type": ({"severity_number": ["9"]}, "severity_number of otel.logs is int32.*string"),
    "a wrong member": ({"attributes": [["x"]]}, "attributes of otel.logs is map.*list"),
    "a value out of range": ({"severity_number": [2**40]}, "cannot hold a value of its rows"),
    "no zone": ({"timestamp": NAIVE}, "timestamp of otel.logs is .*say which zone"),
    "a time without a date": (
        {"timestamp": pa.array([2**60], pa.timestamp("us", "UTC"))},
        "timestamp of otel.logs .* after 9999",
    ),
    "no UTF-8": ({"body": pa.array([b"\xff"]).view(pa.string())}, "Invalid UTF8"),
    "NULL": ({"received_at": pa.nulls(1)}, "received_at of otel.logs .* may not be NULL"),
}


@pytest.mark.parametrize("case", WRONG)
def test_rows_that_do_not_fit_are_refused_in_one_line(open_writer, lake, case):
    columns, said = WRONG[case]
    with pytest.raises(UsageError, match=said) as refusal:
        open_writer().write_and_commit("logs", None, pa.table({**TIMES, "body": ["a"], **columns}))
    assert "\n" not in str(refusal.value)
    assert lake.catalog().load_table("otel.logs").current_snapshot() is None


def test_rows_without_a_required_column_or_with_one_twice_are_refused(open_writer):
    with pytest.raises(UsageError, match="lack timestamp, which may not be NULL"):
        open_writer().write_and_commit("logs", None, log().drop_columns(["timestamp"]))
    twice = log().append_column("body", pa.array(["b"]))
    with pytest.raises(UsageError, match="more than one column body"):
        open_writer().write_and_commit("logs", None, twice)


def test_other_ways_to_write_the_same_type_are_taken(open_writer, rows):
    nanos = pa.array([NOW], pa.timestamp("ns", "UTC"))
    body = pa.array(["a"]).dictionary_encode()
    columns = {"timestamp": nanos, "severity_number": pa.array([9], pa.int64()), "flags": [1]}
    open_writer().write_and_commit("logs", None, log().set_column(2, "body", body))
    open_writer().write_and_commit("logs", None, pa.table({**TIMES, **columns}))
    assert sorted(map(str, rows("logs", "body", "severity_number"))) == [
        "{'severity_number': 9, 'body': None}",
        "{'severity_number': None, 'body': 'a'}",
    ]


def test_an_empty_batch_writes_nothing_and_makes_no_table(open_writer, lake):
    result = open_writer().write_and_commit("logs", None, log().slice(0, 0))
    assert (result.rows, result.files, result.snapshot_id) == (0, (), None)
    assert result.committed
    assert not lake.catalog().table_exists("otel.logs")


def test_promoted_columns_are_filled_from_the_attributes_or_as_given(open_writer, rows):
    writer = open_writer(telemetry=STATUS)
    maps = {
        "attribute_types": pa.nulls(1),
        "attributes": pa.array([[("http.status", "404")]], ATTRIBUTES),
    }
    writer.write_and_commit("logs", None, log("mapped", **maps))
    writer.write_and_commit("logs", None, log("given", http_status=[200], **maps))
    writer.write_and_commit("logs", None, log("neither"))
    stored = {row["body"]: row["http_status"] for row in rows("logs", "body", "http_status")}
    assert stored == {"mapped": 404, "given": 200, "neither": None}


def test_a_promoted_column_of_another_type_is_refused_and_nothing_is_written(open_writer, lake):
    open_writer(telemetry=STATUS).write_and_commit("logs", None, log())
    other = {"promote": [{"attribute": "http.status", "type": "bool"}]}
    before = lake.catalog().load_table("otel.logs").metadata
    with pytest.raises(CatalogError, match="http_status is long"):
        open_writer(telemetry=other).write_and_commit("logs", None, log())
    with pytest.raises(CatalogError, match="http_status is long"):
        open_writer(telemetry=other).write_request("logs", protobuf(Signal.LOGS))
    assert lake.catalog().load_table("otel.logs").metadata == before


def test_a_foreign_table_of_the_name_is_refused_and_left_alone(open_writer, lake):
    lake.catalog().create_namespace("otel")
    foreign = lake.catalog().create_table("otel.logs", pa.schema([("timestamp", pa.string())]))
    with pytest.raises(CatalogError, match=r"otel\.logs is in the way"):
        open_writer().write_request("logs", protobuf(Signal.LOGS))
    assert lake.catalog().load_table("otel.logs").metadata == foreign.metadata


def test_columns_that_others_added_or_widened_are_written_too(open_writer, lake, rows):
    writer = open_writer()
    writer.write_and_commit("logs", None, log("before"))
    with lake.catalog().load_table("otel.logs").update_schema() as update:
        update.add_column("team", LongType())
        update.update_column("severity_number", LongType())
    # The first write still has the schema it knows; its commit shows the new one.
    writer.write_and_commit("logs", None, log("between"))
    wide = {"team": [7], "severity_number": pa.array([2**40])}
    writer.write_and_commit("logs", None, log("after", **wide))
    stored = rows("logs", "body", "team", "severity_number")
    assert {row["body"]: (row["team"], row["severity_number"]) for row in stored} == {
        "before": (None, None),
        "between": (None, None),
        "after": (7, 2**40),
    }


def test_a_column_that_somebody_dropped_is_added_again(open_writer, lake, rows):
    writer = open_writer()
    writer.write_and_commit("logs", None, log("before"))
    with lake.catalog().load_table("otel.logs").update_schema() as update:
        update.delete_column("sender")
    writer.write_and_commit("logs", None, log("between", sender=["shop"]))
    writer.write_and_commit("logs", None, log("after", sender=["shop"]))
    stored = {row["body"]: row["sender"] for row in rows("logs", "body", "sender")}
    assert stored == {"before": None, "between": None, "after": "shop"}


@pytest.mark.parametrize("made_anew", [False, True], ids=["dropped", "made anew"])
def test_after_a_table_was_dropped_the_next_write_makes_it(open_writer, lake, rows, made_anew):
    writer = open_writer()
    writer.write_and_commit("logs", None, log("before"))
    lake.catalog().drop_table("otel.logs")
    if made_anew:
        open_writer().write_and_commit("logs", None, log("other"))
    lost = writer.write_and_commit("logs", None, log("lost"))
    assert not lost.is_kept
    assert isinstance(lost.error, UnavailableError)
    assert writer.write_and_commit("logs", None, log("after")).committed
    assert bodies(rows) == (["after", "other"] if made_anew else ["after"])


def test_first_requests_at_once_make_one_table_and_keep_all_rows(open_writer, rows):
    writers = [open_writer() for _ in range(3)]
    start = threading.Barrier(6)
    results = []

    def write(writer, number):
        start.wait(30)
        body = protobuf(Signal.METRICS, f"request {number}")
        results.append(writer.write_request("metrics", body))

    # Two threads for each writer: those of one writer share its tables.
    threads = [
        threading.Thread(target=write, args=(writers[number % 3], number)) for number in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [result.committed for result in results] == [True] * 6
    names = sorted(row["metric_name"] for row in rows("metrics_gauge", "metric_name"))
    assert names == [f"request {number} 0" for number in range(6)]


def test_without_time_nothing_is_written(open_writer, lake):
    result = open_writer().write_and_commit("logs", None, log(), deadline=Deadline.after(0))
    assert not result.is_kept
    assert "too little time" in str(result.error)
    assert not lake.catalog().table_exists("otel.logs")


def test_each_commit_is_logged_and_measured(open_writer, caplog):
    caplog.set_level(logging.DEBUG, "neve.direct")
    commits = []
    result = open_writer(commits.append).write_request("logs", protobuf(Signal.LOGS, records=3))
    (table,) = result.tables
    (commit,) = commits
    assert (commit.table, commit.committed, commit.attempts) == ("otel.logs", True, 1)
    assert (commit.files, commit.rows, commit.bytes) == (1, 3, table.bytes)
    assert (commit.conflicts, commit.unknown_outcomes) == (0, 0)
    assert commit.seconds > 0
    steps = [record.message for record in caplog.records if record.levelno == logging.DEBUG]
    assert any(table.files[0] in step for step in steps)
    (line,) = [record.message for record in caplog.records if record.levelno == logging.INFO]
    assert line == f"otel.logs: snapshot {table.snapshot_id} has 3 rows in 1 files"


def test_files_that_are_not_committed_are_logged_with_their_paths(open_writer, lake, caplog):
    commits = []
    writer = open_writer(commits.append)
    writer.write_and_commit("logs", None, log())
    lake.catalog().drop_table("otel.logs")
    result = writer.write_and_commit("logs", None, log())
    (line,) = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert "1 rows are written and not committed" in line
    assert result.files[0] in line
    assert [commit.committed for commit in commits] == [True, False]
