"""The shape of a mirror, and how its columns are named, cast and ordered in Spark."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from neve.merge.drift import Drift
from neve.merge.spec import MergeSpec

_TEXT = (T.StringType, T.BinaryType)


@dataclass(frozen=True)
class Shape:
    """The mirror's columns and which of them decide."""

    keys: tuple[str, ...]
    sequence: tuple[str, ...]
    # All columns of the mirror with their types, in order.
    columns: T.StructType
    # Columns in which the unchanged marker may stand, if there is one.
    marked: tuple[str, ...] = ()
    marker: str | None = None
    # Of what was dropped in the changelog: its name while it is read, and the mirror's column.
    dropped: tuple[tuple[str, str], ...] = ()
    # Columns of the mirror that the changelog lacks now. Of two events of one sequence, one that
    # was written after the drop would say NULL there, which is no difference; a value is one.
    missing: frozenset[str] = frozenset()

    @property
    def compared(self) -> list[T.StructField]:
        """The columns by which rows of one key and sequence are told apart, whatever they hold."""
        return [field for field in self.columns if field.name not in self.missing]

    @property
    def decisive(self) -> tuple[str, ...]:
        """Key and sequence columns, each once: a column may be both."""
        return tuple(dict.fromkeys((*self.keys, *self.sequence)))

    @property
    def others(self) -> list[str]:
        return [name for name in self.columns.names if name not in self.decisive]


def shape_of(spec: MergeSpec, columns: T.StructType, drift: Drift) -> Shape:
    decided = {*spec.keys, *spec.sequence}
    marked: tuple[str, ...] = ()
    if spec.unchanged_marker is not None:
        marked = tuple(
            field.name
            for field in columns
            if field.name not in decided and can_have_marker(field.dataType)
        )
    return Shape(
        spec.keys,
        spec.sequence,
        columns,
        marked,
        spec.unchanged_marker,
        tuple((each.read_as, each.column.name) for each in drift.dropped),
        frozenset(columns.names).difference(drift.mirrored),
    )


def can_have_marker(kind: T.DataType) -> bool:
    """Tell whether a source can send the unchanged marker in a column of this type."""
    if isinstance(kind, T.ArrayType):
        return isinstance(kind.elementType, (*_TEXT, T.IntegerType, T.LongType))
    if isinstance(kind, T.MapType):
        return isinstance(kind.keyType, T.StringType) and isinstance(kind.valueType, T.StringType)
    return isinstance(kind, _TEXT)


def is_marker(name: str, shape: Shape) -> Column:
    """Tell whether a column has the unchanged marker, in any of the forms that Debezium gives it.

    Text and JSON are the marker itself, an hstore maps it to itself. An array has it as its only
    element, of UUIDs as the UUID made of it; an array of integers has its bytes.
    """
    column, kind = F.col(quoted(name)), shape.columns[name].dataType
    marker = shape.marker or ""
    if isinstance(kind, T.MapType):
        value = F.element_at(column, marker)
        return F.coalesce((F.size(column) == 1) & (value == marker), F.lit(False))
    if not isinstance(kind, T.ArrayType):
        return column.eqNullSafe(F.lit(marker).cast(kind))
    if isinstance(kind.elementType, _TEXT):
        digest = hashlib.md5(marker.encode(), usedforsecurity=False).digest()
        texts = [[marker], [str(uuid.UUID(bytes=digest, version=3))]]
        forms = [F.array(*map(F.lit, text)).cast(kind) for text in texts]
    else:
        numbers = memoryview(marker.encode()).cast("b").tolist()
        forms = [F.array(*map(F.lit, numbers)).cast(kind)]
    return reduce(or_, (column.eqNullSafe(form) for form in forms))


def sequence_of(shape: Shape) -> Column:
    """Return an event's sequence as one value, with the mirror's types."""
    return F.struct(
        *(
            F.col(quoted(name)).cast(shape.columns[name].dataType).alias(name)
            for name in shape.sequence
        )
    )


def barrier_column(barrier: Sequence[str] | None, shape: Shape) -> Column | None:
    """Write a barrier's parts, which are text, as a value to compare sequences with."""
    if barrier is None:
        return None
    parts = []
    for text, name in zip(barrier, shape.sequence, strict=True):
        kind = shape.columns[name].dataType
        part = F.unhex(F.lit(text)) if is_binary(kind) else F.lit(text).cast(kind)
        parts.append(part.alias(name))
    return F.struct(*parts)


def as_text(part: Column, shape: Shape, name: str) -> Column:
    """Write a part of a sequence as the text that `barrier_column` reads."""
    return F.hex(part) if is_binary(shape.columns[name].dataType) else part.cast("string")


def is_binary(kind: T.DataType) -> bool:
    return isinstance(kind, T.BinaryType)


def aligned(column: Column, present: T.DataType, wanted: T.DataType) -> Column:
    """Cast a column, and structs inside it field by field, by name."""
    if present == wanted:
        return column
    if isinstance(present, T.StructType) and isinstance(wanted, T.StructType):
        have = {field.name: field.dataType for field in present}
        fields = [
            aligned(column[field.name], have[field.name], field.dataType).alias(field.name)
            if field.name in have
            else F.lit(None).cast(field.dataType).alias(field.name)
            for field in wanted
        ]
        return F.when(column.isNotNull(), F.struct(*fields))
    if isinstance(present, T.ArrayType) and isinstance(wanted, T.ArrayType):
        inner, outer = present.elementType, wanted.elementType
        return F.transform(column, lambda item: aligned(item, inner, outer))
    if isinstance(present, T.MapType) and isinstance(wanted, T.MapType):
        old, new = present.valueType, wanted.valueType
        return F.transform_values(column, lambda _, item: aligned(item, old, new))
    return column.cast(wanted)


def column_as(name: str, kind: T.DataType, present: T.StructType) -> Column:
    """Return a frame's column with another type; NULL where the frame has no such column."""
    if name not in present.names:
        return F.lit(None).cast(kind)
    return aligned(F.col(quoted(name)), present[name].dataType, kind)


def quoted(name: str) -> str:
    """Write a column's name so that Spark takes it whole."""
    return "`" + name.replace("`", "``") + "`"


def orderable(field: T.StructField) -> Column:
    # Maps and variants have no order of their own; their JSON has.
    column = F.col(quoted(field.name))
    return column if _has_order(field.dataType) else F.to_json(F.struct(column))


def _has_order(kind: T.DataType) -> bool:
    if isinstance(kind, T.StructType):
        return all(_has_order(field.dataType) for field in kind)
    if isinstance(kind, T.ArrayType):
        return _has_order(kind.elementType)
    return not isinstance(kind, (T.MapType, T.VariantType))
