"""Avro files edited field by field: every byte that is not edited stays as it was.

The header is copied as it is (schema, Iceberg's key-value metadata, codec, sync marker), and so are
all other fields of a record, those that this version of Neve does not know, too. One block is
decoded at a time. https://avro.apache.org/docs/1.12.0/specification/#object-container-files
"""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, TypeVar

import fastavro

from neve.errors import CorruptionError, UnsupportedError
from neve.lake.avro_blocks import CODECS, block_bytes, read_blocks

_HEADER = fastavro.parse_schema(
    {
        "type": "record",
        "name": "Header",
        "fields": [
            {"name": "magic", "type": {"type": "fixed", "name": "Magic", "size": 4}},
            {"name": "meta", "type": {"type": "map", "values": "bytes"}},
            {"name": "sync", "type": {"type": "fixed", "name": "Sync", "size": 16}},
        ],
    }
)
_MAGIC = b"Obj\x01"
_BLOCK_BYTES = 64_000  # as Avro's own writers
# What decoders raise where a file is damaged.
_DAMAGE = (ValueError, LookupError, TypeError, EOFError, OverflowError, OSError, zlib.error)

_MOST_RECORDS_SEEN = 100_000

T = TypeVar("T")
Values = dict[str, Any]
Record = tuple[Values, bytes]
_Fields = tuple[tuple[int, str], ...]
Change = Callable[[Values], "Values | None"]


@dataclass(frozen=True)
class AvroHeader:
    """What stands before the records of an Avro file.

    Args:
        schema: as it was written.
        metadata: all entries, Avro's own (`avro.schema`, `avro.codec`) included.
        length: of the header, in bytes.
    """

    schema: dict[str, Any]
    metadata: dict[str, bytes]
    codec: str
    sync: bytes
    length: int

    def encode(self, schema: Any, codec: str) -> bytes:
        """Return a header with another schema and codec, all else as it is."""
        metadata = {
            **self.metadata,
            "avro.schema": json.dumps(schema).encode(),
            "avro.codec": codec.encode(),
        }
        stream = io.BytesIO()
        header = {"magic": _MAGIC, "meta": metadata, "sync": self.sync}
        fastavro.schemaless_writer(stream, _HEADER, header)
        return stream.getvalue()


def read_header(content: bytes, path: str) -> AvroHeader:
    """Read the header of an Avro file.

    Raises:
        CorruptionError: this is no Avro file.
        UnsupportedError: it is compressed by a codec that Iceberg does not write.
    """
    stream = io.BytesIO(content)
    with damage_named(path):
        header: Any = fastavro.schemaless_reader(stream, _HEADER, None)
        if header["magic"] != _MAGIC:
            raise ValueError(header["magic"])
        metadata = header["meta"]
        schema = _parse_schema(metadata["avro.schema"])
        codec = metadata.get("avro.codec", b"null").decode()
    if codec not in CODECS:
        raise UnsupportedError(f"{path} is compressed by the Avro codec {codec}")
    return AvroHeader(schema, metadata, codec, header["sync"], stream.tell())


@lru_cache(maxsize=64)
def _parse_schema(text: bytes) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads(text)
    return schema


@contextmanager
def damage_named(path: str) -> Iterator[None]:
    """Raise CorruptionError, with the file's name, for whatever a decoder stumbles over."""
    try:
        yield
    except _DAMAGE as error:
        raise CorruptionError(f"{path} is not a whole Avro file") from error


def without_logical_types(schema: Any) -> Any:
    """Return a schema under which a date stays a number, so that values are kept as they are."""
    if isinstance(schema, list):
        return [without_logical_types(each) for each in schema]
    if isinstance(schema, dict):
        return {
            key: without_logical_types(value)
            for key, value in schema.items()
            if key != "logicalType"
        }
    return schema


@dataclass(frozen=True)
class _Part:
    """Neighbouring fields of a record: one that may be edited, or several that may not."""

    writer: Any
    reader: Any
    edited: str | None = None


