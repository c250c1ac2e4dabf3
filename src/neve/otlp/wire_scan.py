"""Count what a request holds, on the wire, before anything is built from it.

The work is done by `wire_scan.c`: a few hundred bytes of request can ask protobuf's parser for
gigabytes of objects, and a walk in Python would cost more than everything else the receiver does.
The schema it walks by is made here, from the descriptors of OTLP's own messages.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from google.protobuf.descriptor import FieldDescriptor
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

from neve import limits
from neve.errors import MalformedError, NeveError, TooLargeError
from neve.native import load_library
from neve.otlp.json_mapping import NOT_STORED
from neve.signals import Signal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from google.protobuf.descriptor import Descriptor

LIBRARY = Path(__file__).with_name("libwire_scan.so")


class _Kind(IntEnum):
    """How a field stands on the wire; the numbers are those of wire_scan.c, as all below."""

    UNKNOWN = 0
    VARINT = 1
    FIXED32 = 2
    FIXED64 = 3
    STRING = 4
    BYTES = 5
    MESSAGE = 6


class _Flag(IntEnum):
    REPEATED = 1
    CONTAINER = 2
    RECORD = 4
    PART = 8
    ANY_TEXT = 16


class _Error(IntEnum):
    MALFORMED = 1
    TOO_DEEP = 2
    TOO_MANY_RECORDS = 3
    TOO_MANY_CONTAINERS = 4
    TOO_MANY_PARTS = 5
    TOO_MANY_RECORD_PARTS = 6
    TOO_MANY_NUMBERS = 7
    TOO_MANY_RECORD_NUMBERS = 8
    TOO_MUCH_REPEATED = 9


class _Field(ctypes.Structure):
    _fields_ = (
        ("kind", ctypes.c_uint8),
        ("flags", ctypes.c_uint8),
        ("message", ctypes.c_uint16),
    )


class _Message(ctypes.Structure):
    _fields_ = (("first", ctypes.c_uint32), ("count", ctypes.c_uint32))


class _SchemaStruct(ctypes.Structure):
    _fields_ = (("fields", ctypes.POINTER(_Field)), ("messages", ctypes.POINTER(_Message)))


class _Limits(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_int64)
        for name in (
            "records",
            "containers",
            "parts",
            "record_parts",
            "numbers",
            "record_numbers",
            "repeated_bytes",
            "depth",
        )
    )


class _Counts(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_int64)
        for name in (
            "records",
            "containers",
            "parts",
            "numbers",
            "repeated_bytes",
            "invalid_texts",
            "unknown_fields",
            "unknown_message",
            "unknown_number",
            "error",
            "error_offset",
        )
    )


_LIMITS = _Limits(
    records=limits.MAX_RECORDS,
    containers=limits.MAX_CONTAINERS,
    parts=limits.MAX_PARTS,
    record_parts=limits.MAX_RECORD_PARTS,
    numbers=limits.MAX_NUMBERS,
    record_numbers=limits.MAX_RECORD_NUMBERS,
    repeated_bytes=limits.MAX_REPEATED_BYTES,
    depth=limits.MAX_DEPTH,
)
_TOO_MANY = MappingProxyType(
    {
        _Error.TOO_MANY_RECORDS: f"more than {limits.MAX_RECORDS:,} records",
        _Error.TOO_MANY_CONTAINERS: (
            f"more than {limits.MAX_CONTAINERS:,} resources, scopes and metrics"
        ),
        _Error.TOO_MANY_PARTS: (
            f"more than {limits.MAX_PARTS:,} attributes, events, links, exemplars and the like"
        ),
        _Error.TOO_MANY_RECORD_PARTS: (
            f"a record with more than {limits.MAX_RECORD_PARTS:,} attributes, events, links, "
            "exemplars and the like"
        ),
        _Error.TOO_MANY_NUMBERS: f"more than {limits.MAX_NUMBERS:,} numbers in lists",
        _Error.TOO_MANY_RECORD_NUMBERS: (
            f"a record with more than {limits.MAX_RECORD_NUMBERS:,} numbers in lists"
        ),
        _Error.TOO_MUCH_REPEATED: (
            f"more than {limits.MAX_REPEATED_BYTES >> 30} GiB as rows, each of which repeats what "
            "its resource, scope and metric say"
        ),
    }
)
_PATH_PAIRS = limits.MAX_DEPTH + 1


class ScannedRequest(NamedTuple):
    """What a request holds."""

    records: int
    """Log records, spans or data points."""
    invalid_texts: int
    """Texts that are not UTF-8."""
    unknown_fields: int
    """Fields with content that this version does not know, so that no table has them."""
    first_unknown: str
    """One of them, such as `Span.99`; empty when there is none."""


def scan(signal: Signal, body: bytes) -> ScannedRequest:
    """Check that a body is a request of this signal, within the limits, and count what it holds.

    Raises:
        MalformedError: the body is no such request; it names the field.
        TooLargeError: it holds more than `neve.limits` allows.
    """
    schema = _schema()
    counts = _Counts()
    root = schema.roots[signal]
    if _library().neve_scan(schema.pointer, root, body, len(body), _LIMITS_POINTER, counts):
        raise _explain(signal, body, counts)
    unknown = ""
    if counts.unknown_fields:
        unknown = f"{schema.names[counts.unknown_message]}.{counts.unknown_number}"
    return ScannedRequest(counts.records, counts.invalid_texts, counts.unknown_fields, unknown)


class MessageCounts(NamedTuple):
    """How many messages a request holds."""

    messages: int
    """Records, resources, scopes and metrics."""
    records: tuple[int, ...]
    """Records; of metrics those of each kind, in the order of OTLP's fields."""


