"""Bounds of columns as manifests have them: Iceberg's encoding of single values. Pure.

https://iceberg.apache.org/spec/#binary-single-value-serialization
"""

from __future__ import annotations

import struct
from typing import Any

_FORMATS = {
    "int": "<i",
    "date": "<i",
    "long": "<q",
    "time": "<q",
    "timestamp": "<q",
    "timestamptz": "<q",
    "timestamp_ns": "<q",
    "timestamptz_ns": "<q",
    "float": "<f",
    "double": "<d",
}
# A column that was widened keeps the short bounds of its old files.
_SHORT = {"<q": "<i", "<d": "<f"}
# Their bytes stand in the order of their values.
_ORDERED_AS_BYTES = ("string", "uuid", "binary")
MICROSECONDS_OF = {
    "timestamp": 1,
    "timestamptz": 1,
    "timestamp_ns": 1000,
    "timestamptz_ns": 1000,
}


def decode_bound(type_: Any, value: bytes | None) -> Any:
    """Return a bound as something that can be compared; None: it cannot, or there is none."""
    if value is None or not isinstance(type_, str):
        return None
    if type_ in _ORDERED_AS_BYTES or type_.startswith("fixed"):
        return value
    layout = _FORMATS.get(type_)
    if layout is None:
        return None
    if len(value) != struct.calcsize(layout):
        layout = _SHORT.get(layout, layout)
    try:
        (decoded,) = struct.unpack(layout, value)
    except struct.error:
        return None
    return decoded


def decode_microseconds(type_: Any, value: bytes | None) -> int | None:
    """Return a bound of a time column in microseconds since 1970."""
    decoded = decode_bound(type_, value)
    if decoded is None or type_ not in MICROSECONDS_OF:
        return None
    return int(decoded) // MICROSECONDS_OF[type_]