class AvroRecords:
    """The records of one Avro file, of which some fields are read and some may be edited.

    Fields are chosen by their Iceberg id, or by name where a file has no ids. One that the file
    lacks is missing among the values. Those that are read must be primitive.

    Args:
        read: id and name of the fields whose values are read.
        edit: id and name of the fields whose values are read and may be replaced.
    """

    def __init__(
        self,
        content: bytes,
        path: str,
        *,
        read: Mapping[int, str],
        edit: Mapping[int, str] | None = None,
    ) -> None:
        self.header = read_header(content, path)
        self._content = content
        self._path = path
        schema = self.header.metadata["avro.schema"]
        with damage_named(path):
            self._parts = _split(schema, tuple(read.items()), tuple((edit or {}).items()))
        self._writers = {part.edited: part.writer for part in self._parts if part.edited}

    def values(self, seen: SeenRecords[None] | None = None) -> Iterator[Values]:
        """Yield what was chosen of each record, of those only that were not seen before."""
        for count, block in self._blocks():
            stream, at = io.BytesIO(block), 0
            for _ in range(count):
                record = seen.find(self.header, block, at) if seen else None
                if record:
                    at += len(record[0])
                    continue
                stream.seek(at)
                yield self._read(stream)[0]
                start, at = at, stream.tell()
                if seen:
                    seen.add(self.header, block[start:at], None)
            self._check_end(at, block)

    def encoded(self) -> Iterator[Record]:
        """Yield what was chosen of each record, and the whole record as it was written."""
        for count, block in self._blocks():
            stream = io.BytesIO(block)
            for _ in range(count):
                start = stream.tell()
                values, _spans = self._read(stream)
                yield values, block[start : stream.tell()]
            self._check_end(stream.tell(), block)

    def edit(self, change: Change, seen: SeenRecords[bytes] | None = None) -> bytes:
        """Return the file with other values.

        Args:
            change: takes the values of a record and returns those that are to be replaced.
            seen: what records of other files became, by the same change.
        """
        return self._file(
            (count, self._edit_block(count, block, change, seen)) for count, block in self._blocks()
        )

    def replaced(self, record: Record, changes: Values) -> bytes:
        """Return a record with other values."""
        _, encoded = record
        return self._edited(encoded, io.BytesIO(encoded), lambda _: changes)

    def with_records(self, records: Iterable[bytes]) -> bytes:
        """Return the file with other records, each encoded."""
        return self._file(_blocks_of(records))

    def _blocks(self) -> Iterator[tuple[int, bytes]]:
        with damage_named(self._path):
            yield from read_blocks(self._content[self.header.length :], self.header.codec)

    def _file(self, blocks: Iterable[tuple[int, bytes]]) -> bytes:
        codec, sync = self.header.codec, self.header.sync
        file = io.BytesIO()
        file.write(self._content[: self.header.length])
        for count, block in blocks:
            file.write(block_bytes(count, block, codec, sync))
        return file.getvalue()

    def _read(self, stream: io.BytesIO) -> tuple[Values, dict[str, tuple[int, int]]]:
        values: Values = {}
        spans: dict[str, tuple[int, int]] = {}
        try:
            for part in self._parts:
                start = stream.tell()
                decoded: Any = fastavro.schemaless_reader(stream, part.writer, part.reader)
                values.update(decoded)
                if part.edited:
                    spans[part.edited] = start, stream.tell()
        except _DAMAGE as error:
            raise CorruptionError(f"{self._path} is not a whole Avro file") from error
        return values, spans

    def _edit_block(
        self, count: int, block: bytes, change: Change, seen: SeenRecords[bytes] | None
    ) -> bytes:
        stream, edited, at = io.BytesIO(block), io.BytesIO(), 0
        for _ in range(count):
            record = seen.find(self.header, block, at) if seen else None
            if record:
                edited.write(record[1])
                at += len(record[0])
                continue
            stream.seek(at)
            result = self._edited(block, stream, change)
            edited.write(result)
            start, at = at, stream.tell()
            if seen:
                seen.add(self.header, block[start:at], result)
        self._check_end(at, block)
        return edited.getvalue()

    def _edited(self, block: bytes, stream: io.BytesIO, change: Change) -> bytes:
        """Return the record that the stream is at, with other values."""
        copied = stream.tell()
        values, spans = self._read(stream)
        changes = change(values) or {}
        pieces = []
        for name, (start, end) in spans.items():
            if name in changes:
                value = io.BytesIO()
                fastavro.schemaless_writer(value, self._writers[name], changes)
                pieces += [block[copied:start], value.getvalue()]
                copied = end
        pieces.append(block[copied : stream.tell()])
        return b"".join(pieces)

    def _check_end(self, end: int, block: bytes) -> None:
        if end != len(block):
            raise CorruptionError(f"{self._path} has a block that is longer than its records")


