"""Files of deletes name the data files at the target, in order; the rest stays."""

import io

import duckdb
import fastavro
import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

from neve.errors import CorruptionError, UnsupportedError
from neve.lake.puffin import PuffinWriter, read_blob, read_footer
from neve.lake.vectors import BLOB_TYPE, decode_vector, encode_vector
from neve.move.compare_deletes import DeletesPair, compare_deletes
from neve.move.deletion_vectors import rewrite_deletion_vectors
from neve.move.paths import PathMap, Prefix
from neve.move.position_deletes import rewrite_position_deletes

# Sorted at the source; at the target, what was first is last, and two spellings are one.
PATHS = PathMap([Prefix("s3://old/a", "s3://new/z"), Prefix("s3://old/b", "s3://new/b b")])
ROWS = [("s3://old/a/1", 5), ("s3://old/b/2", 1), ("s3://old/b/2", 7), ("s3a://old/a/1", 2)]
MAPPED = [("s3://new/b b/2", 1), ("s3://new/b b/2", 7), ("s3://new/z/1", 2), ("s3://new/z/1", 5)]
PATH_ID, POSITION_ID, ROW_ID = "2147483546", "2147483545", "2147483544"


def target(path):
    return PATHS.target(path) or path


def field(name, type_, number, key="PARQUET:field_id", nullable=False):
    return pa.field(name, type_, nullable=nullable, metadata={key: number})


def parquet(rows, *, row_type=None, **options):
    fields = [
        field("pos", pa.int64(), POSITION_ID),
        field("file_path", pa.string(), PATH_ID),
    ]
    columns = {"pos": [pos for _, pos in rows], "file_path": [path for path, _ in rows]}
    if row_type:
        fields.append(field("row", row_type, ROW_ID, nullable=True))
        columns["row"] = [{"id": pos} for _, pos in rows]
    stream = io.BytesIO()
    schema = pa.schema(fields)
    with pq.ParquetWriter(
        stream, schema, store_schema=False, store_decimal_as_integer=True, **options
    ) as writer:
        writer.write_table(pa.table(columns, schema=schema))
        writer.add_key_value_metadata({"delete-type": "position", "iceberg.schema": "{}"})
    return stream.getvalue()


def pairs(table):
    return list(zip(table["file_path"].to_pylist(), table["pos"].to_pylist(), strict=True))


def test_parquet():
    row = pa.struct(
        [
            field("id", pa.int64(), "1", nullable=True),
            field("d", pa.decimal128(9, 2), "2", nullable=True),
        ]
    )
    source = parquet(ROWS, row_type=row, compression="ZSTD")
    rewritten = rewrite_position_deletes(source, "p", "PARQUET", target)

    before, after = (pq.ParquetFile(io.BytesIO(each)) for each in (source, rewritten.content))
    table = after.read()
    assert pairs(table) == MAPPED
    # The rows moved with their positions, the columns stayed in their order.
    assert [row["id"] for row in table["row"].to_pylist()] == [1, 7, 2, 5]
    assert str(after.schema).splitlines()[1:] == str(before.schema).splitlines()[1:]
    assert after.metadata.metadata == before.metadata.metadata
    assert after.metadata.row_group(0).column(0).compression == "ZSTD"
    assert (rewritten.lower, rewritten.upper) == ("s3://new/b b/2", "s3://new/z/1")
    chunks = after.metadata.row_group(0)
    assert rewritten.column_sizes == {
        int(number): chunks.column(place).total_compressed_size
        for place, number in enumerate([POSITION_ID, PATH_ID, 1, 2])
    }
    assert rewritten.split_offsets == [4]


def test_a_row_that_would_change_its_types_is_left_out():
    row = pa.struct([field("id", pa.int64(), "1", nullable=True)])
    # Parquet's own list of two levels: pyarrow writes three.
    two_levels = pa.struct(
        [*row, field("l", pa.list_(field("x", pa.int32(), "3")), "2", nullable=True)]
    )
    source = parquet(ROWS, row_type=two_levels, use_compliant_nested_type=False)
    rewritten = rewrite_position_deletes(source, "p", "PARQUET", target)
    table = pq.read_table(io.BytesIO(rewritten.content))
    assert table.column_names == ["pos", "file_path"]
    assert pairs(table) == MAPPED


