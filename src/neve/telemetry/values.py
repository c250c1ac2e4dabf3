"""Attribute values of any kind to text, with the kind beside it.

Arrays and maps hold values in turn. All values of one depth are decoded together, whatever holds
them, so that the only loop is over the depth, which protobuf limits. Nothing of one depth is kept
but what its text needs: the bytes of what it holds are read into the next depth and released.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from neve.telemetry.equal_keys import last_of_equal_keys, offsets_of
from neve.telemetry.wire import only_one_of, read_messages

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from neve.telemetry.arrays import Column, Field, Integers, Mask, Messages, Texts
    from neve.telemetry.equal_keys import Tally

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
_STRING, _DOUBLE, _BYTES, _STRINDEX = (
    1 + _MEMBERS.index(member)
    for member in ("string_value", "double_value", "bytes_value", "string_value_strindex")
)

_ANY_VALUE = AnyValue.DESCRIPTOR.full_name
_KEY_VALUE = KeyValue.DESCRIPTOR.full_name

# Arrow's words for the numbers JSON does not have, and those of protobuf's JSON mapping.
_SPECIAL_DOUBLES = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
_WHOLE_NUMBER = "^-?[0-9]+$"
# What JSON writes in another way inside quotes.
_ESCAPED = r'["\\\x00-\x1f]'


@cache
def _words() -> Texts:
    # When it is first needed: to make an array of Python's values, Arrow loads pandas.
    return pa.array([None, *_KINDS.values()], pa.string())


@dataclass(frozen=True)
class Values:
    """A column of attribute values."""

    text: Texts
    """NULL where there is no value."""
    kind: Integers

    @property
    def is_typed(self) -> Mask:
        """Is this a value, and not a string?"""
        return (self.kind > _STRING) & (self.kind != _STRINDEX)

    def words(self) -> Texts:
        """Return the kinds by name; NULL where there is no value."""
        return _words().take(pa.array(self.kind))

    def filter(self, is_kept: Mask) -> Values:
        return Values(self.text.filter(pa.array(is_kept)), self.kind[is_kept])


def decode_values(values: Messages, tally: Tally) -> Values:
    """Write each AnyValue as text: strings as they are, others as JSON, bytes as base64.

    Raises:
        UnreadableError: a value inside an array or a map cannot be read.
    """
    depths: list[_Depth] = []
    next_values: Messages | None = values
    del values
    while next_values is not None:
        depth, next_values = _read_depth(next_values, tally)
        depths.append(depth)
    decoded = depths.pop().values
    while depths:
        decoded = depths.pop().with_members(_json(decoded))
    return decoded


@dataclass(frozen=True)
class _Arrays:
    """The arrays of one depth."""

    is_array: Column
    offsets: Column

    def text(self, members: Texts) -> Texts:
        return _placed(_enclosed("[", self.offsets, members, "]"), self.is_array)


@dataclass(frozen=True)
class _Maps:
    """The maps of one depth."""

    is_map: Column
    offsets: Integers
    keys: Texts
    is_kept: Mask

    def text(self, members: Texts) -> Texts:
        pairs: Texts = pc.binary_join_element_wise(_quoted(self.keys), members, ":")
        offsets = self.offsets
        if not self.is_kept.all():
            pairs, offsets = pairs.filter(pa.array(self.is_kept)), offsets_of(self.is_kept, offsets)
        return _placed(_enclosed("{", pa.array(offsets), pairs, "}"), self.is_map)


@dataclass(frozen=True)
class _Depth:
    """The values of one depth; the text of arrays and maps is not known yet."""

    values: Values
    arrays: _Arrays | None
    maps: _Maps | None
    array_members: int
    """The members of arrays are the first of the next depth; those of maps come after."""

    def with_members(self, members: Texts) -> Values:
        """Return the values with the text of arrays and maps, given that of their members."""
        texts = [self.values.text]
        if self.arrays is not None:
            texts.append(self.arrays.text(members[: self.array_members]))
        if self.maps is not None:
            texts.append(self.maps.text(members[self.array_members :]))
        return Values(pc.coalesce(*texts), self.values.kind)


def _read_depth(values: Messages, tally: Tally) -> tuple[_Depth, Messages | None]:
    """Read the values of one depth, and the values that their arrays and maps hold."""
    kind = only_one_of(values, _MEMBERS)
    texts = [
        text_of(values.field(member))
        for member, text_of in _PLAIN_TEXTS.items()
        if _is_used(values.field(member))
    ]
    if not texts:
        text: Texts = pa.nulls(len(values), pa.string())
    else:
        text = texts[0] if len(texts) == 1 else pc.coalesce(*texts)
    next_values: list[Messages] = []
    arrays, maps, array_members = None, None, 0
    if _is_used(values.field("array_value")):
        arrays, members = _read_arrays(values.field("array_value"))
        array_members = len(members)
        next_values.append(members)
    if _is_used(values.field("kvlist_value")):
        maps, members = _read_maps(values.field("kvlist_value"), tally)
        next_values.append(members)
    if not next_values:
        return _Depth(Values(text, kind), None, None, 0), None
    depth = _Depth(Values(_copied(text), kind), arrays, maps, array_members)
    return depth, next_values[0] if len(next_values) == 1 else pa.concat_arrays(next_values)


def _is_used(column: Column) -> bool:
    return column.null_count < len(column)


def _read_arrays(arrays: Field) -> tuple[_Arrays, Messages]:
    is_array = arrays.is_valid()
    lists = arrays.field("values").filter(is_array)
    return _Arrays(is_array, lists.offsets), read_messages(_ANY_VALUE, lists.values)


def _read_maps(maps: Field, tally: Tally) -> tuple[_Maps, Messages]:
    is_map = maps.is_valid()
    lists = maps.field("values").filter(is_map)
    pairs = read_messages(_KEY_VALUE, lists.values)
    keys, offsets = pairs.field("key"), lists.offsets.to_numpy()
    is_kept = last_of_equal_keys(keys, offsets, tally)
    return _Maps(is_map, offsets, _copied(keys), is_kept), pairs.field("value")


def _copied(texts: Texts) -> Texts:
    """Copy texts out of the messages they were read with, all of which they keep in memory."""
    return texts.take(pa.array(np.arange(len(texts))))


def _plain(column: Column) -> Texts:
    return column.cast(pa.string())


def _doubles(column: Column) -> Texts:
    text = column.cast(pa.string())
    if pc.all(pc.is_finite(column)).as_py():
        return text
    for arrow_word, word in _SPECIAL_DOUBLES.items():
        text = pc.if_else(pc.equal(text, pa.scalar(arrow_word)), pa.scalar(word), text)
    return text


def _bytes(column: Column) -> Texts:
    values = column.drop_null().to_pylist()
    texts = pa.array([base64.b64encode(data).decode() for data in values])
    return _placed(texts, column.is_valid())


def _json(values: Values) -> Texts:
    """Return the values as they stand inside JSON."""
    text, kind = values.text, values.kind
    is_quoted = (kind == _STRING) | (kind == _BYTES)
    is_double = kind == _DOUBLE
    if is_double.any():
        is_quoted |= is_double & _mask(pc.is_in(text, pa.array(_SPECIAL_DOUBLES.values())))
        # Nothing stands beside it here to tell it from an integer.
        is_whole = is_double & _mask(pc.match_substring_regex(text, _WHOLE_NUMBER))
        text = pc.if_else(pa.array(is_whole), pc.binary_join_element_wise(text, "0", "."), text)
    if is_quoted.any():
        # The text of arrays and maps may be long, and is not to be quoted.
        strings = pc.if_else(pa.array(is_quoted), text, None)
        text = pc.coalesce(_quoted(strings), text)
    return text.fill_null("null")


def _quoted(texts: Texts) -> Texts:
    quoted: Texts = pc.binary_join_element_wise('"', texts, '"', "")
    is_escaped = _mask(pc.match_substring_regex(texts, _ESCAPED))
    if not is_escaped.any():
        return quoted
    values = texts.filter(pa.array(is_escaped)).to_pylist()
    escaped = pa.array([json.dumps(text, ensure_ascii=False) for text in values])
    return pc.replace_with_mask(quoted, pa.array(is_escaped), escaped)


def _enclosed(opening: str, offsets: Column, members: Texts, closing: str) -> Texts:
    joined: Texts = pc.binary_join(pa.ListArray.from_arrays(offsets, members), ",")
    return pc.binary_join_element_wise(opening, joined, closing, "")


def _placed(texts: Texts, is_set: Column) -> Texts:
    """Put the texts of the values that are set in their places, and NULL elsewhere."""
    if len(texts) == len(is_set):
        return texts
    return pc.replace_with_mask(pa.nulls(len(is_set), pa.string()), is_set, texts)


def _mask(column: Column) -> Mask:
    return column.fill_null(pa.scalar(value=False)).to_numpy(zero_copy_only=False)


_PLAIN_TEXTS: Mapping[str, Callable[[Column], Texts]] = MappingProxyType(
    {
        "string_value": _plain,
        "int_value": _plain,
        "double_value": _doubles,
        "bool_value": _plain,
        "bytes_value": _bytes,
    }
)
