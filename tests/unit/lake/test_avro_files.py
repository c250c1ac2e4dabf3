"""Avro files are edited field by field; no other byte changes."""

import io
import json
import struct
import zlib
from random import Random

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


EVERY_TYPE = [
    ({"type": "map", "values": "long"}, {"ä" * 99: -(2**62), "b": 0}),
    ({"type": "array", "items": {"type": "array", "items": "string"}}, [["a"], [], ["b" * 200]]),
    ({"type": "enum", "name": "e", "symbols": ["x", "y"]}, "y"),
    ({"type": "fixed", "name": "f", "size": 3}, b"abc"),
    ("f", b"cde"),
    (["string", "null", "f"], b"abc"),
    (
        [
            "null",
            {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "kv",
                    "fields": [{"name": "key", "type": "int"}, {"name": "value", "type": "bytes"}],
                },
            },
        ],
        [{"key": 2147483546, "value": b"p" * size} for size in (0, 1, 63, 64, 9000)],
    ),
    ({"type": "array", "items": "kv"}, [{"key": 1, "value": b"2"}]),
    ({"type": "array", "items": "long"}, list(range(-2000, 2000))),
    ({"type": "long"}, 2**63 - 1),
    ("boolean", True),
    ("float", 1.5),
    ("double", float("inf")),
    ("null", None),
    ("int", -1),
]


def test_values_of_every_type_are_stepped_over():
    fields = [{"name": f"f{n}", "type": type_} for n, (type_, _) in enumerate(EVERY_TYPE)]
    fields.append({"name": "path", "type": ["null", "string"]})
    schema = {"type": "record", "name": "all", "fields": [*fields, {"name": "z", "type": "kv"}]}
    values = {f"f{n}": value for n, (_, value) in enumerate(EVERY_TYPE)}
    records = [{**values, "path": path, "z": {"key": 1, "value": b""}} for path in ("a", None, "b")]
    stream = io.BytesIO()
    fastavro.writer(stream, schema, records)
    # Without field ids, by name.
    files = AvroRecords(stream.getvalue(), "m", read={}, edit={100: "path"})
    assert [each["path"] for each in files.values()] == ["a", None, "b"]
    edited = files.edit(lambda values: {"path": (values["path"] or "") + "x"})
    expected = [{**each, "path": (each["path"] or "") + "x"} for each in records]
    assert list(fastavro.reader(io.BytesIO(edited))) == expected


KEYS = {
    "type": "record",
    "name": "kv",
    "fields": [{"name": "key", "type": "int"}, {"name": "value", "type": "bytes"}],
}


def bounds(random):
    sizes = [random.choice([0, 1, 8, 63, 64, 200]) for _ in range(random.randrange(4))]
    return [{"key": random.choice([0, 1, 2**30]), "value": bytes(size)} for size in sizes]


SHAPED = [
    (["null", {"type": "array", "items": KEYS}], lambda r: r.choice([None, bounds(r)])),
    ({"type": "array", "items": "kv"}, bounds),
    (["null", "long", "string"], lambda r: r.choice([None, r.getrandbits(62), "text" * 30])),
    ({"type": "map", "values": "double"}, lambda r: dict.fromkeys("ab"[: r.randrange(3)], 0.5)),
    ({"type": "array", "items": ["null", "int"]}, lambda r: [r.choice([None, 3])] * 2),
]


@pytest.mark.parametrize("seed", range(20))
def test_values_shaped_like_others_are_stepped_over(seed):
    random = Random(seed)
    fields = [{"name": f"f{n}", "type": type_} for n, (type_, _) in enumerate(SHAPED)]
    fields.append({"name": "path", "type": "string"})
    schema = {"type": "record", "name": f"shaped{seed}", "fields": fields}
    records = []
    for number in range(60):
        values = {f"f{n}": make(random) for n, (_, make) in enumerate(SHAPED)}
        # Some shapes come again and again.
        again = random.choice(records) if records and random.random() < 0.7 else values
        records.append({**again, "path": f"p{number}"})
    stream = io.BytesIO()
    fastavro.writer(stream, schema, records)
    files = AvroRecords(stream.getvalue(), "m", read={}, edit={100: "path"})
    edited = files.edit(lambda values: {"path": values["path"] + "x"})
    expected = [{**each, "path": each["path"] + "x"} for each in records]
    assert list(fastavro.reader(io.BytesIO(edited))) == expected


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


def test_long_lists_that_grow_are_edited_as_if_nothing_was_seen():
    seen, changed = SeenRecords(), set()
    paths = [(f"{number}-{'p' * 70}", number) for number in range(300)]

    def change(values):
        changed.add(values["path"])
        return {"path": values["path"] + "x", "n": values["n"] + 1}

    # New lines come first; then some of the middle are replaced, and the order changes.
    lists = [paths[start:] for start in range(290, -1, -10)]
    lists += [[*paths[:100], ("new", 1), *paths[130:]], paths[200:] + paths[:70]]
    for records in lists:
        content = lines(*records)
        files = AvroRecords(content, "m", read={}, edit={500: "path", 501: "n"})
        assert list(fastavro.reader(io.BytesIO(files.edit(change, seen)))) == [
            {"p": path + "x", "n": number + 1} for path, number in records
        ]
        assert len(list(AvroRecords(content, "m", read={500: "p"}).values())) == len(records)
    assert len(changed) == 301


def test_snappy_blocks_end_with_the_checksum_of_their_content():
    # https://avro.apache.org/docs/1.12.0/specification/#snappy
    block = block_bytes(1, b"abc" * 9, "snappy", b"")
    assert block[-4:] == zlib.crc32(b"abc" * 9).to_bytes(4, "big")
    source = avro("snappy", [[record("a")]])
    with pytest.raises(CorruptionError):
        list(AvroRecords(source[:-17] + b"?" + source[-16:], "m", read={6: "d"}).values())


def test_damage_is_named():
    source = avro("deflate", [[record("a")]])
    for damaged in (source[:-20], source[:-30] + source[-16:], b"Obj\x01", b"", b"PAR1" * 30):
        with pytest.raises(CorruptionError, match="the-file"):
            list(AvroRecords(damaged, "the-file", read={100: "path"}).values())
    with pytest.raises(CorruptionError, match="longer"):
        list(AvroRecords(avro("null", [[record("a") + b"1"]]), "m", read={6: "d"}).values())
    with pytest.raises(UnsupportedError, match="bzip2"):
        read_header(source.replace(b"\x0edeflate", b"\x0abzip2"), "m")
