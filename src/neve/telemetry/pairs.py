"""Attributes as they were sent to keys, texts and kinds.

Nearly all of them are a key with a string, an integer or a boolean, which `pairs.c` reads in one
pass. The others are read by ptars.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from opentelemetry.proto.common.v1.common_pb2 import KeyValue

from neve.telemetry.pairs_library import OTHER, read_usual_pairs
from neve.telemetry.values import Values, decode_values
from neve.telemetry.wire import read_messages

if TYPE_CHECKING:
    from neve.telemetry.arrays import Column, Texts
    from neve.telemetry.equal_keys import Tally

_KEY_VALUE = KeyValue.DESCRIPTOR.full_name


@dataclass(frozen=True)
class Pairs:
    """Keys, and their values."""

    keys: Texts
    values: Values


def read_pairs(wire: Column, tally: Tally) -> Pairs:
    """Read messages of the type KeyValue.

    Raises:
        UnreadableError: at least one is no such message.
    """
    keys, text, kind, others = read_usual_pairs(wire)
    if not others:
        return Pairs(keys, Values(text, kind))
    if others == len(wire):
        return _read_any(wire, tally)
    is_other = kind == OTHER
    chosen: Column = pa.array(is_other)
    rest = _read_any(wire.filter(chosen), tally)
    kind[is_other] = rest.values.kind
    return Pairs(
        pc.replace_with_mask(keys, chosen, rest.keys),
        Values(pc.replace_with_mask(text, chosen, rest.values.text), kind),
    )


def _read_any(wire: Column, tally: Tally) -> Pairs:
    messages = read_messages(_KEY_VALUE, wire)
    values = decode_values(messages.field("value"), tally)
    return Pairs(messages.field("key"), values)
