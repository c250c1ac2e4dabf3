"""Regular expressions for encoded Avro values that are shaped like one seen before.

The entries of a manifest have statistics of the same columns, so one expression steps over all of
them. What tells the shape (which branch of a union, how many items) stands in it literally, so
where it matches, values of these types end there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

# Takes a block and where values begin, and returns where they end.
Skip = Callable[[bytes, int], int]

_NUMBER = re.compile(rb"[\x80-\xff]*[\x00-\x7f]")
# Bytes with their length before them; longer ones have no shape.
_SIZED = re.compile(
    b"(?:%s)" % b"|".join(re.escape(bytes([2 * size])) + b".{%d}" % size for size in range(64)),
    re.DOTALL,
)
_PLAIN = {
    "null": re.compile(b""),
    "boolean": re.compile(b".", re.DOTALL),
    "float": re.compile(b".{4}", re.DOTALL),
    "double": re.compile(b".{8}", re.DOTALL),
    "string": _SIZED,
    "bytes": _SIZED,
}
# Values of so many shapes are stepped over field by field.
_MOST_SHAPES = 4


class _ShapelessError(Exception):
    """A value is encoded in a way that no expression is made for."""


def remember_shapes(types: Sequence[Any], named: Mapping[str, Any], skip: Skip) -> Skip:
    """Return what steps over values as `skip` does, faster where it has seen their shape.

    Args:
        types: of values that follow each other.
        named: the types that the schema defines.
    """
    matches: list[Callable[[bytes, int], re.Match[bytes] | None]] = []
    shapes = 0

    def skip_shape(block: bytes, at: int) -> int:
        nonlocal shapes
        for match in matches:
            values = match(block, at)
            if values:
                return values.end()
        end = skip(block, at)
        if shapes < _MOST_SHAPES:
            shapes += 1
            try:
                pattern, _ = _pattern_of(types, named, block, at)
            except _ShapelessError:
                return end
            matches.append(re.compile(pattern, re.DOTALL).match)
        return end

    return skip_shape


def _pattern_of(
    types: Sequence[Any], named: Mapping[str, Any], block: bytes, at: int
) -> tuple[bytes, int]:
    """Return the pattern of values that follow each other, and where they end."""
    patterns = []
    for type_ in types:
        pattern, at = _pattern(type_, named, block, at)
        patterns.append(pattern)
    return b"".join(patterns), at


def _pattern(type_: Any, named: Mapping[str, Any], block: bytes, at: int) -> tuple[bytes, int]:
    if isinstance(type_, list):
        branch = block[at]
        pattern, end = _pattern(type_[branch >> 1], named, block, at + 1)
        return re.escape(bytes([branch])) + pattern, end
    if isinstance(type_, str) and type_ in named:
        return _pattern(named[type_], named, block, at)
    if isinstance(type_, str):
        plain = _PLAIN.get(type_, _NUMBER)
        value = plain.match(block, at)
        if value is None:
            raise _ShapelessError
        return plain.pattern, value.end()
    kind = type_["type"]
    if kind == "record":
        return _pattern_of([field["type"] for field in type_["fields"]], named, block, at)
    if kind in ("array", "map"):
        items = [type_["items"]] if kind == "array" else ["string", type_["values"]]
        return _items_pattern(items, named, block, at)
    if kind == "fixed":
        return b".{%d}" % type_["size"], at + type_["size"]
    return _pattern("enum" if kind == "enum" else kind, named, block, at)


def _items_pattern(
    items: Sequence[Any], named: Mapping[str, Any], block: bytes, at: int
) -> tuple[bytes, int]:
    """Return the pattern of an array or a map that is one block of items, all of one shape."""
    start, count = at, block[at]
    if count == 0:
        return re.escape(b"\0"), at + 1
    if count % 2 or count >= 0x80:  # a block with its size, or many items
        raise _ShapelessError
    patterns, at = set(), at + 1
    for _ in range(count // 2):
        pattern, at = _pattern_of(items, named, block, at)
        patterns.add(pattern)
    if len(patterns) > 1 or block[at]:
        raise _ShapelessError
    repeated = b"(?:%s){%d}" % (patterns.pop(), count // 2)
    return re.escape(block[start : start + 1]) + repeated + re.escape(b"\0"), at + 1
