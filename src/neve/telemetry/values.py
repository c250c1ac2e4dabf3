"""Attribute values of any kind to text, with the kind beside it."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from neve.telemetry.nested import INFINITY, NAN, NEGATIVE_INFINITY, NestedText
from neve.telemetry.wire import only_one_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from neve.telemetry.arrays import Column, Integers, Mask, Messages, Texts

# The members of AnyValue and what the tables call them. An index into the string table of profiles
# means nothing in these signals; the specification wants it treated as absent.
_KINDS = {
    "string_value": "string",
    "int_value": "int",
    "double_value": "double",
    "bool_value": "bool",
    "array_value": "array",
    "kvlist_value": "map",
    "bytes_value": "bytes",
    "string_value_strindex": None,
}
_MEMBERS = tuple(_KINDS)
_WORDS: Texts = pa.array([None, *_KINDS.values()], pa.string())
_STRING = 1 + _MEMBERS.index("string_value")
_STRINDEX = 1 + _MEMBERS.index("string_value_strindex")


@dataclass(frozen=True)
class Values:
    """A column of attribute values."""

    text: Texts
    """NULL where there is no value."""
    kind: Integers
    duplicate_keys: int
    """How many members of nested maps lost to a later one of the same key."""

    @property
    def is_typed(self) -> Mask:
        """Is this a value, and not a string?"""
        return (self.kind > _STRING) & (self.kind != _STRINDEX)

    def words(self) -> Texts:
        """The kinds by name; NULL where there is no value."""
        return _WORDS.take(pa.array(self.kind))


def decode_values(values: Messages) -> Values:
    """Write each AnyValue as text: strings as they are, others as JSON, bytes as base64."""
    kind = only_one_of(values, _MEMBERS)
    nested = NestedText()
    texts = []
    for member in _MEMBERS[: _STRINDEX - 1]:
        column = values.field(member)
        if column.null_count < len(column):
            texts.append(_text(member, column, nested))
    if not texts:
        text = pa.nulls(len(values), pa.string())
    else:
        text = texts[0] if len(texts) == 1 else pc.coalesce(*texts)
    return Values(text, kind, nested.duplicate_keys)


def _text(member: str, column: Column, nested: NestedText) -> Texts:
    if member == "double_value":
        return _double_text(column)
    if member == "array_value":
        return _each(column.is_valid(), column.field("values"), nested.array)
    if member == "kvlist_value":
        return _each(column.is_valid(), column.field("values"), nested.map)
    if member == "bytes_value":
        return _each(column.is_valid(), column, lambda value: base64.b64encode(value).decode())
    return column.cast(pa.string())


def _double_text(column: Column) -> Texts:
    text = column.cast(pa.string())
    if pc.all(pc.is_finite(column)).as_py():
        return text
    # Arrow's words for these three are not those of protobuf's JSON.
    for arrow_word, word in (("nan", NAN), ("inf", INFINITY), ("-inf", NEGATIVE_INFINITY)):
        text = pc.if_else(pc.equal(text, pa.scalar(arrow_word)), pa.scalar(word), text)
    return text


def _each(is_set: Column, column: Column, convert: Callable[[Any], str]) -> Texts:
    """Convert the few values that are set, one by one."""
    texts = pa.array([convert(value) for value in column.filter(is_set).to_pylist()], pa.string())
    return pc.replace_with_mask(pa.nulls(len(column), pa.string()), is_set, texts)