class SeenRecords(Generic[T]):
    """Records whose first field is a string, and what became of them.

    The manifest lists of a table repeat each other: 500 fast appends of 4 manifests make half a
    million lines. No encoded record begins like a shorter one, so where a block goes on with the
    bytes of a known record, it has that record there.
    """

    def __init__(self) -> None:
        self._by_schema: dict[bytes, dict[bytes, tuple[bytes, T]]] = {}
        self._count = 0

    def find(self, header: AvroHeader, block: bytes, at: int) -> tuple[bytes, T] | None:
        """Return the record that a block has at a place, if it was seen before."""
        records = self._by_schema.get(header.metadata["avro.schema"])
        record = records.get(_first_string(block, at)) if records else None
        return record if record and block.startswith(record[0], at) else None

    def add(self, header: AvroHeader, record: bytes, result: T) -> None:
        if self._count < _MOST_RECORDS_SEEN and _begins_with_string(header.schema):
            self._count += 1
            records = self._by_schema.setdefault(header.metadata["avro.schema"], {})
            records[_first_string(record, 0)] = record, result


def _begins_with_string(schema: Any) -> bool:
    return bool(schema["fields"]) and schema["fields"][0]["type"] == "string"


def _first_string(block: bytes, at: int) -> bytes:
    number = shift = 0
    for start in range(at, len(block)):
        number |= (block[start] & 0x7F) << shift
        if block[start] < 0x80:
            return block[at : start + 1 + (number >> 1)]
        shift += 7
    return b""


def _blocks_of(records: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    block, count = io.BytesIO(), 0
    for record in records:
        block.write(record)
        count += 1
        if block.tell() >= _BLOCK_BYTES:
            yield count, block.getvalue()
            block, count = io.BytesIO(), 0
    if count:
        yield count, block.getvalue()


# The manifests of a table have few schemas, and parsing one takes longer than some manifests do.
@lru_cache(maxsize=64)
def _split(schema: bytes, read: _Fields, edit: _Fields) -> list[_Part]:
    """Cut a record's fields before and after each that may be edited."""
    chosen = dict(read + edit)
    names, editable = set(chosen.values()), set(dict(edit).values())
    parts: list[_Part] = []
    run: list[Any] = []
    # Shared, since a part may use a type that an earlier part defines.
    types: dict[str, Any] = {}

    def add(fields: list[Any], edited: str | None = None) -> None:
        name = f"neve_part_{len(parts)}"
        # A part must not be taken for what it was cut out of.
        writer = {"type": "record", "name": name, "fields": fields}
        wanted = [field for field in fields if field["name"] in names]
        reader = {"type": "record", "name": name, "fields": wanted}
        parts.append(
            _Part(
                fastavro.parse_schema(writer, types),
                None if len(wanted) == len(fields) else fastavro.parse_schema(reader),
                edited,
            )
        )

    for number, field in enumerate(_flat(without_logical_types(json.loads(schema)), chosen)):
        if field["name"] not in names:
            # Records that were dissolved may have had fields of one name.
            field["name"] = f"neve_other_{number}"
        if field["name"] in editable:
            if run:
                add(run)
            add([field], field["name"])
            run = []
        else:
            run.append(field)
    if run:
        add(run)
    return parts


def _flat(record: Any, chosen: Mapping[int, str]) -> Iterator[Any]:
    """Yield the fields of a record, a record that has a chosen field dissolved into its own.

    Chosen fields have the names that we know them by, all others have none.
    """
    ids = any("field-id" in field for field in record["fields"])
    for field in record["fields"]:
        inner = field["type"]
        if isinstance(inner, dict) and inner["type"] == "record" and _holds(inner, chosen):
            yield from _flat(inner, chosen)
            continue
        name = chosen.get(field.get("field-id")) if ids else field["name"]
        yield {**field, "name": name, "aliases": []}


def _holds(record: Any, chosen: Mapping[int, str]) -> bool:
    return any(
        field.get("field-id", field["name"]) in (*chosen, *chosen.values())
        for field in record["fields"]
    )
