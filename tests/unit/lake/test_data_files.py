"""Data files and tables without Spark: sorted, partitioned, pruned, evolved."""

from datetime import datetime, timedelta, timezone

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import pyarrow_to_schema, schema_to_pyarrow

import neve
from neve.errors import CatalogError
from neve.lake import data_files, partition_rows
from neve.lake.create import TableSpec, ensure_table
from neve.lake.data_files import write_data_files
from neve.lake.staging import Change, StagingTable
from neve.lake.table_columns import without_needless_casts
from tests.support.lakes import sqlite_settings

SCHEMA = pa.schema(
    [
        pa.field("timestamp", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("service_name", pa.string()),
        pa.field("trace_id", pa.string()),
        pa.field("attributes", pa.map_(pa.string(), pa.string())),
        pa.field("events", pa.list_(pa.struct([("name", pa.string())]))),
    ]
)
SPEC = TableSpec(
    ("otel", "spans"),
    SCHEMA,
    partition_by_day="timestamp",
    sort_by=("service_name", "timestamp"),
    properties={"write.parquet.bloom-filter-enabled.column.trace_id": "true"},
)
START = datetime(2026, 3, 1, tzinfo=timezone.utc)


def rows(count):
    return pa.Table.from_pylist(
        [
            {
                "timestamp": START + timedelta(hours=(number * 7) % 60),
                "service_name": f"s{number % 3}",
                "trace_id": f"{number:032x}",
                "attributes": [("n", str(number))],
                "events": [{"name": "e"}] * (number % 3),
            }
            for number in range(count)
        ],
        SCHEMA,
    )


@pytest.fixture
def lake(tmp_path):
    with neve.open(sqlite_settings(tmp_path)) as lake:
        yield lake


def append(lake, table, data, row_bytes=0):
    staging = StagingTable(lake.profile, table)
    files = write_data_files(table.metadata, table.io, data, row_bytes=row_bytes)
    staged = staging.stage(files, {}, "neve-staged-test")
    staging.apply(Change(staged.parent_id, staged.snapshot_id, drop_refs=(staged.ref,)))
    return files


def test_files_are_partitioned_by_day_sorted_and_carry_a_bloom_filter(lake):
    table = ensure_table(lake.profile, lake.catalog(), SPEC)
    files = append(lake, table, rows(100))
    assert len(files) == 3
    for file in files:
        path = file.file_path.removeprefix("file://")
        found = pq.read_table(path).to_pylist()
        days = {row["timestamp"].date() for row in found}
        assert len(days) == 1
        keys = [(row["service_name"], row["timestamp"]) for row in found]
        assert keys == sorted(keys)
        metadata = pq.read_metadata(path)
        assert file.record_count == metadata.num_rows == len(found)
        column = metadata.schema.names.index("trace_id")
        assert metadata.row_group(0).column(column).to_dict().get("bloom_filter_offset", 1)
    everything = table.refresh().scan().to_arrow().sort_by("trace_id")
    assert everything.select(SCHEMA.names).to_pylist() == rows(100).to_pylist()


def test_wide_rows_make_row_groups_of_fewer_rows_in_the_same_order(lake, monkeypatch):
    monkeypatch.setattr(data_files, "ROW_GROUP_BYTES", 20_000)
    table = ensure_table(lake.profile, lake.catalog(), SPEC)
    wide = rows(100).set_column(
        3, SCHEMA.field("attributes"), pa.array([[("n", "x" * 1000)]] * 100, SCHEMA.field(3).type)
    )
    chunks = pa.concat_tables([wide.slice(start, 10) for start in range(0, 100, 10)])
    for file in append(lake, table, chunks, row_bytes=2000):
        path = file.file_path.removeprefix("file://")
        metadata = pq.read_metadata(path)
        sizes = [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)]
        assert len(sizes) >= 2
        assert max(sizes) <= 10
        stored = pq.read_table(path).to_pylist()
        keys = [(row["service_name"], row["timestamp"]) for row in stored]
        assert keys == sorted(keys)
    everything = table.refresh().scan().to_arrow()
    assert sorted(everything["trace_id"].to_pylist()) == wide["trace_id"].to_pylist()


def test_rows_from_java_without_offsets_are_written(lake, monkeypatch):
    """Java leaves out the offsets of what is empty; `Table.nbytes` reads them all the same."""
    monkeypatch.setattr(partition_rows, "_RUN_ROWS", 0)  # no run is too short
    struct = SCHEMA.field("events").type.value_type
    names = pa.Array.from_buffers(pa.string(), 0, [None, None, pa.py_buffer(b"")])
    nothing = pa.StructArray.from_arrays([names], fields=list(struct))
    offsets = pa.array([0] * 11, pa.int32()).buffers()[1]
    events = pa.Array.from_buffers(pa.list_(struct), 10, [None, offsets], children=[nothing])
    table = ensure_table(lake.profile, lake.catalog(), SPEC)
    files = append(lake, table, rows(10).set_column(4, SCHEMA.field("events"), events))
    assert sum(file.record_count for file in files) == 10


