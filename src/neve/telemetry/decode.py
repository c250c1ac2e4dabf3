"""OTLP requests to Arrow tables: every field of every record, or a dead letter saying why.

Some requests are read at once. Their rows come as they were sent, what a resource says once for all
its rows (`decode_groups`), or as whole rows in parts of bounded size (`decode`): then the columns
that rows inherit are repeated for one part at a time.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from neve import limits
from neve.signals import Signal
from neve.telemetry.context import Context, Level, microseconds
from neve.telemetry.logs import log_rows
from neve.telemetry.metrics import metric_rows, metrics_without_kind
from neve.telemetry.rows import DeadLetter
from neve.telemetry.traces import span_rows
from neve.telemetry.unknown_kinds import unknown_kinds_in_message, unknown_kinds_on_wire
from neve.telemetry.wire import UnreadableError, parse, read, rewrite

if TYPE_CHECKING:
    from collections.abc import Iterator

    from neve.telemetry.arrays import Column, Integers, Texts
    from neve.telemetry.rows import TableRows

UNREADABLE = "the request is not of this signal"
TOO_LONG = f"the request is longer than {limits.LARGEST_REQUEST_BYTES // limits.MIB} MiB"

_ROWS = MappingProxyType(
    {Signal.LOGS: log_rows, Signal.TRACES: span_rows, Signal.METRICS: metric_rows}
)


@dataclass(frozen=True)
class Decoded:
    """A part of what some requests hold."""

    tables: dict[str, pa.Table]
    """Rows by the name of their table; about `limits.DECODED_PART_BYTES` at most."""
    dead_letters: list[DeadLetter]
    """All of a request come in one part."""
    duplicate_keys: int
    """How many attributes lost to a later one of the same key."""
    row_requests: dict[str, Integers] = field(default_factory=dict)
    """By table, for each row the position of its request among those decoded together."""


@dataclass(frozen=True)
class DecodedGroup:
    """What some requests hold that were read at once."""

    tables: list[TableRows]
    dead_letters: list[DeadLetter]
    duplicate_keys: int
    """As in `Decoded`."""
    first: int
    """The position of the first of these requests among those that the caller gave."""
    requests: int
    """How many they are."""

    def parts(self) -> Iterator[Decoded]:
        """Yield the same with whole rows, in parts of bounded size."""
        for rows in self.tables:
            end = 0
            for part in rows.parts():
                start, end = end, end + len(part)
                row_requests = rows.requests[start:end] + self.first
                yield Decoded({rows.name: part}, [], 0, {rows.name: row_requests})
        if self.dead_letters or self.duplicate_keys:
            yield Decoded({}, self.dead_letters, self.duplicate_keys)


@dataclass(frozen=True)
class _Requests:
    """Requests that are read together, and the columns that their rows take over."""

    signal: Signal
    payloads: Column
    columns: dict[str, Column]
    first: int
    """The position of the first of them among those that the caller gave."""

    def __len__(self) -> int:
        return len(self.payloads)

    def range(self, start: int, end: int) -> _Requests:
        columns = {name: column[start:end] for name, column in self.columns.items()}
        return replace(
            self, payloads=self.payloads[start:end], columns=columns, first=self.first + start
        )


def decode(
    signal: Signal, payloads: Column, received_unix_nano: Column, sender_names: Texts
) -> Iterator[Decoded]:
    """Turn requests (binary), each with its time of arrival and its sender's name, into rows.

    Requests are payloads that `neve.otlp.request.parse` let through; any other bytes harm none but
    themselves. The rows of each table come in the order of their records. One request may give
    many parts; take one after the other, and memory stays bounded.
    """
    for group in decode_groups(signal, payloads, received_unix_nano, sender_names):
        yield from group.parts()


def decode_groups(
    signal: Signal, payloads: Column, received_unix_nano: Column, sender_names: Texts
) -> Iterator[DecodedGroup]:
    """Turn requests into rows as `decode` does, a group of requests at a time."""
    columns = {"received_at": microseconds(received_unix_nano), "sender": sender_names}
    requests = _Requests(signal, payloads, columns, 0)
    for start, end in _groups(payloads):
        yield from _decode_group(requests.range(start, end))


def _groups(payloads: Column) -> Iterator[tuple[int, int]]:
    """Cut requests into groups of about `DECODE_GROUP_BYTES`; a longer one is a group alone."""
    lengths: Column = pc.binary_length(payloads)
    sizes = lengths.to_numpy().astype(np.int64)
    is_long = sizes > limits.DECODE_GROUP_BYTES
    is_first = np.diff(np.cumsum(sizes) // limits.DECODE_GROUP_BYTES, prepend=-1) != 0
    is_first |= is_long
    is_first[1:] |= is_long[:-1]
    return pairwise([*np.flatnonzero(is_first).tolist(), len(payloads)])


def _decode_group(requests: _Requests) -> Iterator[DecodedGroup]:
    if requests.payloads.nbytes > limits.LARGEST_REQUEST_BYTES and len(requests) == 1:
        yield _set_aside(requests, TOO_LONG)
        return
    try:
        group = _read_rows(requests)
    except UnreadableError:
        yield from _decode_rewritten(requests)
    else:
        yield group


def _decode_rewritten(requests: _Requests) -> Iterator[DecodedGroup]:
    """Decode requests of which some are unreadable or ambiguous as they are."""
    letters: list[DeadLetter] = []
    payloads: list[bytes] = []
    for position, request in enumerate(requests.payloads.to_pylist(), requests.first):
        message = parse(requests.signal, request)
        if message is None:
            letters.append(DeadLetter(position, "", UNREADABLE))
            # An empty request in its place lets the others keep their positions.
            payloads.append(b"")
            continue
        if requests.signal is Signal.METRICS:
            letters += unknown_kinds_in_message(position, message)
        payloads.append(rewrite(message))
    try:
        group = _read_rows(replace(requests, payloads=pa.array(payloads, pa.binary())))
    except UnreadableError:
        yield from _decode_halves(requests)
    else:
        yield replace(group, dead_letters=letters + group.dead_letters)


def _decode_halves(requests: _Requests) -> Iterator[DecodedGroup]:
    """Decode requests of which one cannot be read, to find out which."""
    if len(requests) == 1:
        yield _set_aside(requests, UNREADABLE)
        return
    half = len(requests) // 2
    yield from _decode_group(requests.range(0, half))
    yield from _decode_group(requests.range(half, len(requests)))


def _set_aside(requests: _Requests, reason: str) -> DecodedGroup:
    """Return the dead letter of a request of which nothing can be stored."""
    return DecodedGroup([], [DeadLetter(requests.first, "", reason)], 0, requests.first, 1)


def _read_rows(requests: _Requests) -> DecodedGroup:
    """Read requests; return the rows of each table, and what else there is to say.

    Raises:
        UnreadableError: a request cannot be read as it is.
    """
    resources, scopes, records = requests.signal.levels
    resource_lists = read(requests.signal, requests.payloads)
    context = Context(Level(resources, resource_lists), scopes, records, requests.columns)
    letters: list[DeadLetter] = []
    if requests.signal is Signal.METRICS:
        without_kind = metrics_without_kind(context)
        letters += unknown_kinds_on_wire(context, requests.payloads, without_kind)
    tables = _ROWS[requests.signal](context)
    letters += [letter for rows in tables for letter in rows.dead_letters]
    letters = [
        DeadLetter(letter.request + requests.first, letter.path, letter.reason)
        for letter in letters
    ]
    keys = context.tally.duplicate_keys
    return DecodedGroup(tables, letters, keys, requests.first, len(requests))
