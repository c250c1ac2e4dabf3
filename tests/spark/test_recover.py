"""Files of direct writes as Spark sees them: recovered ones, compacted ones, plain Parquet."""

from __future__ import annotations

from collections import Counter

import pytest

import neve
from neve.direct import Writer
from tests.support.direct_lake import DAY, NEXT_DAY, DirectLake, logs
from tests.support.lakes import plain_settings, sqlite_settings


@pytest.fixture
def lake(tmp_path):
    return DirectLake(tmp_path)


@pytest.fixture
def spark_lake(embedded_lake, lake, tmp_path):
    with neve.open(sqlite_settings(tmp_path)) as opened:
        yield opened


def test_spark_reads_recovered_files_and_leaves_no_doubt_after_it_removed_their_traces(
    lake, spark_lake
):
    record = lake.leave_record("kept", (DAY, NEXT_DAY))
    content = record.read_bytes()
    lake.recover()
    counts = spark_lake.sql("SELECT body, count(*) FROM otel.logs GROUP BY body").collect()
    assert dict(map(tuple, counts)) == {"before": 1, "kept": 2}
    spark_lake.sql(
        "CALL system.rewrite_data_files(table => 'otel.logs', "
        "options => map('rewrite-all', 'true'))"
    ).collect()
    record.write_bytes(content)
    assert [report.outcome for report in lake.recover()] == ["committed"]
    spark_lake.sql(
        "CALL system.expire_snapshots(table => 'otel.logs', retain_last => 1, "
        "older_than => timestamp '2100-01-01 00:00:00')"
    ).collect()
    record.write_bytes(content)
    (report,) = lake.recover()
    assert report.outcome == "left"
    assert "snapshots made since were removed" in report.reason
    assert lake.rows() == Counter({"before": 1, "kept": 2})


def test_spark_reads_plain_parquet_and_what_a_killed_writer_left_is_hidden(embedded_lake, tmp_path):
    with Writer.open(plain_settings(tmp_path)) as writer:
        writer.write_and_commit("logs", None, logs("row", (DAY, NEXT_DAY)))
    directory = tmp_path / "warehouse" / "otel" / "logs"
    (directory / f"day={DAY.date()}" / ".writing-0123").write_bytes(b"PAR1 and no more")
    rows = embedded_lake.spark.read.option("mergeSchema", "true").parquet(str(directory))
    assert dict(rows.dtypes)["timestamp"] == "timestamp"
    assert [
        (str(row.day), row.body) for row in rows.select("day", "body").orderBy("day").collect()
    ] == [(str(DAY.date()), "row"), (str(NEXT_DAY.date()), "row")]
