"""The books of a write add up before it is committed, or nothing of it is."""

import json
from dataclasses import replace

import pyarrow as pa
import pytest

from neve.direct import parquet_sink, request_batch, table_append
from neve.errors import UnbalancedError
from neve.otlp.answer import http_status
from neve.signals import Signal
from tests.support.otlp_bodies import protobuf
from tests.support.wire import request, wrapped

LATE = b"\x09" + (2**63).to_bytes(8, "little")
POINT = wrapped(b"\x18\x01", 1)
LATE_POINT = wrapped(b"\x19" + (2**63).to_bytes(8, "little"), 1)


def log(body):
    return wrapped(wrapped(body.encode(), 1), 5)


def counts(lake, table):
    summary = lake.catalog().load_table(f"otel.{table}").current_snapshot().summary
    return {**json.loads(summary["neve.counts"]), "rows": int(summary["added-records"])}


def test_a_commit_says_what_was_read_and_what_was_rejected(open_writer, lake):
    open_writer().write_request("logs", request([log("good"), LATE, LATE]))
    assert counts(lake, "logs") == {"read": 3, "dead_letters": 2, "rows": 1}


def test_points_are_counted_for_the_table_they_are_for(open_writer, lake):
    gauge, total = (wrapped(b"m", 1) + wrapped(points, n) for points, n in
                    ((POINT + LATE_POINT, 5), (POINT, 7)))  # fmt: skip
    unknown = wrapped(b"m", 1) + wrapped(b"\x01", 90)
    result = open_writer().write_request("metrics", request([gauge, total, unknown]))
    assert (result.rows, result.rejected) == (2, 2)
    assert counts(lake, "metrics_gauge") == {"read": 2, "dead_letters": 1, "rows": 1}
    assert counts(lake, "metrics_sum") == {"read": 1, "dead_letters": 0, "rows": 1}


def test_a_metric_with_two_kinds_has_the_points_of_the_last(open_writer):
    metric = wrapped(b"m", 1) + wrapped(POINT + POINT, 5) + wrapped(POINT, 7)
    result = open_writer().write_request("metrics", request([metric]))
    assert {table.table: table.rows for table in result.tables} == {"otel.metrics_sum": 1}


def test_a_request_whose_rows_are_not_all_there_is_not_committed(open_writer, rows, monkeypatch):
    """And costs the others of its batch nothing."""
    decode = request_batch.decode_requests

    def lose_a_row(signal, requests):
        for part in decode(signal, requests):
            kept = pa.compute.not_equal(part.tables["logs"]["body"], "lost 1")
            tables = {"logs": part.tables["logs"].filter(kept)}
            row_requests = {"logs": part.row_requests["logs"][kept.to_numpy()]}
            yield replace(part, tables=tables, row_requests=row_requests)

    monkeypatch.setattr(request_batch, "decode_requests", lose_a_row)
    writer = open_writer()
    requests = [writer.check(Signal.LOGS, protobuf(Signal.LOGS, name, 2)) for name in ("lost", "a")]
    lost, kept = writer.write_requests(Signal.LOGS, requests)
    assert isinstance(lost, UnbalancedError)
    assert "has 2 records, of which 1 became rows and 0 were rejected" in lost.message
    # The sender keeps its data.
    assert http_status(lost) == 503
    assert kept.committed
    assert [row["body"] for row in rows("logs", "body")] == ["a 0", "a 1"]


@pytest.mark.parametrize("kind", ["sqlite", "none"])
def test_files_without_all_rows_are_not_committed(open_writer, lake, monkeypatch, tmp_path, kind):
    """Neither those of requests nor those of rows that a caller made."""
    module, name = {
        "sqlite": (table_append, "write_data_files"),
        "none": (parquet_sink, "encode_files"),
    }[kind]
    write = getattr(module, name)

    def lose_a_row(metadata, *arguments, **options):
        *first, rows = arguments
        return write(metadata, *first, rows.slice(1), **options)

    monkeypatch.setattr(module, name, lose_a_row)
    plain = {"catalog": {"type": "none", "warehouse": str(tmp_path / "plain")}}
    writer = open_writer(**(plain if kind == "none" else {}))
    with pytest.raises(UnbalancedError, match=r"otel\.logs: 3 records were read, 2 are rows"):
        writer.write_request("logs", protobuf(Signal.LOGS, "a", 3))
    times = pa.array([1, 2], pa.timestamp("us", "UTC"))
    rows = pa.table({"timestamp": times, "received_at": times})
    with pytest.raises(UnbalancedError, match=r"otel\.logs: 2 records were read, 1 are rows"):
        writer.write_and_commit("logs", None, rows)
    if kind == "none":
        assert not list((tmp_path / "plain").rglob("*.parquet"))
    else:
        assert not lake.catalog().load_table("otel.logs").metadata.snapshots


def test_a_defect_at_one_table_leaves_the_other_tables_committed(open_writer, rows, monkeypatch):
    """Their rows would be orphans, or be told as failed though readers see them."""
    commit = table_append.TableAppend.commit

    def broken(append, *arguments):
        if append._metadata.location.endswith("metrics_gauge"):
            raise LookupError("a library's")
        return commit(append, *arguments)

    monkeypatch.setattr(table_append.TableAppend, "commit", broken)
    gauge, total = (wrapped(b"m", 1) + wrapped(POINT, kind) for kind in (5, 7))
    writer = open_writer()
    bodies = [request([gauge]), request([total])]
    requests = [writer.check(Signal.METRICS, body) for body in bodies]
    failed, kept = writer.write_requests(Signal.METRICS, requests)
    assert failed.message == "internal error: LookupError"
    assert kept.committed
    assert len(rows("metrics_sum", "metric_name")) == 1
