"""Rows are split by whatever partition spec a table has, and no row is lost."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io import load_file_io
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    IdentityTransform,
    TruncateTransform,
    VoidTransform,
)
from pyiceberg.types import (
    BinaryType,
    DateType,
    DoubleType,
    LongType,
    NestedField,
    StringType,
    StructType,
    UUIDType,
)

from neve.errors import UnsupportedError
from neve.lake.data_files import data_file_of, write_data_files

SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "price", DoubleType()),
    NestedField(3, "raw", BinaryType()),
    NestedField(4, "day", DateType()),
    NestedField(5, "key", UUIDType()),
    NestedField(6, "inner", StructType(NestedField(7, "code", StringType()))),
)
ROWS = pa.table(
    {
        "id": range(6),
        "price": [math.nan, None, 0.0, -0.0, math.nan, 2.5],
        "raw": [b"abc", b"abd", b"", None, b"b", b"\xff\x00\x01"],
        "day": pa.array([0, 1, None, 1, 0, -1], pa.date32()),
        "key": pa.array([bytes([number % 2]) * 16 for number in range(6)], pa.binary(16)),
        "inner": [{"code": code} for code in ("a", "b", "a", None, "b", "a")],
    }
)


def table_metadata(directory, *fields, properties=None):
    spec = PartitionSpec(
        *(
            PartitionField(source, 1000 + number, transform, f"part{number}")
            for number, (source, transform) in enumerate(fields)
        )
    )
    order = UNSORTED_SORT_ORDER
    return new_table_metadata(SCHEMA, spec, order, str(directory), properties or {})


def written(directory, *fields, properties=None):
    metadata = table_metadata(directory, *fields, properties=properties)
    return write_data_files(metadata, load_file_io(), ROWS)


def by_partition(files):
    """Return the partitions as text, since NaN is not equal to itself, with their rows' ids."""
    found = {
        repr(list(file.partition)): pq.ParquetFile(file.file_path).read()["id"].to_pylist()
        for file in files
    }
    assert len(found) == len(files)
    return found


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        (
            [(2, IdentityTransform())],
            {"[nan]": [0, 4], "[None]": [1], "[0.0]": [2], "[-0.0]": [3], "[2.5]": [5]},
        ),
        (
            [(3, TruncateTransform(2))],
            {
                "[b'ab']": [0, 1],
                "[b'']": [2],
                "[None]": [3],
                "[b'b']": [4],
                r"[b'\xff\x00']": [5],
            },
        ),
        (
            # Two of one column.
            [(1, BucketTransform(1)), (1, TruncateTransform(4))],
            {"[0, 0]": [0, 1, 2, 3], "[0, 4]": [4, 5]},
        ),
        (
            [(4, IdentityTransform()), (7, IdentityTransform())],
            {
                "[0, 'a']": [0],
                "[1, 'b']": [1],
                "[None, 'a']": [2],
                "[1, None]": [3],
                "[0, 'b']": [4],
                "[-1, 'a']": [5],
            },
        ),
        ([(4, DayTransform())], {"[0]": [0, 4], "[1]": [1, 3], "[None]": [2], "[-1]": [5]}),
        (
            [(5, IdentityTransform())],
            {f"[{bytes([0]) * 16!r}]": [0, 2, 4], f"[{bytes([1]) * 16!r}]": [1, 3, 5]},
        ),
        ([(7, VoidTransform()), (1, BucketTransform(1))], {"[None, 0]": [0, 1, 2, 3, 4, 5]}),
    ],
    ids=["NaN", "truncated binary", "one column twice", "date and struct", "day", "uuid", "void"],
)
def test_rows_are_split_by_partition(tmp_path, fields, wanted):
    assert by_partition(written(tmp_path, *fields)) == wanted
    # Also in directories of their own, from where their footers describe them as the writer did.
    metadata, io = table_metadata(tmp_path, *fields), load_file_io()
    files = write_data_files(metadata, io, ROWS, partition_directories=True)
    assert by_partition(files) == wanted
    for file in files:
        directory = Path(file.file_path).parent
        assert len(directory.relative_to(tmp_path / "data").parts) == len(fields)
        partition, order = file.partition, file.sort_order_id
        described = data_file_of(metadata, io, file.file_path, partition, file.spec_id, order)
        assert repr(described) == repr(file)


def test_a_file_is_described_after_its_columns_were_renamed_and_dropped(tmp_path):
    before = table_metadata(tmp_path, (1, BucketTransform(1)))
    (file,) = write_data_files(before, load_file_io(), ROWS, partition_directories=True)
    assert re.fullmatch(
        r"data/part0=0/\d{8}T\d{12}Z-[-0-9a-f]{36}\.parquet",
        file.file_path[len(str(tmp_path)) + 1 :],
    )
    renamed = Schema(NestedField(1, "number", LongType()), NestedField(9, "new", StringType()))
    after = before.model_copy(update={"schemas": [renamed]})
    described = data_file_of(after, load_file_io(), file.file_path, file.partition, 0, None)
    assert described.lower_bounds[1] == file.lower_bounds[1]
    assert described.record_count == len(ROWS)


# As Iceberg's documentation of write.parquet.compression-codec names them, and Parquet's footer.
@pytest.mark.parametrize(
    ("codec", "wanted"),
    [
        ("zstd", "ZSTD"),
        ("brotli", "BROTLI"),
        ("lz4", "LZ4"),
        ("lz4_raw", "LZ4"),
        ("gzip", "GZIP"),
        ("snappy", "SNAPPY"),
        ("uncompressed", "UNCOMPRESSED"),
        ("UNCOMPRESSED", "UNCOMPRESSED"),
    ],
)
def test_every_codec_that_iceberg_names(tmp_path, codec, wanted):
    properties = {"write.parquet.compression-codec": codec}
    (file,) = written(tmp_path, properties=properties)
    column = pq.ParquetFile(file.file_path).metadata.row_group(0).column(0)
    assert column.compression == wanted


def test_a_codec_that_is_not_known_is_named(tmp_path):
    with pytest.raises(UnsupportedError, match="lzo"):
        written(tmp_path, properties={"write.parquet.compression-codec": "lzo"})
