"""OTLP requests into their tables: whole, in bounded memory, and what cannot be stored is told."""

from dataclasses import replace
from pathlib import Path

import pytest

from neve import limits
from neve.direct import request_batch
from neve.direct.deadline import Deadline
from neve.errors import CatalogError, MalformedError, TooLargeError, UnavailableError
from neve.signals import Signal
from tests.support.otlp_bodies import as_json, protobuf
from tests.support.peak_memory import grown_megabytes
from tests.support.wire import attribute, request, wrapped

LATE = b"\x09" + (2**63).to_bytes(8, "little")
WIDE = attribute("wide", "x" * 10_000, 1)


def log(body):
    return wrapped(wrapped(body.encode(), 1), 5)


def metrics(*kinds):
    message = Signal.METRICS.request()
    scope = message.resource_metrics.add().scope_metrics.add()
    for kind in kinds:
        getattr(scope.metrics.add(name=kind), kind).data_points.add()
    return message.SerializeToString()


def snapshots(lake, table):
    return lake.catalog().load_table(f"otel.{table}").metadata.snapshots


def test_a_request_in_protobuf_or_json_lands_with_its_sender(open_writer, rows):
    writer = open_writer()
    writer.write_request("logs", protobuf(Signal.LOGS, "a", 2), sender="shop")
    writer.write_request("logs", as_json(Signal.LOGS, "b"), json=True)
    stored = {row["body"]: row["sender"] for row in rows("logs", "body", "sender")}
    assert stored == {"a 0": "shop", "a 1": "shop", "b 0": None}


def test_each_metric_table_has_one_commit_and_its_rows_are_counted(open_writer, lake):
    result = open_writer().write_request("metrics", metrics("gauge", "sum", "sum", "summary"))
    assert {table.table: table.rows for table in result.tables} == {
        "otel.metrics_gauge": 1,
        "otel.metrics_sum": 2,
        "otel.metrics_summary": 1,
    }
    assert result.rows == 4
    assert [len(snapshots(lake, "metrics_sum")), result.committed] == [1, True]


def test_an_empty_request_is_a_success_and_writes_nothing(open_writer, lake):
    result = open_writer().write_request("logs", b"")
    assert (result.tables, result.rejected, result.warning) == ((), 0, "")
    assert result.is_kept
    assert not lake.catalog().table_exists("otel.logs")


def test_records_that_no_table_can_hold_are_counted_with_their_reasons(open_writer, rows):
    body = request([log("good"), LATE, *([LATE] * 4)])
    result = open_writer().write_request("logs", body)
    assert (result.rows, result.rejected) == (1, 5)
    assert "log_records[1]: time_unix_nano is after the year 2261" in result.warning
    assert result.is_kept
    assert len(rows("logs", "body")) == 1


def test_a_metric_of_unknown_kind_and_a_request_unreadable_as_a_whole_are_rejected(
    open_writer, monkeypatch
):
    unknown = request([wrapped(b"m", 1) + wrapped(b"\x01", 90)])
    result = open_writer().write_request("metrics", unknown)
    assert (result.tables, result.rejected) == ((), 1)
    assert "does not know the metric's kind" in result.warning
    assert "fields that are unknown to this version" in result.warning
    # What the receiver's check lets through and the decoder refuses: all its records count.
    monkeypatch.setattr(limits, "LARGEST_REQUEST_BYTES", 10)
    result = open_writer().write_request("logs", protobuf(Signal.LOGS, records=3))
    assert (result.tables, result.rejected) == ((), 3)
    assert result.warning.startswith("the request is longer than")


def test_a_request_that_is_malformed_or_too_large_is_refused(open_writer):
    writer = open_writer(receive={"max_request_bytes": 1024})
    with pytest.raises(MalformedError):
        writer.write_request("logs", b"\xff\xff")
    with pytest.raises(TooLargeError, match="larger than 1024 bytes"):
        writer.write_request("logs", b"\0" * 1025)


def small_flushes(writer, monkeypatch):
    monkeypatch.setattr(limits, "DECODED_PART_BYTES", 50_000)
    writer.spec = replace(writer.spec, flush_bytes=200_000)


