"""Protobuf wire format to nested Arrow arrays, with ptars.

ptars reads as protobuf's own parsers do, but for two things. It cannot take a recursive message,
so the members of arrays and maps inside attribute values stay bytes (`values.py` reads them next).
And where a sender sets two members of one `oneof` it keeps both, though the last alone counts;
`only_one_of` notices, and `rewrite` makes the request unambiguous.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.message import DecodeError
from ptars import HandlerPool

from neve.signals import Signal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from neve.telemetry.arrays import Column, Integers, Lists, Messages

# Their `values` are messages that lead back to AnyValue; as bytes they have the same wire type.
RECURSIVE = ("ArrayValue", "KeyValueList")


class UnreadableError(Exception):
    """The requests cannot be read as they are: rewrite them one by one, and try again."""


def read(signal: Signal, requests: Column) -> Lists:
    """The resources of each request, nested as the messages are; unset messages hold defaults.

    Raises:
        UnreadableError: at least one request is no request of this signal.
    """
    return read_messages(signal.request.DESCRIPTOR.full_name, requests).field(0)


def read_messages(name: str, wire: Column) -> Messages:
    """Messages of the type with this full name.

    Raises:
        UnreadableError: at least one is no such message.
    """
    try:
        return _handler(name).array_to_record_batch(wire).to_struct_array()
    except BaseException as error:
        # On a length near 2^64 ptars panics, and a panic is a BaseException without a public name.
        if isinstance(error, ValueError) or type(error).__name__ == "PanicException":
            raise UnreadableError from error
        raise


def rewrite(signal: Signal, request: bytes) -> bytes | None:
    """The same request in protobuf's own words, or None when it is no request of this signal."""
    try:
        message = signal.request.FromString(request)
    except DecodeError:
        return None
    message.DiscardUnknownFields()
    return message.SerializeToString()


def only_one_of(message: Messages, members: Sequence[str]) -> Integers:
    """Which member of a oneof each message has set: its position in `members` plus 1, else 0.

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
    pool, handlers = _handlers()
    return handlers.get_for_message(pool.FindMessageTypeByName(name))


@cache
def _handlers() -> tuple[descriptor_pool.DescriptorPool, HandlerPool]:
    """The messages of all signals, without the recursion."""
    files: dict[str, descriptor_pb2.FileDescriptorProto] = {}
    services = [signal.request.DESCRIPTOR.file for signal in Signal]
    for service in services:
        _collect(service, files)
    for file in files.values():
        for message in file.message_type:
            if message.name in RECURSIVE:
                (values,) = message.field
                values.type = values.TYPE_BYTES
                values.ClearField("type_name")
    pool = descriptor_pool.DescriptorPool()
    for file in files.values():
        pool.Add(file)
    return pool, HandlerPool([pool.FindFileByName(service.name) for service in services])


def _collect(file: Any, files: dict[str, descriptor_pb2.FileDescriptorProto]) -> None:
    """Copy a file and what it imports, dependencies first."""
    for dependency in file.dependencies:
        _collect(dependency, files)
    if file.name not in files:
        copy = descriptor_pb2.FileDescriptorProto()
        file.CopyToProto(copy)
        files[file.name] = copy