def test_parquet_of_other_writers(tmp_path):
    """DuckDB says of positions that they are signed; others do not say that paths are text."""
    path = tmp_path / "deletes.parquet"
    values = ", ".join(f"('{path}', {pos}::BIGINT)" for path, pos in ROWS)
    duckdb.sql(
        f"COPY (SELECT * FROM (VALUES {values}) AS rows(file_path, pos)) TO '{path}' "
        f"(FORMAT parquet, FIELD_IDS {{file_path: {PATH_ID}, pos: {POSITION_ID}}})"
    )
    plain = pa.schema([field("file_path", pa.binary(), PATH_ID), field("pos", pa.int64(), "9")])
    stream = io.BytesIO()
    columns = [[path.encode() for path, _ in ROWS], [pos for _, pos in ROWS]]
    pq.write_table(pa.table(columns, schema=plain), stream)
    for source in (path.read_bytes(), stream.getvalue()):
        rewritten = rewrite_position_deletes(source, "p", "PARQUET", target)
        table = pq.read_table(io.BytesIO(rewritten.content))
        assert pairs(table) == MAPPED
        assert table.schema.field("file_path").metadata[b"PARQUET:field_id"] == PATH_ID.encode()


@pytest.mark.parametrize("file_format", ["PARQUET", "ORC", "AVRO"])
def test_no_rows(file_format):
    source = {"PARQUET": parquet, "ORC": orc_file, "AVRO": avro_file}[file_format]([])
    rewritten = rewrite_position_deletes(source, "p", file_format, target)
    assert (rewritten.lower, rewritten.upper) == (None, None)


def orc_file(rows, compression="zstd"):
    schema = pa.schema(
        [
            field("file_path", pa.string(), PATH_ID, "iceberg.id", nullable=True),
            field("pos", pa.int64(), POSITION_ID, "iceberg.id", nullable=True),
        ]
    )
    columns = {"file_path": [path for path, _ in rows], "pos": [pos for _, pos in rows]}
    stream = pa.BufferOutputStream()
    orc.write_table(pa.table(columns, schema=schema), stream, compression=compression)
    return stream.getvalue().to_pybytes()


def test_orc():
    rewritten = rewrite_position_deletes(orc_file(ROWS), "p", "ORC", target)
    file = orc.ORCFile(pa.BufferReader(rewritten.content))
    assert pairs(file.read()) == MAPPED
    assert file.schema.equals(orc.ORCFile(pa.BufferReader(orc_file(ROWS))).schema, True)
    assert file.schema.field("file_path").metadata == {b"iceberg.id": PATH_ID.encode()}
    assert file.compression == "ZSTD"


def with_delete_type(content):
    """Add what Iceberg's writers say of an ORC file, and pyarrow cannot: to the end of its footer.

    https://orc.apache.org/specification/ORCv1/
    """
    item = b"\x0a\x0bdelete-type\x12\x08position"
    item = b"\x2a" + bytes([len(item)]) + item
    start = len(content) - 1 - content[-1]
    postscript = content[start:-1]
    # It begins with the length of the footer, as a number of two bytes.
    length = (postscript[1] & 0x7F) + (postscript[2] << 7) + len(item)
    postscript = b"\x08" + bytes([length & 0x7F | 0x80, length >> 7]) + postscript[3:]
    return content[:start] + item + postscript + bytes([len(postscript)])


def test_orc_of_iceberg():
    source = with_delete_type(orc_file(ROWS, "uncompressed"))
    assert orc.ORCFile(pa.BufferReader(source)).schema.metadata == {b"delete-type": b"position"}
    rewritten = rewrite_position_deletes(source, "p", "ORC", target)
    assert pairs(orc.read_table(pa.BufferReader(rewritten.content))) == MAPPED