def count_messages(signal: Signal, body: bytes) -> MessageCounts:
    """Count what a request holds, without a look into records: that is quick.

    Of a body that is no request of this signal, what stands before the damage.
    """
    schema = _schema()
    columns = schema.record_columns[signal]
    records = (ctypes.c_int64 * (max(columns) + 1))()
    root = schema.roots[signal]
    count = _library().neve_count_messages(schema.pointer, root, body, len(body), columns, records)
    return MessageCounts(count, tuple(records))


def repair_texts(
    signal: Signal, body: bytes, most_bytes: int = limits.LARGEST_REQUEST_BYTES
) -> bytearray:
    """Write a request that `scan` accepted again, with every text in UTF-8.

    A text that is an attribute's value or a log's body becomes the kind `bytes`, which keeps it as
    it is. In all others U+FFFD takes the place of each bad byte, which may triple the request.

    Raises:
        TooLargeError: the repaired request has more than `most_bytes`; it was not written.
    """
    schema = _schema()
    library = _library()
    root = schema.roots[signal]
    size = library.neve_repair(schema.pointer, root, body, len(body), None)
    if size > most_bytes:
        raise TooLargeError("the request is too large with its texts in UTF-8")
    repaired = bytearray(size)
    target = (ctypes.c_char * size).from_buffer(repaired)
    library.neve_repair(schema.pointer, root, body, len(body), target)
    return repaired


def check_json_size(body: bytes) -> None:
    """Refuse a JSON body of too many values before it is parsed. Raises TooLargeError."""
    values = _library().neve_count_json(body, len(body))
    if values > limits.MAX_JSON_VALUES:
        raise TooLargeError(
            f"the request has {values:,} JSON values, more than {limits.MAX_JSON_VALUES:,}",
            hint="Send smaller batches, or protobuf.",
        )


def _explain(signal: Signal, body: bytes, counts: _Counts) -> NeveError:
    error = _Error(counts.error)
    path = _path(signal, body, counts.error_offset)
    if error in _TOO_MANY:
        hint = "Send smaller batches." if "record with" not in _TOO_MANY[error] else None
        return TooLargeError(f"the request has {_TOO_MANY[error]}", hint=hint, field=path)
    if error is _Error.TOO_DEEP:
        return MalformedError(
            f"the request nests deeper than {limits.MAX_DEPTH} messages", field=path
        )
    name = signal.request.DESCRIPTOR.name
    return MalformedError(f"the body is not a protobuf {name}: {path} is broken", field=path)


def _path(signal: Signal, body: bytes, offset: int) -> str:
    """Name the field at a byte: `resource_logs[0].scope_logs[1].log_records[7].body`."""
    pairs = (ctypes.c_int64 * (2 * _PATH_PAIRS))()
    schema = _schema()
    depth = _library().neve_locate(
        schema.pointer, schema.roots[signal], body, len(body), offset, pairs, _PATH_PAIRS
    )
    message: Any = signal.request.DESCRIPTOR
    steps = []
    for number, position in zip(pairs[0 : 2 * depth : 2], pairs[1 : 2 * depth : 2], strict=True):
        field = message.fields_by_number.get(number) if message else None
        if field is None:
            steps.append(f"field {number}")
            break
        steps.append(f"{field.name}[{position}]" if field.is_repeated else field.name)
        message = field.message_type
    return ".".join(steps) or f"byte {offset}"


@dataclass(frozen=True)
class _Schema:
    pointer: object
    roots: Mapping[Signal, int]
    names: tuple[str, ...]
    # For each message, in which column its records are counted.
    record_columns: Mapping[Signal, bytes]
    # ctypes keeps no reference of its own to the arrays.
    arrays: tuple[object, ...]


