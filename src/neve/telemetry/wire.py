"""Protobuf wire format to nested Arrow arrays, with ptars.

ptars reads as protobuf's own parsers do, but for two things. It cannot take a recursive message,
so the members of arrays and maps inside attribute values stay bytes (`values.py` reads them next).
And where a sender sets two members of one `oneof` it keeps both, though the last alone counts;
`only_one_of` notices, and `rewrite` makes the request unambiguous. Attributes stay bytes, too:
`pairs.py` reads most of them faster.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.message import DecodeError
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from ptars import HandlerPool

from neve.signals import Signal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from google.protobuf.message import Message

    from neve.telemetry.arrays import Column, Integers, Lists, Messages, Texts

# Fields that stay bytes, which have the same wire type: members of arrays, which lead back to
# AnyValue, and all attributes, also as members of maps.
_ARRAY_MEMBERS = ("ArrayValue", "values")
_PAIR = f".{KeyValue.DESCRIPTOR.full_name}"


class UnreadableError(Exception):
    """The requests cannot be read as they are: rewrite them one by one, and try again."""


def read(signal: Signal, requests: Column) -> Lists:
    """Return the resources of each request, nested as the messages are.

    Messages that are not set hold defaults.

    Raises:
        UnreadableError: at least one request is no request of this signal.
    """
    return read_messages(signal.request.DESCRIPTOR.full_name, requests).field(0)


def read_messages(name: str, wire: Column) -> Messages:
    """Return messages of the type with this full name.

    Raises:
        UnreadableError: at least one is no such message.
    """
    return _read(_handler(name), wire)


def _read(handler: Any, wire: Column) -> Messages:
    try:
        return handler.array_to_record_batch(wire).to_struct_array()
    except BaseException as error:
        # On a length near 2^64 ptars panics, and a panic is a BaseException without a public name.
        if isinstance(error, ValueError) or type(error).__name__ == "PanicException":
            raise UnreadableError from error
        raise


def parse(signal: Signal, request: bytes) -> Message | None:
    """Read one request with protobuf's own parser; None when it is no request of this signal."""
    try:
        return signal.request.FromString(request)
    except DecodeError:
        return None


def rewrite(message: Message) -> bytes:
    """Write a request as protobuf's own writer does, without the fields that it does not know.

    A known field with the wrong wire type is such a field, and ptars cannot read it.
    """
    message.DiscardUnknownFields()
    return message.SerializeToString()


def read_metrics_wire(requests: Column) -> Texts:
    """Return each metric of some requests as it was sent: bytes, in the order of `read`.

    Raises:
        UnreadableError: at least one is no request for metrics.
    """
    lists: Lists = _read(_metrics_wire_handler(), requests).field(0)
    return lists.values.field("scope_metrics").values.field("metrics").values


def only_one_of(message: Messages, members: Sequence[str]) -> Integers:
    """Return which member of a oneof each message has: its position in `members` plus 1, else 0.

    Raises:
        UnreadableError: a message has more than one.
    """
    chosen = np.zeros(len(message), np.int8)
    total = 0
    for position, member in enumerate(members, 1):
        column = message.field(member)
        set_count = len(column) - column.null_count
        if set_count:
            total += set_count
            chosen[column.is_valid().to_numpy(zero_copy_only=False)] = position
    if np.count_nonzero(chosen) != total:
        raise UnreadableError
    return chosen


@cache
def _handler(name: str) -> Any:
    pool, handlers = _handlers((_ARRAY_MEMBERS,))
    return handlers.get_for_message(pool.FindMessageTypeByName(name))


@cache
def _metrics_wire_handler() -> Any:
    pool, handlers = _handlers((_ARRAY_MEMBERS, ("ScopeMetrics", "metrics")))
    name = Signal.METRICS.request.DESCRIPTOR.full_name
    return handlers.get_for_message(pool.FindMessageTypeByName(name))


def _handlers(
    kept_as_bytes: Sequence[tuple[str, str]],
) -> tuple[descriptor_pool.DescriptorPool, HandlerPool]:
    """Make readers for the messages of all signals; attributes and some fields stay bytes."""
    files: dict[str, descriptor_pb2.FileDescriptorProto] = {}
    services = [signal.request.DESCRIPTOR.file for signal in Signal]
    for service in services:
        _copy_file(service, files)
    for file in files.values():
        for message in _with_nested(file.message_type):
            for field in message.field:
                if (message.name, field.name) in kept_as_bytes or field.type_name == _PAIR:
                    field.type = field.TYPE_BYTES
                    field.ClearField("type_name")
    pool = descriptor_pool.DescriptorPool()
    for file in files.values():
        pool.Add(file)
    return pool, HandlerPool([pool.FindFileByName(service.name) for service in services])


def _with_nested(messages: Iterable[Any]) -> Iterator[Any]:
    for message in messages:
        yield message
        yield from _with_nested(message.nested_type)


def _copy_file(file: Any, files: dict[str, descriptor_pb2.FileDescriptorProto]) -> None:
    """Copy a descriptor file and what it imports, dependencies first."""
    for dependency in file.dependencies:
        _copy_file(dependency, files)
    if file.name not in files:
        copy = descriptor_pb2.FileDescriptorProto()
        file.CopyToProto(copy)
        files[file.name] = copy
