"""How many requests a task decodes at once, by what they hold and not by what is stored of them.

An empty record takes two bytes in a request and 250 when it is decoded. The receiver has counted
them, and the buffer has its count; but one that is wrong must not cost a task its memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from neve import limits
from neve.otlp.wire_scan import count_messages
from neve.signals import Signal
from neve.telemetry.arrays import Integers
from neve.telemetry.rows import DeadLetter

_MOST_MESSAGES = limits.MAX_RECORDS + limits.MAX_CONTAINERS
TOO_MANY = f"the request has more than {_MOST_MESSAGES:,} records, resources, scopes and metrics"


@dataclass(frozen=True)
class DecodeParts:
    """Requests in parts to decode one after the other, and those of which nothing may be built.

    Args:
        refused: with their positions among all of the requests. No receiver would have stored them.
    """

    parts: Sequence[pa.RecordBatch]
    refused: Sequence[DeadLetter]


def decode_parts(signal: Signal, requests: pa.RecordBatch) -> DecodeParts:
    """Cut requests into parts of about `limits.DECODE_GROUP_RECORDS` records and containers."""
    payloads = requests.column("payload")
    counts = np.array([count_messages(signal, each.as_py()) for each in payloads], np.int64)
    is_kept = counts <= _MOST_MESSAGES
    refused = [DeadLetter(position, "", TOO_MANY) for position in np.flatnonzero(~is_kept).tolist()]
    if refused:
        requests, counts = requests.filter(pa.array(is_kept)), counts[is_kept]
    return DecodeParts(list(_cut(requests, counts)), refused)


def _cut(requests: pa.RecordBatch, counts: Integers) -> Iterator[pa.RecordBatch]:
    numbers = np.cumsum(counts) // limits.DECODE_GROUP_RECORDS
    starts = np.flatnonzero(np.diff(numbers, prepend=-1))
    for start, end in pairwise([*starts.tolist(), len(requests)]):
        yield requests.slice(start, end - start)