_NUMBER_KINDS = MappingProxyType(
    {
        FieldDescriptor.TYPE_FIXED64: _Kind.FIXED64,
        FieldDescriptor.TYPE_SFIXED64: _Kind.FIXED64,
        FieldDescriptor.TYPE_DOUBLE: _Kind.FIXED64,
        FieldDescriptor.TYPE_FIXED32: _Kind.FIXED32,
        FieldDescriptor.TYPE_SFIXED32: _Kind.FIXED32,
        FieldDescriptor.TYPE_FLOAT: _Kind.FIXED32,
        FieldDescriptor.TYPE_STRING: _Kind.STRING,
        FieldDescriptor.TYPE_BYTES: _Kind.BYTES,
        FieldDescriptor.TYPE_MESSAGE: _Kind.MESSAGE,
    }
)


@cache
def _schema() -> _Schema:
    """Translate the descriptors of all signals for the library; once in a process."""
    messages: list[Descriptor] = []
    for signal in Signal:
        _collect(signal.request.DESCRIPTOR, messages)
    positions = {message.full_name: position for position, message in enumerate(messages)}
    fields: list[_Field] = []
    tables: list[_Message] = []
    for message in messages:
        count = max(field.number for field in message.fields) + 1
        tables.append(_Message(len(fields), count))
        by_number = message.fields_by_number
        fields += [
            _translate(by_number[number], positions) if number in by_number else _Field()
            for number in range(count)
        ]
    field_array = (_Field * len(fields))(*fields)
    table_array = (_Message * len(tables))(*tables)
    schema = _SchemaStruct(
        ctypes.cast(field_array, ctypes.POINTER(_Field)),
        ctypes.cast(table_array, ctypes.POINTER(_Message)),
    )
    return _Schema(
        ctypes.pointer(schema),
        {signal: positions[signal.request.DESCRIPTOR.full_name] for signal in Signal},
        tuple(message.name for message in messages),
        {signal: _record_columns(signal, messages) for signal in Signal},
        (schema, field_array, table_array),
    )


def _record_columns(signal: Signal, messages: Sequence[Descriptor]) -> bytes:
    """Number the messages of a signal that list records, from 0; all others stand for none."""
    of_signal: list[Descriptor] = []
    _collect(signal.request.DESCRIPTOR, of_signal)
    lists = [each for each in of_signal if any(field.name in _RECORDS for field in each.fields)]
    return bytes(lists.index(each) if each in lists else 0 for each in messages)


def _collect(message: Any, messages: list[Descriptor]) -> None:
    if message not in messages:
        messages.append(message)
        for field in message.fields:
            if field.message_type:
                _collect(field.message_type, messages)


def _translate(field: FieldDescriptor, positions: Mapping[str, int]) -> _Field:
    if field.name in NOT_STORED:
        return _Field()
    kind = _NUMBER_KINDS.get(field.type, _Kind.VARINT)
    flags = _Flag.REPEATED if field.is_repeated else 0
    if field.is_repeated and kind in (_Kind.MESSAGE, _Kind.STRING):
        flags |= _member_flag(field)
    target = positions[field.message_type.full_name] if field.message_type else 0
    if field.name == "string_value":
        flags |= _Flag.ANY_TEXT
        target = AnyValue.DESCRIPTOR.fields_by_name["bytes_value"].number
    return _Field(kind, flags, target)


_CONTAINERS = frozenset(
    name for signal in Signal for name in signal.levels[: 3 if signal is Signal.METRICS else 2]
)
_RECORDS = frozenset({"data_points", *(s.levels[2] for s in Signal if s is not Signal.METRICS)})


def _member_flag(field: FieldDescriptor) -> _Flag:
    if field.name in _CONTAINERS:
        return _Flag.CONTAINER
    return _Flag.RECORD if field.name in _RECORDS else _Flag.PART


_LIMITS_POINTER = ctypes.pointer(_LIMITS)


@cache
def _library() -> ctypes.CDLL:
    library = load_library(LIBRARY)
    body = (ctypes.c_char_p, ctypes.c_size_t)
    schema = (ctypes.POINTER(_SchemaStruct), ctypes.c_uint32)
    library.neve_scan.argtypes = (
        *schema,
        *body,
        ctypes.POINTER(_Limits),
        ctypes.POINTER(_Counts),
    )
    library.neve_scan.restype = ctypes.c_int
    library.neve_repair.argtypes = (*schema, *body, ctypes.c_char_p)
    library.neve_repair.restype = ctypes.c_size_t
    library.neve_locate.argtypes = (
        *schema,
        *body,
        ctypes.c_size_t,
        ctypes.POINTER(ctypes.c_int64),
        ctypes.c_int,
    )
    library.neve_locate.restype = ctypes.c_int
    library.neve_count_messages.argtypes = (
        *schema,
        *body,
        ctypes.c_char_p,
        ctypes.POINTER(ctypes.c_int64),
    )
    library.neve_count_messages.restype = ctypes.c_int64
    library.neve_count_json.argtypes = body
    library.neve_count_json.restype = ctypes.c_int64
    return library
