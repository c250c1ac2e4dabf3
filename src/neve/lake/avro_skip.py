"""Where the values of encoded Avro fields end, and the plain ones decoded.

fastavro takes 30 microseconds to step over the statistics of a manifest entry, and this 8: numbers
that follow each other are stepped over by one regular expression.
https://avro.apache.org/docs/1.12.0/specification/#binary-encoding
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from neve.lake.avro_shapes import Skip, remember_shapes

# Takes a block and where a value begins, and returns it and where it ends.
Decode = Callable[[bytes, int], tuple[Any, int]]

_NUMBERS = ("int", "long", "enum")
_SIZED = ("string", "bytes")
_FIXED = {"null": 0, "boolean": 1, "float": 4, "double": 8}


def read_long(block: bytes, at: int) -> tuple[int, int]:
    """Decode a number."""
    number = shift = 0
    while True:
        byte = block[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
        shift += 7


def read_bytes(block: bytes, at: int) -> tuple[bytes, int]:
    size, at = read_long(block, at)
    return block[at : at + size], at + size


def read_string(block: bytes, at: int) -> tuple[str, int]:
    size, at = read_long(block, at)
    return block[at : at + size].decode(), at + size


def make_decode(type_: Any) -> Decode | None:
    """Return what decodes a plain value, or one that may be null; None for other types."""
    plain: dict[str, Decode] = {
        "int": read_long,
        "long": read_long,
        "bytes": read_bytes,
        "string": read_string,
    }
    if isinstance(type_, str):
        return plain.get(type_)
    if isinstance(type_, list) and len(type_) == 2 and type_[0] == "null":
        inner = make_decode(type_[1])
        return inner and _nullable(inner)
    return None


def _nullable(inner: Decode) -> Decode:
    def decode(block: bytes, at: int) -> tuple[Any, int]:
        return inner(block, at + 1) if block[at] else (None, at + 1)

    return decode


def make_skip(types: Sequence[Any], named: dict[str, Any]) -> Skip:
    """Return what steps over values of these types that follow each other.

    Args:
        named: the types that a schema has defined so far; it grows by those defined here.
    """
    flat = _flat(types, named)
    skip = _skip_all(flat, named)
    is_plain = all(isinstance(kind, str) for kind in flat)
    return skip if is_plain else remember_shapes(flat, named, skip)


def _skip_all(flat: Sequence[Any], named: dict[str, Any]) -> Skip:
    steps: list[Skip] = []
    numbers = 0
    for kind in flat:
        if kind in _NUMBERS:
            numbers += 1
            continue
        if numbers:
            steps.append(_skip_numbers(numbers))
            numbers = 0
        steps.append(_skip_one(kind, named))
    if numbers:
        steps.append(_skip_numbers(numbers))
    if len(steps) == 1:
        return steps[0]

    def skip(block: bytes, at: int) -> int:
        for step in steps:
            at = step(block, at)
        return at

    return skip


def _flat(types: Sequence[Any], named: dict[str, Any]) -> list[Any]:
    """Return the types without records: a record is encoded as its fields."""
    flat: list[Any] = []
    for each in types:
        type_ = named.get(each, each) if isinstance(each, str) else each
        if isinstance(type_, dict):
            if "name" in type_:
                named[type_["name"]] = type_
            kind = type_["type"]
            if kind == "record":
                flat += _flat([field["type"] for field in type_["fields"]], named)
                continue
            if not (kind in ("array", "map", "fixed") and isinstance(kind, str)):
                flat += ["enum"] if kind == "enum" else _flat([kind], named)
                continue
        flat.append(type_)
    return flat


def _skip_one(type_: Any, named: dict[str, Any]) -> Skip:
    if isinstance(type_, list):
        return _skip_union([_skip_all(_flat([branch], named), named) for branch in type_])
    if isinstance(type_, dict):
        if type_["type"] == "fixed":
            return _skip_fixed(type_["size"])
        items = [type_["items"]] if type_["type"] == "array" else ["string", type_["values"]]
        flat = _flat(items, named)
        return _skip_items(flat, _skip_all(flat, named))
    if type_ in _SIZED:
        return _skip_sized
    return _skip_fixed(_FIXED[type_])


@lru_cache(maxsize=1024)
def _numbers(count: int) -> re.Pattern[bytes]:
    return re.compile(rb"(?:[\x80-\xff]*[\x00-\x7f]){%d}" % count)


def _skip_numbers(count: int) -> Skip:
    match = _numbers(count).match

    def skip(block: bytes, at: int) -> int:
        numbers = match(block, at)
        if numbers is None:
            raise EOFError
        return numbers.end()

    return skip


def _skip_sized(block: bytes, at: int) -> int:
    size, at = read_long(block, at)
    return at + size


def _skip_fixed(size: int) -> Skip:
    return lambda _block, at: at + size


def _skip_union(branches: Sequence[Skip]) -> Skip:
    def skip(block: bytes, at: int) -> int:
        # A union of more than 64 types has no place in a manifest.
        return branches[block[at] >> 1](block, at + 1)

    return skip


def _skip_items(types: Sequence[Any], skip_item: Skip) -> Skip:
    """Return what steps over an array or a map, which are blocks of items."""
    numbers = len(types) if all(kind in _NUMBERS for kind in types) else 0
    pairs = list(types) in (["int", "bytes"], ["int", "string"])

    def skip(block: bytes, at: int) -> int:
        while True:
            count, at = read_long(block, at)
            if count == 0:
                return at
            if count < 0:
                size, at = read_long(block, at)
                at += size
            elif numbers:
                at = _skip_numbers(numbers * count)(block, at)
            elif pairs:
                at = _skip_pairs(block, at, count)
            else:
                for _ in range(count):
                    at = skip_item(block, at)

    return skip


def _skip_pairs(block: bytes, at: int, count: int) -> int:
    """Step over numbers with bytes each: the bounds of columns."""
    for _ in range(count):
        while block[at] >= 0x80:
            at += 1
        size = block[at + 1]
        if size < 0x80:
            at += 2 + (size >> 1)
        else:
            at = _skip_sized(block, at + 1)
    return at
