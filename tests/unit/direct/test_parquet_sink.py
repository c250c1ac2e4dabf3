"""Plain Parquet without a catalog: what is written, where, and how DuckDB reads it."""

from __future__ import annotations

import signal
from datetime import timedelta

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from neve.config.settings import TelemetrySettings
from neve.direct import Writer
from neve.errors import ConfigError, StorageError
from neve.signals import Signal
from neve.telemetry.schemas import SCHEMAS
from tests.support.direct_lake import DAY, NEXT_DAY, logs, run_until_killed
from tests.support.lakes import plain_settings
from tests.support.otlp_bodies import protobuf


def promoting(settings, attribute):
    """Return settings that promote an attribute to a column."""
    telemetry = TelemetrySettings.model_validate({"promote": ({"attribute": attribute},)})
    return settings.model_copy(update={"telemetry": telemetry})


def files(directory):
    return sorted(path for path in directory.rglob("*") if path.is_file())


def query(directory, statement):
    files = (
        f"read_parquet('{directory}/**/*.parquet', hive_partitioning = true, union_by_name = true)"
    )
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        return connection.execute(statement.format(files=files)).fetchall()


def test_rows_are_files_by_day_that_duckdb_reads(tmp_path):
    with Writer.open(plain_settings(tmp_path)) as writer:
        rows = pa.concat_tables([logs("b", (NEXT_DAY, DAY)), logs("a", (DAY,))])
        result = writer.write_and_commit("logs", None, rows)
    assert (result.committed, result.is_kept, result.snapshot_id) == (True, True, None)
    assert (result.table, result.rows) == ("otel.logs", 3)
    directory = tmp_path / "warehouse" / "otel" / "logs"
    written = files(directory)
    assert [str(path) for path in written] == sorted(result.files)
    assert [path.parent.name for path in written] == ["day=2026-11-16", "day=2026-11-17"]
    assert result.bytes == sum(path.stat().st_size for path in written)
    assert query(directory, "SELECT day::VARCHAR, body, timestamp FROM {files} ORDER BY 1, 2") == [
        ("2026-11-16", "a", DAY),
        ("2026-11-16", "b", DAY),
        ("2026-11-17", "b", NEXT_DAY),
    ]


def test_the_files_have_the_tables_columns_order_and_compression(tmp_path):
    with Writer.open(plain_settings(tmp_path)) as writer:
        later, earlier = DAY + timedelta(seconds=1), DAY
        writer.write_and_commit("logs", None, logs("rows", (later, earlier)))
    (path,) = files(tmp_path / "warehouse")
    file = pq.ParquetFile(path)
    assert file.schema_arrow.names == SCHEMAS["logs"].names
    assert file.schema_arrow.field("timestamp").type == pa.timestamp("us", tz="UTC")
    assert file.metadata.row_group(0).column(0).compression == "ZSTD"
    assert file.read()["timestamp"].to_pylist() == [earlier, later]


def test_requests_of_every_table_are_read_back(tmp_path):
    with Writer.open(plain_settings(tmp_path)) as writer:
        for chosen in Signal:
            result = writer.write_request(chosen, protobuf(chosen, records=3))
            assert result.is_kept
            for table in result.tables:
                directory = tmp_path / "warehouse" / table.table.replace(".", "/")
                assert query(directory, "SELECT count(*) FROM {files}") == [(table.rows,)]


def test_columns_that_are_promoted_later_are_null_in_older_files(tmp_path):
    plain = plain_settings(tmp_path)
    for settings, name in ((plain, "old"), (promoting(plain, "tenant"), "new")):
        with Writer.open(settings) as writer:
            rows = logs(name)
            attributes = pa.array([[("tenant", name)]], SCHEMAS["logs"].field("attributes").type)
            place = rows.schema.get_field_index("attributes")
            rows = rows.set_column(place, rows.schema.field(place), attributes)
            assert writer.write_and_commit("logs", None, rows).committed
    directory = tmp_path / "warehouse" / "otel" / "logs"
    assert query(directory, "SELECT body, tenant FROM {files} ORDER BY 1") == [
        ("new", "new"),
        ("old", None),
    ]


def test_a_promoted_column_that_is_named_as_the_partition_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="makes a column day"):
        Writer.open(promoting(plain_settings(tmp_path), "Day"))


def write_one(directory):
    with Writer.open(plain_settings(directory)) as writer:
        writer.write_and_commit("logs", None, logs("killed"))


def test_a_killed_writer_leaves_no_part_of_a_file_that_readers_see(tmp_path):
    assert run_until_killed(write_one, tmp_path, "lake.file_written") == -signal.SIGKILL
    (left,) = files(tmp_path / "warehouse")
    assert left.name.startswith(".")
    write_one(tmp_path)
    assert query(tmp_path / "warehouse", "SELECT body FROM {files}") == [("killed",)]


def test_a_store_that_refuses_is_an_error_and_shows_nothing(tmp_path):
    (tmp_path / "warehouse").write_text("in the way")
    with Writer.open(plain_settings(tmp_path)) as writer, pytest.raises(StorageError):
        writer.write_and_commit("logs", None, logs("refused"))


def test_a_directory_with_special_characters_is_taken_letter_by_letter(tmp_path):
    directory = tmp_path / "a b%20c"
    with Writer.open(plain_settings(directory)) as writer:
        result = writer.write_and_commit("logs", None, logs("here"))
    assert [str(path) for path in files(directory)] == list(result.files)
