"""Promote attributes to typed columns; the maps keep them too.

A value fits when its text in the map reads as the type: the integer 200 and the string "200" are
both the int 200. A string column takes every value, as the map writes it. What does not fit is NULL
in the column, and counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from neve.telemetry.schemas import types_column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from neve.config import Settings
    from neve.telemetry.arrays import Column, Texts

ATTRIBUTES_OF = MappingProxyType(
    {"record": "attributes", "resource": "resource_attributes", "scope": "scope_attributes"}
)
TYPES = MappingProxyType(
    {"string": pa.string(), "int": pa.int64(), "double": pa.float64(), "bool": pa.bool_()}
)

# Decimals of 38 digits hold every text that could be a long, and tell which of them is one.
_WHOLE_NUMBER, _DIGITS = "^-?[0-9]{1,38}$", pa.decimal128(38, 0)
_LEAST_LONG, _GREATEST_LONG = -(2**63), 2**63 - 1
_NUMBER = r"^-?([0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?|Infinity)$|^NaN$"


@dataclass(frozen=True)
class Promotion:
    """One attribute and the column it becomes."""

    attribute: str
    source: str
    type: str
    column: str

    @property
    def attributes(self) -> str:
        """The map that has the attribute."""
        return ATTRIBUTES_OF[self.source]


@dataclass(frozen=True)
class Promoted:
    """Rows with their promoted columns."""

    rows: pa.Table
    unfit_values: int
    """How many values did not fit their column, and are in the map only."""


def promotions_of(settings: Settings) -> tuple[Promotion, ...]:
    """Return what a configuration promotes."""
    return tuple(
        Promotion(entry.attribute, entry.source, entry.type, entry.column_name)
        for entry in settings.telemetry.promote
    )


def with_promoted_fields(schema: pa.Schema, promotions: Sequence[Promotion]) -> pa.Schema:
    """Return a table's schema with the promoted columns at its end."""
    for promotion in promotions:
        schema = schema.append(pa.field(promotion.column, TYPES[promotion.type]))
    return schema


def promote(rows: pa.Table, promotions: Sequence[Promotion]) -> Promoted:
    """Give rows their promoted columns; the maps stay as they are."""
    unfit = 0
    for promotion in promotions:
        text = _look_up(rows[promotion.attributes], promotion.attribute)
        kind = _look_up(rows[types_column(promotion.attributes)], promotion.attribute)
        values = _READ[promotion.type](text, kind)
        unfit += values.null_count - text.null_count
        rows = rows.append_column(pa.field(promotion.column, TYPES[promotion.type]), values)
    return Promoted(rows, unfit)


def _look_up(maps: Column, key: str) -> Texts:
    return pc.map_lookup(maps, pa.scalar(key), "last")


def _as_strings(text: Texts, kind: Texts) -> Column:
    del kind
    return text


def _as_longs(text: Texts, kind: Texts) -> Column:
    numbers: Column = _reading_as(_WHOLE_NUMBER, text, kind).cast(_DIGITS)
    least, greatest = (pa.scalar(bound).cast(_DIGITS) for bound in (_LEAST_LONG, _GREATEST_LONG))
    fits = pc.and_(pc.greater_equal(numbers, least), pc.less_equal(numbers, greatest))
    return pc.if_else(fits, numbers, None).cast(pa.int64())


def _as_doubles(text: Texts, kind: Texts) -> Column:
    numbers: Column = _reading_as(_NUMBER, text, kind).cast(pa.float64())
    overflows = pc.and_not(pc.is_inf(numbers), pc.ends_with(text, "Infinity"))
    return pc.if_else(overflows, None, numbers)


def _as_booleans(text: Texts, kind: Texts) -> Column:
    return pc.equal(_reading_as("^(true|false)$", text, kind), "true")


def _reading_as(pattern: str, text: Texts, kind: Texts) -> Texts:
    """Return the texts that match, and NULL for the others."""
    # Bytes are written as base64, which may look like anything.
    is_bytes = pc.fill_null(pc.equal(kind, "bytes"), pa.scalar(value=False))
    fits = pc.and_not(pc.match_substring_regex(text, pattern), is_bytes)
    return pc.if_else(fits, text, None)


_READ = MappingProxyType(
    {"string": _as_strings, "int": _as_longs, "double": _as_doubles, "bool": _as_booleans}
)
