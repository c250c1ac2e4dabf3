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
from typing import Any

import fastavro

from neve.errors import CorruptionError, UnsupportedError
from neve.lake.avro_blocks import CODECS, block_bytes, read_blocks
from neve.lake.avro_shapes import Skip
from neve.lake.avro_skip import Decode, make_decode, make_skip

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
_RECORDS_IN_RUN = 64
_MOST_RUNS_SEEN = 2048

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
    """Fields that are stepped over, or one field that is read.

    Args:
        name: of the field that is read, and may be edited.
        skip: steps over the others.
        decode: reads a plain value.
        schema: of a record with this field only; it decodes other values and encodes new ones.
    """

    name: str | None = None
    skip: Skip | None = None
    decode: Decode | None = None
    schema: Any = None


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
            self._parts = _split(schema, tuple({**read, **(edit or {})}.items()))
        self._schemas = {part.name: part.schema for part in self._parts if part.name}

    def values(self, seen: SeenRecords | None = None) -> Iterator[Values]:
        """Yield what was chosen of each record, of those only that were not seen before."""
        known = seen.of(self.header) if seen else None
        if known is None:
            yield from (values for values, _ in self.encoded())
            return
        new: list[Values] = []
        for _ in self._runs(known, new.append):
            yield from new
            new.clear()

    def encoded(self) -> Iterator[Record]:
        """Yield what was chosen of each record, and the whole record as it was written."""
        for count, block in self._blocks():
            at = 0
            for _ in range(count):
                values, _spans, end = self._read(block, at)
                yield values, block[at:end]
                at = end
            self._check_end(at, block)

    def edit(self, change: Change, seen: SeenRecords | None = None) -> bytes:
        """Return the file with other values.

        Args:
            change: takes the values of a record and returns those that are to be replaced.
            seen: what records of other files became, by the same change.
        """

        known = seen.of(self.header) if seen else None
        if known:
            return self._file(_blocks_of(self._runs(known, change)))
        return self._file(
            (count, self._edit_block(count, block, change)) for count, block in self._blocks()
        )

    def replaced(self, record: Record, changes: Values) -> bytes:
        """Return a record with other values."""
        _, encoded = record
        return self._edited(encoded, 0, lambda _: changes)[0]

    def with_records(self, records: Iterable[bytes]) -> bytes:
        """Return the file with other records, each encoded."""
        return self._file(_blocks_of((1, record) for record in records))

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

    def _read(self, block: bytes, at: int) -> tuple[Values, dict[str, tuple[int, int]], int]:
        """Return what was chosen of the record at a place, where it lies, and the record's end."""
        values: Values = {}
        spans: dict[str, tuple[int, int]] = {}
        try:
            for part in self._parts:
                if part.skip:
                    at = part.skip(block, at)
                    continue
                start, name = at, part.name or ""
                if part.decode:
                    values[name], at = part.decode(block, at)
                else:
                    stream = io.BytesIO(block)
                    stream.seek(at)
                    decoded: Any = fastavro.schemaless_reader(stream, part.schema, None)
                    values.update(decoded)
                    at = stream.tell()
                spans[name] = start, at
        except _DAMAGE as error:
            raise CorruptionError(f"{self._path} is not a whole Avro file") from error
        return values, spans, at

    def _edit_block(self, count: int, block: bytes, change: Change) -> bytes:
        edited, at = [], 0
        for _ in range(count):
            record, at = self._edited(block, at, change)
            edited.append(record)
        self._check_end(at, block)
        return b"".join(edited)

    def _runs(self, known: _SeenRuns, change: Change) -> Iterator[tuple[int, bytes]]:
        """Yield what the records became, with how many each piece has."""
        # As one block, since equal runs of records cross the ends of blocks.
        blocks = list(self._blocks())
        left, block = sum(count for count, _ in blocks), b"".join(block for _, block in blocks)
        at = 0
        while left:
            run = known.find(block, at, left)
            if run is None:
                edited, end = self._edited(block, at, change)
                run = _Run(1, block[at:end], edited)
            at += len(run.source)
            left -= run.count
            known.add(run)
            yield run.count, run.result
        self._check_end(at, block)

    def _edited(self, block: bytes, at: int, change: Change) -> tuple[bytes, int]:
        """Return the record at a place with other values, and where it ended."""
        values, spans, end = self._read(block, at)
        changes = change(values) or {}
        pieces, copied = [], at
        for name, (start, stop) in spans.items():
            if name in changes:
                value = io.BytesIO()
                fastavro.schemaless_writer(value, self._schemas[name], changes)
                pieces += [block[copied:start], value.getvalue()]
                copied = stop
        pieces.append(block[copied:end])
        return b"".join(pieces), end

    def _check_end(self, end: int, block: bytes) -> None:
        if end != len(block):
            raise CorruptionError(f"{self._path} has a block that is longer than its records")


