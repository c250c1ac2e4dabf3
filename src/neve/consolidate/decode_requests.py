"""Decode requests part after part, and account for each of their records.

How many requests are decoded at once depends on what they hold, and not on what is stored of them:
an empty record takes two bytes in a request and 250 when it is decoded. The receiver has counted
them, and the buffer has its count; but one that is wrong must not cost a task its memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from neve import limits
from neve.otlp.wire_scan import count_messages
from neve.signals import Signal
from neve.telemetry.decode import decode_groups
from neve.telemetry.rows import DeadLetter
from neve.telemetry.schemas import TABLES_OF

if TYPE_CHECKING:
    from neve.telemetry.arrays import Integers, Mask
    from neve.telemetry.decode import DecodedGroup
    from neve.telemetry.rows import TableRows

_MOST_MESSAGES = limits.MAX_RECORDS + limits.MAX_CONTAINERS
TOO_MANY = f"the request has more than {_MOST_MESSAGES:,} records, resources, scopes and metrics"
NOT_ALL_READ = "not every record of the request could be read"
TOO_MANY_UNFIT = (
    f"more than {limits.MAX_UNFIT_RECORDS:,} records of the request fit no table; the first of them"
)


@dataclass(frozen=True)
class CountedRequests:
    """Requests, and what they hold as counted on the wire, before anything is decoded."""

    signal: Signal
    requests: pa.RecordBatch
    messages: Integers
    """For each request: its records, resources, scopes and metrics."""
    records: Integers
    """For each request a row, for each table of the signal a column: the records meant for it."""

    @classmethod
    def of(cls, signal: Signal, requests: pa.RecordBatch) -> CountedRequests:
        counts = [count_messages(signal, each.as_py()) for each in requests.column("payload")]
        records = np.array([each.records for each in counts], np.int64)
        return cls(
            signal,
            requests,
            np.array([each.messages for each in counts], np.int64),
            records.reshape(len(counts), len(TABLES_OF[signal])),
        )

    def __len__(self) -> int:
        return len(self.messages)

    def records_of(self, table: str) -> Integers:
        """Return for each request how many records are meant for a table."""
        column: Integers = self.records[:, TABLES_OF[self.signal].index(table)]
        return column

    def only(self, wanted: Mask) -> CountedRequests:
        """Return some of the requests, in their order."""
        if wanted.all():
            return self
        chosen = self.requests.filter(pa.array(wanted))
        return CountedRequests(self.signal, chosen, self.messages[wanted], self.records[wanted])

    def parts(self) -> Iterator[CountedRequests]:
        """Cut them into parts of about `limits.DECODE_GROUP_RECORDS` records and containers."""
        numbers = np.cumsum(self.messages) // limits.DECODE_GROUP_RECORDS
        starts = np.flatnonzero(np.diff(numbers, prepend=-1))
        for start, end in pairwise([*starts.tolist(), len(self)]):
            yield CountedRequests(
                self.signal,
                self.requests.slice(start, end - start),
                self.messages[start:end],
                self.records[start:end],
            )


@dataclass(frozen=True)
class DecodedRequests:
    """Rows of some requests, and the records that no table can hold."""

    tables: Sequence[TableRows]
    letters: Sequence[DeadLetter]
    """With the positions of their requests among all that were given."""
    requests: pa.RecordBatch
    """Those that the letters' positions count."""
    dead_letters: Integers
    """For each table of the signal, how many records became no row."""
    duplicate_keys: int


def decode_requests(counted: CountedRequests) -> Iterator[DecodedRequests]:
    """Decode requests part after part; each record becomes a row or a dead letter.

    A request that gives not as many rows and dead letters as it has records on the wire becomes a
    dead letter as a whole, and so does one with very many dead letters.
    """
    is_small = counted.messages <= _MOST_MESSAGES
    refused = [DeadLetter(row, "", TOO_MANY) for row in np.flatnonzero(~is_small).tolist()]
    if refused:
        lost = counted.records[~is_small].sum(axis=0)
        yield DecodedRequests([], refused, counted.requests, lost, 0)
    for part in counted.only(is_small).parts():
        requests = part.requests
        for group in decode_groups(
            part.signal,
            requests.column("payload"),
            requests.column("received_unix_nano"),
            requests.column("sender_name"),
        ):
            yield _balanced(part, group)


def _balanced(part: CountedRequests, group: DecodedGroup) -> DecodedRequests:
    """Set whole requests aside whose records are not all there."""
    expected = part.records[group.first : group.first + group.requests]
    is_whole = np.zeros(group.requests, np.bool_)
    is_whole[[each.request - group.first for each in group.dead_letters if not each.path]] = True
    rows = np.zeros_like(expected)
    letters = np.zeros_like(expected)
    tables = {table.name: table for table in group.tables}
    for column, name in enumerate(TABLES_OF[part.signal]):
        if name in tables:
            owners = [each.request for each in tables[name].dead_letters]
            letters[:, column] = np.bincount(owners, minlength=group.requests)
            rows[:, column] = np.bincount(tables[name].requests, minlength=group.requests)
    is_odd = ~is_whole & (rows + letters != expected).any(axis=1)
    reasons = dict.fromkeys((np.flatnonzero(is_odd) + group.first).tolist(), NOT_ALL_READ)
    reasons |= _with_many(group)
    dead_letters = list(group.dead_letters)
    kept = group.tables
    if reasons:
        is_odd[np.array(list(reasons)) - group.first] = True
        dead_letters = [each for each in dead_letters if each.request not in reasons]
        dead_letters += [DeadLetter(each, "", reason) for each, reason in sorted(reasons.items())]
        kept = [table.only(~is_odd[table.requests]) for table in group.tables]
        rows[is_odd] = 0
    lost = (expected - rows).sum(axis=0)
    return DecodedRequests(kept, dead_letters, part.requests, lost, group.duplicate_keys)


def _with_many(group: DecodedGroup) -> dict[int, str]:
    """Return the requests with too many dead letters, each with a reason for all of it.

    A dead letter names each of its records. A sender could write gigabytes with a few bytes, and
    push the dead letters of others out.
    """
    found: dict[int, str] = {}
    times = Counter(each.request for each in group.dead_letters)
    for each in group.dead_letters:
        if times[each.request] > limits.MAX_UNFIT_RECORDS and each.request not in found:
            found[each.request] = f"{TOO_MANY_UNFIT}, {each.path}: {each.reason}"
    return found
