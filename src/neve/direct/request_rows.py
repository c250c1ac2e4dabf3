"""The rows of an OTLP request, and what of it no table can hold."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from neve.otlp.request import check
from neve.telemetry.decode import decode
from neve.telemetry.promote import Promotion, promote

if TYPE_CHECKING:
    from collections.abc import Sequence

    from neve.signals import Signal


@dataclass
class RequestRows:
    """What some requests of one signal hold, decoded."""

    tables: dict[str, list[pa.Table]] = field(default_factory=dict)
    rejected: int = 0
    reasons: list[str] = field(default_factory=list)

    def rows(self, table: str) -> pa.Table:
        return pa.concat_tables(self.tables[table])


def decode_request(
    signal: Signal,
    body: bytes,
    promotions: Sequence[Promotion],
    *,
    received_unix_nano: int,
    sender: str,
    json: bool,
) -> RequestRows:
    """Check and decode an uncompressed request.

    Raises:
        MalformedError, TooLargeError: it is refused as a whole.
    """
    checked = check(signal, body, json=json)
    decoded = RequestRows()
    if checked.warning:
        decoded.reasons.append(checked.warning)
    parts = decode(
        signal,
        pa.array([checked.payload], pa.binary()),
        pa.array([received_unix_nano], pa.int64()),
        pa.array([sender or None], pa.string()),
    )
    for part in parts:
        decoded.rejected += len(part.dead_letters)
        decoded.reasons += [f"{letter.path}: {letter.reason}" for letter in part.dead_letters]
        for name, rows in part.tables.items():
            decoded.tables.setdefault(name, []).append(promote(rows, promotions).rows)
    return decoded