def test_rows_are_written_as_files_when_many_wait_and_committed_at_once(
    open_writer, lake, rows, monkeypatch
):
    writer = open_writer()
    small_flushes(writer, monkeypatch)
    bodies = [f"log {number}" for number in range(100)]
    result = writer.write_request("logs", request([log(body) for body in bodies], resource=WIDE))
    (table,) = result.tables
    # A million bytes of rows, and 200,000 may wait.
    assert 5 <= len(table.files) <= 7
    assert len(snapshots(lake, "logs")) == 1
    assert sorted(row["body"] for row in rows("logs", "body")) == sorted(bodies)


def test_rows_that_fail_to_be_written_leave_nothing_to_see(open_writer, lake, monkeypatch, caplog):
    writer = open_writer()
    small_flushes(writer, monkeypatch)
    warehouse = Path(lake.settings.catalog.warehouse)

    def seconds_left():
        """Time is over once some of the files are written."""
        return 0.0 if any(warehouse.rglob("*.parquet")) else 10.0

    result = None
    body = request([log(f"log {number}") for number in range(100)], resource=WIDE)
    with pytest.raises(UnavailableError, match="too little time"):
        result = writer.write_request("logs", body, deadline=Deadline(seconds_left))
    assert result is None
    assert lake.catalog().load_table("otel.logs").current_snapshot() is None
    (line,) = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert "are written and not committed" in line
    assert ".parquet" in line


def test_a_table_in_the_way_of_one_metric_keeps_the_others_of_its_request_out(open_writer, lake):
    foreign(lake, "metrics_sum")
    with pytest.raises(CatalogError, match=r"otel\.metrics_sum is in the way"):
        open_writer().write_request("metrics", metrics("gauge", "sum"))
    # Otherwise the client's next attempt would store the gauge again.
    assert lake.catalog().load_table("otel.metrics_gauge").current_snapshot() is None


def test_requests_written_together_fail_only_with_their_own_tables(open_writer, lake, rows):
    foreign(lake, "metrics_sum")
    writer = open_writer()
    bodies = [metrics("gauge"), metrics("sum"), metrics("gauge", "sum"), metrics("summary")]
    requests = [writer.check(Signal.METRICS, body) for body in bodies]
    outcomes = writer.write_requests(Signal.METRICS, requests)
    assert [isinstance(each, CatalogError) for each in outcomes] == [False, True, True, False]
    assert [outcomes[0].rows, outcomes[3].rows] == [1, 1]
    assert outcomes[0].is_kept
    assert outcomes[3].is_kept
    assert len(rows("metrics_summary", "metric_name")) == 1


def foreign(lake, name):
    import pyarrow as pa

    lake.catalog().create_namespace("otel")
    lake.catalog().create_table(f"otel.{name}", pa.schema([("timestamp", pa.string())]))


def test_a_request_that_breaks_the_decoder_harms_no_other(open_writer, rows, monkeypatch):
    real = request_batch.decode_requests

    def fragile(signal, requests):
        parts = list(real(signal, requests))
        if any(b"poison" in bytes(each.checked.payload) for each in requests):
            raise RuntimeError("a defect")
        return parts

    monkeypatch.setattr(request_batch, "decode_requests", fragile)
    writer = open_writer()
    names = ["a", "b", "poison", "c", "d"]
    requests = [writer.check(Signal.LOGS, protobuf(Signal.LOGS, name)) for name in names]
    outcomes = writer.write_requests(Signal.LOGS, requests)
    assert [isinstance(each, RuntimeError) for each in outcomes] == [
        name == "poison" for name in names
    ]
    stored = sorted(row["body"] for row in rows("logs", "body"))
    assert stored == ["a 0", "b 0", "c 0", "d 0"]


@pytest.mark.soak
def test_sixty_thousand_logs_under_a_wide_resource_take_little_memory(tmp_path):
    grown = grown_megabytes(
        f"""
        from dataclasses import replace
        from pathlib import Path
        from neve.direct import Writer
        from tests.support.lakes import sqlite_settings
        from tests.unit.direct.test_requests import WIDE, log
        from tests.support.wire import request

        writer = Writer.open(sqlite_settings(Path({str(tmp_path)!r})))
        writer.spec = replace(writer.spec, flush_bytes=64 << 20)
        body = request([log(f"log {{number}}") for number in range(60_000)], resource=WIDE)
        """,
        """
        result = writer.write_request("logs", body)
        assert (result.rows, result.committed) == (60_000, True), result
        """,
    )
    # The rows have 600 MB, and 64 MiB of them may wait.
    assert grown < 450