def avro_file(rows):
    schema = {
        "type": "record",
        "name": "table",
        "fields": [
            {"name": "file_path", "type": "string", "field-id": int(PATH_ID)},
            {"name": "pos", "type": "long", "field-id": int(POSITION_ID)},
            {
                "name": "row",
                "field-id": int(ROW_ID),
                "type": [
                    "null",
                    {
                        "type": "record",
                        "name": "r",
                        "fields": [{"name": "id", "type": "long", "field-id": 1}],
                    },
                ],
            },
        ],
    }
    stream = io.BytesIO()
    records = [{"file_path": path, "pos": pos, "row": {"id": pos}} for path, pos in rows]
    fastavro.writer(stream, schema, records, codec="deflate", metadata={"delete-type": "position"})
    return stream.getvalue()


def test_avro():
    rewritten = rewrite_position_deletes(avro_file(ROWS), "p", "AVRO", target)
    reader = fastavro.reader(io.BytesIO(rewritten.content))
    records = list(reader)
    assert [(each["file_path"], each["pos"]) for each in records] == MAPPED
    assert [each["row"]["id"] for each in records] == [1, 7, 2, 5]
    assert reader.metadata["delete-type"] == "position"
    assert (rewritten.lower, rewritten.upper) == ("s3://new/b b/2", "s3://new/z/1")


@pytest.mark.parametrize("file_format", ["PARQUET", "ORC", "AVRO"])
def test_rewritten_positions_are_compared_with_their_source(file_format):
    make = {"PARQUET": parquet, "ORC": orc_file, "AVRO": avro_file}[file_format]
    pair = DeletesPair("theirs", "ours", file_format)
    rewritten = rewrite_position_deletes(make(ROWS), "p", file_format, target).content
    assert compare_deletes(pair, make(ROWS), rewritten, PATHS.target) is None
    for wrong in (MAPPED[1:], [*MAPPED, ("s3://new/z/1", 6)], ROWS, []):
        reason = compare_deletes(pair, make(ROWS), make(wrong), PATHS.target)
        assert reason == "it deletes other rows than theirs"
    nothing = compare_deletes(pair, make([]), make([]), PATHS.target)
    assert nothing is None


def test_what_is_no_file_of_position_deletes_is_named():
    with pytest.raises(UnsupportedError, match="VORTEX"):
        rewrite_position_deletes(b"", "p", "VORTEX", target)
    stream = io.BytesIO()
    pq.write_table(pa.table({"file_path": ["a"]}), stream)
    for content, file_format in ((stream.getvalue(), "PARQUET"), (b"x", "PARQUET"), (b"x", "ORC")):
        with pytest.raises(CorruptionError, match="the-file"):
            rewrite_position_deletes(content, "the-file", file_format, target)


def test_vectors_stay_at_their_offsets():
    stream = io.BytesIO()
    writer = PuffinWriter(stream, {"own": "kept"})
    for path, positions in (("s3://old/a/1", [1, 5]), ("s3://elsewhere/x", [7])):
        vector = encode_vector(BitMap64(positions))
        writer.add(
            BLOB_TYPE,
            vector,
            fields=[1],
            properties={"referenced-data-file": path, "cardinality": "9"},
        )
    before = writer.finish()
    source = stream.getvalue()

    content = rewrite_deletion_vectors(source, "p", target)

    footer = read_footer(io.BytesIO(content), len(content), "p")
    assert [blob.properties for blob in footer.blobs] == [
        {"referenced-data-file": "s3://new/z/1", "cardinality": "9"},
        {"referenced-data-file": "s3://elsewhere/x", "cardinality": "9"},
    ]
    assert footer.properties == before.properties
    assert [blob.offset for blob in footer.blobs] == [blob.offset for blob in before.blobs]
    assert content[: -footer.size] == source[: -before.size]
    blob = read_blob(io.BytesIO(content), footer.blobs[0], "p")
    assert list(decode_vector(blob, "p")) == [1, 5]
    with pytest.raises(CorruptionError, match="the-file"):
        rewrite_deletion_vectors(content[:-3], "the-file", target)

    pair = DeletesPair("theirs", "ours", "PUFFIN")
    assert compare_deletes(pair, source, content, PATHS.target) is None
    assert "its footer" in compare_deletes(pair, source, source, PATHS.target)
    damaged = content[:10] + bytes([content[10] ^ 1]) + content[11:]
    assert "its deletion vectors" in compare_deletes(pair, source, damaged, PATHS.target)