def test_rows_that_come_in_order_are_copied_in_runs(lake, monkeypatch):
    """As `take` would have them: rows of many requests, each of one service and in order."""
    parts = [rows(3000).filter(pa.array([n % 3 == m for n in range(3000)])) for m in (2, 0, 1)]
    pieces = pa.concat_tables([part.sort_by("timestamp") for part in parts])
    table = ensure_table(lake.profile, lake.catalog(), SPEC)
    (in_runs, taken) = ([], [])
    for run_rows, found in ((16, in_runs), (10**9, taken)):
        monkeypatch.setattr(partition_rows, "_RUN_ROWS", run_rows)
        for part in partition_rows.split_by_partition(table.metadata, pieces):
            found.append(part.rows(are_ours=True))
            found.append(part.rows(100, 50, are_ours=True))
            found.append(part.rows(0, 0))
    assert all(part.column(3).num_chunks <= 1 for part in in_runs)
    assert [part.to_pylist() for part in in_runs] == [part.to_pylist() for part in taken]
    assert len(in_runs) == 9


def test_members_of_lists_and_maps_have_no_statistics_and_all_else_has(lake, caplog):
    table = ensure_table(lake.profile, lake.catalog(), SPEC)
    (file, *_) = append(lake, table, rows(100))
    named = {table.schema().find_column_name(each) for each in file.lower_bounds}
    assert named == {"timestamp", "service_name", "trace_id"}
    assert {table.schema().find_column_name(each) for each in file.value_counts} == named
    group = pq.read_metadata(file.file_path.removeprefix("file://")).row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    with_statistics = {each.path_in_schema for each in columns if each.is_stats_set}
    assert with_statistics == named
    assert not caplog.records


def test_texts_are_written_as_they_are_given(lake):
    """No copy with 64-bit offsets is made: Parquet does not tell them apart."""
    table = ensure_table(lake.profile, lake.catalog(), SPEC)
    columns = without_needless_casts(
        schema_to_pyarrow(table.schema(), include_field_ids=True), SCHEMA
    )
    texts = [columns.field("trace_id").type, columns.field("attributes").type.item_type]
    texts.append(columns.field("events").type.value_type.field("name").type)
    assert texts == [pa.string()] * 3
    assert pyarrow_to_schema(columns) == table.schema()  # with all field ids
    large = pa.schema([pa.field("trace_id", pa.large_string())])
    assert without_needless_casts(columns, large).field("trace_id").type == pa.string()
    append(
        lake,
        table,
        rows(10).cast(
            pa.schema(
                [
                    each.with_type(pa.large_string()) if each.type == pa.string() else each
                    for each in SCHEMA
                ]
            )
        ),
    )
    assert len(table.refresh().scan().to_arrow()) == 10


def test_a_file_of_several_row_groups_is_sorted_throughout_and_complete(lake, monkeypatch):
    monkeypatch.setattr("neve.lake.data_files.ROW_GROUP_ROWS", 15)
    table = ensure_table(lake.profile, lake.catalog(), SPEC)
    # In chunks, as they are gathered.
    pieces = pa.concat_tables([rows(100).slice(start, 7) for start in range(0, 100, 7)])
    files = append(lake, table, pieces)
    for file in files:
        path = file.file_path.removeprefix("file://")
        found = pq.read_table(path).to_pylist()
        keys = [(row["service_name"], row["timestamp"]) for row in found]
        assert keys == sorted(keys)
        assert file.record_count == len(found)
    groups = [pq.read_metadata(one.file_path.removeprefix("file://")) for one in files]
    assert max(one.num_row_groups for one in groups) > 1
    everything = table.refresh().scan().to_arrow().sort_by("trace_id")
    assert everything.select(SCHEMA.names).to_pylist() == rows(100).to_pylist()


def test_rows_without_the_column_that_is_sorted_by_are_written_too(lake):
    table = ensure_table(lake.profile, lake.catalog(), SPEC)
    append(lake, table, rows(5).drop_columns(["service_name"]))
    assert table.refresh().scan().to_arrow()["service_name"].to_pylist() == [None] * 5


def test_bounds_prune_files(lake):
    table = ensure_table(lake.profile, lake.catalog(), SPEC)
    append(lake, table, rows(100))
    scan = table.refresh().scan(row_filter="timestamp < '2026-03-02T00:00:00+00:00'")
    assert len(list(scan.plan_files())) == 1


def test_a_live_table_gains_the_columns_it_lacks_and_old_rows_read_null(lake):
    table = ensure_table(lake.profile, lake.catalog(), SPEC)
    append(lake, table, rows(2))
    wider = TableSpec(SPEC.identifier, SCHEMA.append(pa.field("http_status", pa.int64())))
    table = ensure_table(lake.profile, lake.catalog(), wider)
    append(lake, table, rows(1).append_column("http_status", pa.array([200])))
    found = table.refresh().scan().to_arrow()["http_status"].to_pylist()
    assert sorted(found, key=str) == [200, None, None]
    assert ensure_table(lake.profile, lake.catalog(), SPEC).schema().find_field("http_status")


def test_a_foreign_table_in_the_way_is_named_and_left_alone(lake):
    catalog = lake.catalog()
    catalog.create_namespace("otel")
    catalog.create_table("otel.spans", pa.schema([("timestamp", pa.string())]))
    with pytest.raises(CatalogError, match=r"otel\.spans is in the way.*timestamp is string"):
        ensure_table(lake.profile, catalog, SPEC)
    assert len(catalog.load_table("otel.spans").schema().fields) == 1
