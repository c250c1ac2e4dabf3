"""Attribute values of any kind to text, with the kind beside it.

Arrays and maps hold values in turn. Those of one depth are decoded together, so that the only loop
is over the depth, which protobuf limits.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from neve.telemetry.equal_keys import last_of_equal_keys, offsets_of
from neve.telemetry.wire import only_one_of, read_messages

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from neve.telemetry.arrays import Column, Integers, Mask, Messages, Texts
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
_WORDS: Texts = pa.array([None, *_KINDS.values()], pa.string())
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
        """The kinds by name; NULL where there is no value."""
        return _WORDS.take(pa.array(self.kind))


def decode_values(values: Messages, tally: Tally) -> Values:
    """Write each AnyValue as text: strings as they are, others as JSON, bytes as base64."""
    kind = only_one_of(values, _MEMBERS)
    texts = [
        text_of(values.field(member), tally)
        for member, text_of in _TEXTS.items()
        if values.field(member).null_count < len(values)
    ]
    if not texts:
        return Values(pa.nulls(len(values), pa.string()), kind)
    return Values(texts[0] if len(texts) == 1 else pc.coalesce(*texts), kind)


def _plain(column: Column, _: Tally) -> Texts:
    return column.cast(pa.string())


def _doubles(column: Column, _: Tally) -> Texts:
    text = column.cast(pa.string())
    if pc.all(pc.is_finite(column)).as_py():
        return text
    for arrow_word, word in _SPECIAL_DOUBLES.items():
        text = pc.if_else(pc.equal(text, pa.scalar(arrow_word)), pa.scalar(word), text)
    return text


def _bytes(column: Column, _: Tally) -> Texts:
    few = column.drop_null().to_pylist()
    return _scattered(pa.array([base64.b64encode(data).decode() for data in few]), column)


def _arrays(column: Column, tally: Tally) -> Texts:
    lists = column.field("values").filter(column.is_valid())
    members = _json(decode_values(read_messages(_ANY_VALUE, lists.values), tally))
    return _scattered(_enclosed("[", lists.offsets, members, "]"), column)


def _maps(column: Column, tally: Tally) -> Texts:
    lists = column.field("values").filter(column.is_valid())
    pairs = read_messages(_KEY_VALUE, lists.values)
    keys, offsets = pairs.field("key"), lists.offsets.to_numpy()
    values = _json(decode_values(pairs.field("value"), tally))
    members: Texts = pc.binary_join_element_wise(_quoted(keys), values, ":")
    kept = last_of_equal_keys(keys, offsets, tally)
    if not kept.all():
        members, offsets = members.filter(pa.array(kept)), offsets_of(kept, offsets)
    return _scattered(_enclosed("{", pa.array(offsets), members, "}"), column)


def _json(values: Values) -> Texts:
    """The values as they stand inside JSON."""
    text, kind = values.text, values.kind
    is_quoted = (kind == _STRING) | (kind == _BYTES)
    is_double = kind == _DOUBLE
    if is_double.any():
        is_quoted |= is_double & _mask(pc.is_in(text, pa.array(_SPECIAL_DOUBLES.values())))
        # Nothing stands beside it here to tell it from an integer.
        is_whole = is_double & _mask(pc.match_substring_regex(text, _WHOLE_NUMBER))
        text = pc.if_else(pa.array(is_whole), pc.binary_join_element_wise(text, "0", "."), text)
    return pc.if_else(pa.array(is_quoted), _quoted(text), text).fill_null("null")


def _quoted(texts: Texts) -> Texts:
    quoted: Texts = pc.binary_join_element_wise('"', texts, '"', "")
    is_escaped = _mask(pc.match_substring_regex(texts, _ESCAPED))
    if not is_escaped.any():
        return quoted
    few = texts.filter(pa.array(is_escaped)).to_pylist()
    escaped = pa.array([json.dumps(text, ensure_ascii=False) for text in few])
    return pc.replace_with_mask(quoted, pa.array(is_escaped), escaped)


def _enclosed(opening: str, offsets: Column, members: Texts, closing: str) -> Texts:
    joined: Texts = pc.binary_join(pa.ListArray.from_arrays(offsets, members), ",")
    return pc.binary_join_element_wise(opening, joined, closing, "")


def _scattered(texts: Texts, column: Column) -> Texts:
    """Put the texts of the values that are set where these stand, and NULL elsewhere."""
    return pc.replace_with_mask(pa.nulls(len(column), pa.string()), column.is_valid(), texts)


def _mask(column: Column) -> Mask:
    return column.fill_null(pa.scalar(value=False)).to_numpy(zero_copy_only=False)


_TEXTS: Mapping[str, Callable[[Column, Tally], Texts]] = MappingProxyType(
    {
        "string_value": _plain,
        "int_value": _plain,
        "double_value": _doubles,
        "bool_value": _plain,
        "array_value": _arrays,
        "kvlist_value": _maps,
        "bytes_value": _bytes,
    }
)
