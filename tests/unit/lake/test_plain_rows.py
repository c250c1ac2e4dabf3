"""Few rows of Parquet files, read without Spark: by position, and only of files that are plain."""

from __future__ import annotations

from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

from neve.lake.chosen_files import ChosenFile
from neve.lake.manifests import Content, FileEntry
from neve.lake.metadata_json import MetadataJson
from neve.lake.plain_rows import Allowance, PlainReader
from neve.lake.plain_types import NeedsSparkError

ENOUGH = Allowance(4, 10**6, 10**6, 10_000, 10**6)
ID = {"id": 1, "name": "id", "required": True, "type": "long"}
WORD = {"id": 2, "name": "word", "required": False, "type": "string"}


def field(name, kind, number, *, nullable=True):
    metadata = None if number is None else {"PARQUET:field_id": str(number)}
    return pa.field(name, kind, nullable, metadata)


ID_COLUMN = field("other name", pa.int32(), 1, nullable=False)


def reader(*fields, allowance=ENOUGH, read=None):
    document = {
        "schemas": [{"schema-id": 0, "fields": list(fields)}],
        "partition-specs": [{"spec-id": 0, "fields": []}],
    }
    table = SimpleNamespace(
        metadata=MetadataJson("", document),
        read=read,
        read_many=lambda paths: [read(path) for path in paths],
    )
    return PlainReader(table, 0, allowance.fresh())


def write(path, columns, rows=10, row_group_size=None, **options):
    schema = pa.schema(columns)
    arrays = [pa.array(list(range(rows)), each.type) for each in schema]
    pq.write_table(pa.table(arrays, schema=schema), path, row_group_size, **options)
    entry = FileEntry(
        str(path),
        Content.DATA,
        "PARQUET",
        0,
        (),
        rows,
        path.stat().st_size,
        0,
        None,
        None,
        None,
        None,
    )
    return ChosenFile(entry, 0)


def test_rows_are_found_by_their_positions_in_any_row_group(tmp_path):
    file = write(tmp_path / "a.parquet", [ID_COLUMN], 30_000, 7_000)
    positions = BitMap64([0, 6_999, 7_000, 8_191, 29_999, 30_000, 2**40])
    read = reader(ID, WORD).rows(file, positions)
    assert read.rows["c0"].to_pylist() == read.positions.tolist() == [0, 6999, 7000, 8191, 29_999]
    assert read.rows["c0"].type == pa.int64()
    assert read.rows["c1"].null_count == 5
    # A row group that has none of them is not read.
    size = pq.ParquetFile(file.entry.path).metadata.row_group(0).total_byte_size
    scarce = Allowance(1, 10**6, size, 10, 10**6)
    assert reader(ID, allowance=scarce).rows(file, BitMap64([3])).rows.num_rows == 1
    with pytest.raises(NeedsSparkError, match="decoded bytes"):
        reader(ID, allowance=scarce).rows(file, BitMap64([3, 29_000]))


def test_a_file_of_another_machine_is_read_whole(tmp_path):
    file = write(tmp_path / "a.parquet", [ID_COLUMN])
    content = (tmp_path / "a.parquet").read_bytes()
    far = ChosenFile(FileEntry(**{**vars(file.entry), "path": "s3://a/b.parquet"}), 0)
    plain = reader(ID, read=lambda _: content)
    plain.fetch([far])
    assert plain.rows(far).rows["c0"].to_pylist() == list(range(10))
    with pytest.raises(NeedsSparkError, match="stored bytes"):
        reader(ID, allowance=Allowance(1, 10, 10**6, 10, 10**6)).fetch([far])


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ([field("id", pa.int64(), None)], "no ids"),
        ([ID_COLUMN, field("b", pa.int64(), None)], "no ids"),
        ([ID_COLUMN, field("b", pa.int64(), 1)], "no ids of their own"),
        ([ID_COLUMN, field("a.b", pa.int64(), 2)], "dot"),
        ([field("id", pa.int64(), 1)], "another type of the column id"),
        ([field("id", pa.int16(), 1, nullable=False)], "another type of the column id"),
        ([field("b", pa.int64(), 2)], "another type of the column id"),
        ([ID_COLUMN, field("word", pa.int64(), 2)], "another type of the column word"),
    ],
)
def test_files_that_only_spark_reads(tmp_path, columns, said):
    file = write(tmp_path / "a.parquet", columns)
    with pytest.raises(NeedsSparkError, match=said):
        reader(ID, WORD).rows(file)


def test_times_in_a_file_that_are_no_microseconds(tmp_path):
    at = {"id": 1, "name": "at", "required": False, "type": "timestamptz"}
    for unit, options in (
        ("us", {}),
        ("ms", {}),
        ("us", {"use_deprecated_int96_timestamps": True}),
    ):
        path = tmp_path / "a.parquet"
        file = write(path, [field("at", pa.timestamp(unit, tz="UTC"), 1)], **options)
        if (unit, options) == ("us", {}):
            assert reader(at).rows(file).rows.num_rows == 10
        else:
            with pytest.raises(NeedsSparkError, match="another type"):
                reader(at).rows(file)


@pytest.mark.parametrize(
    "changes",
    [
        {"type": "uuid"},
        {"type": "fixed[4]"},
        {"type": "time"},
        {"initial-default": 1},
        {"type": {"type": "list", "element-id": 5, "element": "variant", "element-required": True}},
    ],
)
def test_columns_that_only_spark_reads(changes):
    with pytest.raises(NeedsSparkError):
        reader({**ID, **changes})


@pytest.mark.parametrize("place", [slice(-20, -8), slice(4, 40)], ids=["footer", "page"])
def test_a_file_that_is_damaged(tmp_path, place):
    file = write(tmp_path / "a.parquet", [ID_COLUMN])
    content = bytearray((tmp_path / "a.parquet").read_bytes())
    content[place] = b"\xff" * len(content[place])
    (tmp_path / "a.parquet").write_bytes(content)
    with pytest.raises(NeedsSparkError, match="cannot be"):
        reader(ID, read=lambda *_: b"").rows(file)


def write_texts(path, texts, **options):
    schema = pa.schema([field("word", pa.string(), 2)])
    pq.write_table(pa.table([texts], schema=schema), path, **options)
    size = path.stat().st_size
    nothing = (None,) * 4
    return ChosenFile(
        FileEntry(str(path), Content.DATA, "PARQUET", 0, (), len(texts), size, 0, *nothing), 0
    )


@pytest.mark.parametrize(
    "options",
    [{}, {"use_dictionary": False, "column_encoding": {"word": "DELTA_BYTE_ARRAY"}}],
    ids=["dictionary", "differences"],
)
def test_values_that_grow_when_they_are_decoded(tmp_path, options):
    """Eight thousand copies of a long text are one in the file: 80 MB of a few kilobytes."""
    few = write_texts(tmp_path / "few.parquet", ["x" * 100, None, ""] * 10, **options)
    rows = reader(WORD).rows(few, BitMap64([0, 1, 2, 5, 27])).rows
    assert rows["c0"].to_pylist() == ["x" * 100, None, "", "", "x" * 100]
    many = write_texts(tmp_path / "many.parquet", ["x" * 10_000] * 8_000, **options)
    default = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(default)
    pa.set_memory_pool(pool)
    try:
        with pytest.raises(NeedsSparkError, match=r"kept bytes|how long"):
            reader(WORD).rows(many)
    finally:
        pa.set_memory_pool(default)
    assert pool.max_memory() < 10**7