class SeenRecords:
    """What became of records in other files, where the first field of records is a string.

    The manifest lists of a table repeat each other: 500 fast appends of 4 manifests make half a
    million lines.
    """

    def __init__(self) -> None:
        self._by_schema: dict[bytes, _SeenRuns] = {}

    def of(self, header: AvroHeader) -> _SeenRuns | None:
        """Return what is known of files with this schema; None: nothing can be."""
        fields = header.schema["fields"]
        if not fields or fields[0]["type"] != "string":
            return None
        runs = self._by_schema.setdefault(header.metadata["avro.schema"], _SeenRuns())
        # A list of its own for each file, so that threads do not mix their runs.
        return runs.for_file()


@dataclass(frozen=True)
class _Run:
    """Neighbouring records, as they were written, and what became of them."""

    count: int
    source: bytes
    result: bytes


class _SeenRuns:
    """Runs by the first string of their first record.

    No encoded record begins like a shorter one, so where a block goes on with the bytes of a known
    run, it has those records there.
    """

    def __init__(
        self, runs: dict[bytes, _Run] | None = None, records: dict[bytes, _Run] | None = None
    ) -> None:
        self._runs = {} if runs is None else runs
        self._records = {} if records is None else records
        self._new: list[_Run] = []

    def for_file(self) -> _SeenRuns:
        return _SeenRuns(self._runs, self._records)

    def find(self, block: bytes, at: int, left: int) -> _Run | None:
        """Return the longest run that a block has at a place, of no more records than are left."""
        name = _first_string(block, at)
        for runs in (self._runs, self._records):
            run = runs.get(name)
            if run and run.count <= left and block.startswith(run.source, at):
                return run
        return None

    def add(self, run: _Run) -> None:
        """Remember a run; records that follow each other become a longer one."""
        if run.count > 1 or len(self._records) >= _MOST_RECORDS_SEEN:
            self._new.clear()
            return
        self._records[_first_string(run.source, 0)] = run
        self._new.append(run)
        if len(self._new) == _RECORDS_IN_RUN:
            source = b"".join(each.source for each in self._new)
            result = b"".join(each.result for each in self._new)
            if len(self._runs) >= _MOST_RUNS_SEEN:
                self._runs.clear()
            self._runs[_first_string(source, 0)] = _Run(_RECORDS_IN_RUN, source, result)
            self._new.clear()


def _first_string(block: bytes, at: int) -> bytes:
    number = shift = 0
    for start in range(at, len(block)):
        number |= (block[start] & 0x7F) << shift
        if block[start] < 0x80:
            return block[at : start + 1 + (number >> 1)]
        shift += 7
    return b""


def _blocks_of(pieces: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
    block, total = io.BytesIO(), 0
    for count, piece in pieces:
        block.write(piece)
        total += count
        if block.tell() >= _BLOCK_BYTES:
            yield total, block.getvalue()
            block, total = io.BytesIO(), 0
    if total:
        yield total, block.getvalue()


# The manifests of a table have few schemas, and parsing one takes longer than some manifests do.
@lru_cache(maxsize=64)
def _split(schema: bytes, chosen: _Fields) -> list[_Part]:
    """Cut a record before and after each chosen field."""
    names = set(dict(chosen).values())
    parts: list[_Part] = []
    skipped: list[Any] = []
    # Shared, since a field may use a type that an earlier field defines.
    parsed: dict[str, Any] = {}
    named: dict[str, Any] = {}
    for number, field in enumerate(_flat(without_logical_types(json.loads(schema)), dict(chosen))):
        type_, name = field["type"], field["name"]
        fields = [{**field, "name": name or "other"}]
        record = {"type": "record", "name": f"neve_part_{number}", "fields": fields}
        alone = fastavro.parse_schema(record, parsed)
        if name not in names:
            skipped.append(type_)
            continue
        if skipped:
            parts.append(_Part(skip=make_skip(skipped, named)))
            skipped = []
        make_skip([type_], named)
        parts.append(_Part(name, decode=make_decode(type_), schema=alone))
    if skipped:
        parts.append(_Part(skip=make_skip(skipped, named)))
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
