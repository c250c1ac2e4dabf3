"""Manifests and manifest lists made by hand, with what no library writes."""

from __future__ import annotations

import io
from typing import Any

import fastavro


def _map(number: int, key: int, value: int, type_: str) -> list[Any]:
    fields = [
        {"name": "key", "type": "int", "field-id": key},
        {"name": "value", "type": type_, "field-id": value},
    ]
    items = {"type": "record", "name": f"k{key}_v{value}", "fields": fields}
    return ["null", {"type": "array", "logicalType": "map", "items": items, "element-id": number}]


def _field(number: int, name: str, type_: Any) -> dict[str, Any]:
    optional = isinstance(type_, list)
    return {
        "name": name,
        "type": type_,
        "field-id": number,
        **({"default": None} if optional else {}),
    }


FILE = {
    "type": "record",
    "name": "r2",
    "fields": [
        _field(134, "content", "int"),
        _field(100, "file_path", "string"),
        _field(101, "file_format", "string"),
        _field(102, "partition", {"type": "record", "name": "r102", "fields": []}),
        _field(103, "record_count", "long"),
        _field(104, "file_size_in_bytes", "long"),
        _field(108, "column_sizes", _map(108, 117, 118, "long")),
        _field(125, "lower_bounds", _map(125, 126, 127, "bytes")),
        _field(128, "upper_bounds", _map(128, 129, 130, "bytes")),
        _field(131, "key_metadata", ["null", "bytes"]),
        _field(
            132, "split_offsets", ["null", {"type": "array", "items": "long", "element-id": 133}]
        ),
        _field(142, "first_row_id", ["null", "long"]),
        _field(143, "referenced_data_file", ["null", "string"]),
        _field(144, "content_offset", ["null", "long"]),
        _field(145, "content_size_in_bytes", ["null", "long"]),
        # Of a future version.
        _field(199, "unheard_of", ["null", "string"]),
    ],
}
ENTRY = {
    "type": "record",
    "name": "manifest_entry",
    "fields": [
        _field(0, "status", "int"),
        _field(1, "snapshot_id", ["null", "long"]),
        _field(3, "sequence_number", ["null", "long"]),
        _field(4, "file_sequence_number", ["null", "long"]),
        _field(2, "data_file", FILE),
    ],
}
LINE = {
    "type": "record",
    "name": "manifest_file",
    "fields": [
        _field(500, "manifest_path", "string"),
        _field(501, "manifest_length", "long"),
        _field(502, "partition_spec_id", "int"),
        _field(517, "content", "int"),
        _field(519, "key_metadata", ["null", "bytes"]),
        _field(520, "first_row_id", ["null", "long"]),
    ],
}


def entry(path: str, *, status: int = 1, content: int = 0, **file: Any) -> dict[str, Any]:
    defaults = {"file_format": "PARQUET", "partition": {}, "record_count": 1, "first_row_id": 5}
    defaults |= {"file_size_in_bytes": 10, "unheard_of": "kept", "content": content}
    return {
        "status": status,
        "snapshot_id": 1,
        "data_file": {**defaults, "file_path": path, **file},
    }


def manifest(*entries: dict[str, Any], content: str = "data") -> bytes:
    metadata = {"schema": '{"type": "struct"}', "partition-spec-id": "3", "content": content}
    return _avro(ENTRY, entries, metadata)


def manifest_list(*lines: dict[str, Any]) -> bytes:
    defaults = {"manifest_length": 1, "partition_spec_id": 3, "content": 0, "first_row_id": 7}
    return _avro(LINE, [{**defaults, **line} for line in lines], {"snapshot-id": "1"})


def records(content: bytes) -> list[Any]:
    return list(fastavro.reader(io.BytesIO(content)))


def _avro(schema: Any, entries: Any, metadata: dict[str, str]) -> bytes:
    stream = io.BytesIO()
    fastavro.writer(stream, schema, entries, codec="deflate", metadata=metadata)
    return stream.getvalue()
