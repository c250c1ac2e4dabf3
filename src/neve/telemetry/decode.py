"""OTLP requests to Arrow tables: every field of every record, or a dead letter saying why."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from neve.signals import Signal
from neve.telemetry.context import Context, Nest, micros
from neve.telemetry.logs import log_rows
from neve.telemetry.metrics import metric_rows
from neve.telemetry.repeat import TooWideError
from neve.telemetry.rows import DeadLetter
from neve.telemetry.schemas import SCHEMAS, TABLES_OF
from neve.telemetry.traces import span_rows
from neve.telemetry.wire import UnreadableError, read, rewrite

if TYPE_CHECKING:
    from collections.abc import Iterator

    from neve.telemetry.arrays import Column

UNREADABLE = "the request is not of this signal"
TOO_WIDE = "the request grows beyond memory when it becomes rows"

# Requests are decoded this many bytes at a time: enough to keep the kernels busy, and small enough
# that no column comes near the 2 GiB an Arrow string array can hold.
GROUP_BYTES = 16 << 20
# JSON writes some bytes as six (\u0000): a longer request could pass those 2 GiB.
MAX_REQUEST_BYTES = 256 << 20

_ROWS = MappingProxyType(
    {Signal.LOGS: log_rows, Signal.TRACES: span_rows, Signal.METRICS: metric_rows}
)


@dataclass(frozen=True)
class Decoded:
    """What became of some requests."""

    tables: dict[str, pa.Table]
    """All tables of the signal, also those without rows."""
    dead_letters: list[DeadLetter]
    duplicate_keys: int
    """How many attributes lost to a later one of the same key."""


def decode(signal: Signal, requests: Column, received_unix_nano: Column) -> Decoded:
    """Turn requests (binary), each with the time it was received at (long), into rows.

    Requests are payloads that `neve.otlp.request.parse` let through; any other bytes harm none but
    themselves. Rows keep the order of their records.
    """
    received_at = micros(received_unix_nano)
    decoded = [
        _shifted(_decode_group(signal, requests[start:end], received_at[start:end]), start)
        for start, end in _groups(requests)
    ]
    return _joined(signal, decoded)


def _groups(requests: Column) -> Iterator[tuple[int, int]]:
    lengths: Column = pc.binary_length(requests)
    ends = np.cumsum(lengths.to_numpy(), dtype=np.int64)
    starts = np.flatnonzero(np.diff(ends // GROUP_BYTES, prepend=-1))
    return pairwise([*starts.tolist(), len(requests)])


def _decode_group(signal: Signal, requests: Column, received_at: Column) -> Decoded:
    try:
        return _decode_at_once(signal, requests, received_at)
    except UnreadableError:
        return _decode_rewritten(signal, requests, received_at)
    except TooWideError:
        if len(requests) == 1:
            return _set_aside(signal, TOO_WIDE)
        return _decode_halves(signal, requests, received_at)


def _decode_rewritten(signal: Signal, requests: Column, received_at: Column) -> Decoded:
    """Decode requests of which some are unreadable or ambiguous as they are."""
    rewritten = [rewrite(signal, request) for request in requests.to_pylist()]
    letters = [
        DeadLetter(position, "", UNREADABLE)
        for position, request in enumerate(rewritten)
        if request is None
    ]
    # An empty request stands in for an unreadable one, so that the others keep their positions.
    readable = pa.array([request or b"" for request in rewritten], pa.binary())
    try:
        decoded = _decode_at_once(signal, readable, received_at)
    except (TooWideError, UnreadableError) as error:
        if len(requests) == 1:
            reason = TOO_WIDE if isinstance(error, TooWideError) else UNREADABLE
            return _set_aside(signal, reason)
        return _decode_halves(signal, requests, received_at)
    return replace(decoded, dead_letters=letters + decoded.dead_letters)


def _decode_halves(signal: Signal, requests: Column, received_at: Column) -> Decoded:
    half = len(requests) // 2
    first = _decode_group(signal, requests[:half], received_at[:half])
    second = _decode_group(signal, requests[half:], received_at[half:])
    return _joined(signal, [first, _shifted(second, half)])


def _decode_at_once(signal: Signal, requests: Column, received_at: Column) -> Decoded:
    if requests.nbytes > MAX_REQUEST_BYTES:
        raise TooWideError
    resources, scopes, records = signal.levels
    context = Context(Nest(resources, read(signal, requests)), scopes, records, received_at)
    tables = _ROWS[signal](context)
    return Decoded(
        {rows.name: rows.table for rows in tables},
        [letter for rows in tables for letter in rows.dead_letters],
        context.tally.duplicate_keys,
    )


def _set_aside(signal: Signal, reason: str) -> Decoded:
    """A request of which nothing can be stored."""
    return replace(_joined(signal, []), dead_letters=[DeadLetter(0, "", reason)])


def _shifted(decoded: Decoded, by: int) -> Decoded:
    letters = [replace(letter, request=letter.request + by) for letter in decoded.dead_letters]
    return replace(decoded, dead_letters=letters)


def _joined(signal: Signal, parts: list[Decoded]) -> Decoded:
    return Decoded(
        {
            name: pa.concat_tables(
                [part.tables[name] for part in parts] or [SCHEMAS[name].empty_table()]
            )
            for name in TABLES_OF[signal]
        },
        [letter for part in parts for letter in part.dead_letters],
        sum(part.duplicate_keys for part in parts),
    )
