"""Avro files are edited field by field; no other byte changes."""

import io
import json
import struct

import fastavro
import pytest

from neve.errors import CorruptionError, UnsupportedError
from neve.lake.avro_blocks import CODECS, block_bytes
from neve.lake.avro_files import AvroRecords, SeenRecords, read_header

# Field 4 uses a type that field 1 defines, and lies behind the field that is edited.
SCHEMA = {
    "type": "record",
    "name": "entry",
    "unknown": "kept",
    "fields": [
        {"name": "at", "field-id": 1, "type": {"type": "fixed", "name": "eight", "size": 8}},
        {
            "name": "file",
            "field-id": 2,
            "type": {
                "type": "record",
                "name": "r2",
                "fields": [
                    {"name": "path_of_old", "type": "string", "field-id": 100},
                    {"name": "score", "type": ["null", "double"], "field-id": 3},
                    {"name": "again", "type": ["null", "eight"], "field-id": 4},
                    {
                        "name": "bounds",
                        "field-id": 5,
                        "type": ["null", {"type": "array", "items": "bytes", "logicalType": "map"}],
                    },
                ],
            },
        },
        {"name": "day", "field-id": 6, "type": {"type": "int", "logicalType": "date"}},
    ],
}
# A NaN that Python would not write again like this, and an array in two blocks, one with its size.
NAN = b"\x01\x00\x00\x00\x00\x00\xf8\x7f"
BOUNDS = b"\x02" + b"\x01" + b"\x06" + b"\x04ab" + b"\x02" + b"\x02c" + b"\x00"


def record(path, day=1):
    name = path.encode()
    head = struct.pack("<q", day) + bytes([2 * len(name)]) + name
    return head + b"\x02" + NAN + b"\x02" + b"12345678" + BOUNDS + bytes([2 * day])


def avro(codec, records):
    header = io.BytesIO()
    metadata = {"format-version": "2", "own": "ü", "content": "data"}
    fastavro.writer(header, SCHEMA, [], codec="null", metadata=metadata)
    text = header.getvalue().replace(b"\x08null", bytes([2 * len(codec)]) + codec.encode())
    sync = read_header(text, "x").sync
    blocks = [block_bytes(len(each), b"".join(each), codec, sync) for each in records]
    return text + b"".join(blocks)


@pytest.mark.parametrize("codec", CODECS)
def test_only_the_chosen_field_changes(codec):
    source = avro(codec, [[record("a"), record("b" * 50, 2)], [record("c", 3)]])
    expected = avro(codec, [[record("x/a"), record("x/" + "b" * 50, 2)], [record("x/c", 3)]])
    files = AvroRecords(source, "m", read={6: "day"}, edit={100: "path"})
    sync = files.header.sync
    expected = expected.replace(read_header(expected, "x").sync, sync)

    assert files.edit(lambda values: {"path": "x/" + values["path"]}) == expected
    assert files.edit(lambda values: None) == source
    assert list(files.values()) == [
        {"path": "a", "day": 1},
        {"path": "b" * 50, "day": 2},
        {"path": "c", "day": 3},
    ]


def test_the_header_stays_byte_for_byte():
    source = avro("deflate", [[record("a")]])
    edited = AvroRecords(source, "m", read={}, edit={100: "path"}).edit(lambda _: {"path": "b"})
    header = read_header(edited, "m")
    assert edited[: header.length] == source[: header.length]
    assert json.loads(header.metadata["avro.schema"])["unknown"] == "kept"
    assert header.metadata["own"].decode() == "ü"


def test_records_are_reordered_as_they_were_written():
    source = avro("zstandard", [[record("b", 2)], [record("a", 1)]])
    files = AvroRecords(source, "m", read={}, edit={100: "path"})
    ordered = sorted(encoded for _, encoded in files.encoded())
    again = AvroRecords(files.with_records(ordered), "m", read={6: "day"})
    assert [values["day"] for values in again.values()] == [1, 2]


LINES = {
    "type": "record",
    "name": "line",
    "fields": [
        {"name": "p", "type": "string", "field-id": 500},
        {"name": "n", "type": "long", "field-id": 501},
    ],
}


def lines(*records):
    stream = io.BytesIO()
    fastavro.writer(stream, LINES, [{"p": path, "n": length} for path, length in records])
    return stream.getvalue()


def test_lines_seen_before_are_edited_without_decoding():
    seen, changed = SeenRecords(), []

    def change(values):
        changed.append(values["path"])
        return {"path": values["path"].upper()}

    results = []
    # The same path with another length is another line.
    for records in ([("a" * 200, 1), ("b", 2)], [("c", 1), ("a" * 200, 1), ("b", 3)]):
        files = AvroRecords(lines(*records), "m", read={501: "n"}, edit={500: "path"})
        edited = files.edit(change, seen)
        again = AvroRecords(edited, "m", read={500: "path", 501: "n"}).values()
        results.append([(values["path"], values["n"]) for values in again])
    assert results == [[("A" * 200, 1), ("B", 2)], [("C", 1), ("A" * 200, 1), ("B", 3)]]
    assert changed == ["a" * 200, "b", "c", "b"]


def test_damage_is_named():
    source = avro("deflate", [[record("a")]])
    for damaged in (source[:-20], source[:-30] + source[-16:], b"Obj\x01", b"", b"PAR1" * 30):
        with pytest.raises(CorruptionError, match="the-file"):
            list(AvroRecords(damaged, "the-file", read={100: "path"}).values())
    with pytest.raises(CorruptionError, match="longer"):
        list(AvroRecords(avro("null", [[record("a") + b"1"]]), "m", read={6: "d"}).values())
    with pytest.raises(UnsupportedError, match="bzip2"):
        read_header(source.replace(b"\x0edeflate", b"\x0abzip2"), "m")
