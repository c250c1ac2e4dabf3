"""All parts that the decoder gives, put together."""

from __future__ import annotations

import pyarrow as pa

from neve.telemetry.decode import Decoded, decode
from neve.telemetry.schemas import SCHEMAS, TABLES_OF


def decode_whole(signal, payloads, received_unix_nano, sender_names=None) -> Decoded:
    """Decode requests; return all tables of the signal, also those without rows."""
    names = [None] * len(payloads) if sender_names is None else sender_names
    parts = list(
        decode(
            signal,
            pa.array(payloads, pa.binary()),
            pa.array(received_unix_nano, pa.int64()),
            pa.array(names, pa.string()),
        )
    )
    return Decoded(
        {
            name: pa.concat_tables(
                [SCHEMAS[name].empty_table()]
                + [part.tables[name] for part in parts if name in part.tables]
            )
            for name in TABLES_OF[signal]
        },
        [letter for part in parts for letter in part.dead_letters],
        sum(part.duplicate_keys for part in parts),
    )
