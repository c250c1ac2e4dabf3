"""Events that were set aside, written as text and read back as rows of the changelog.

An event comes back only as what it was. Spark writes it as JSON, which has no text of its own for
every value of every type: so an event is taken if writing it once more gives the same JSON, and
stays where it is otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

from neve.merge import columns as cols
from neve.merge.drift import IncompatibleColumn
from neve.merge.shape import quoted
from neve.merge.transforms import EVENT_JSON, classified, name_before

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from neve.merge.spec import MergeSpec

_STORED, _ROW = "_neve_stored", "_neve_row"


@dataclass(frozen=True)
class RejectedEvents:
    """What a snapshot of `<mirror>_rejected` holds, by what becomes of it now."""

    # Events that can be taken, classified.
    accepted: DataFrame
    # Rows of the table whose events still cannot be.
    remaining: DataFrame


def parse_rejected(
    stored: DataFrame,
    changes: T.StructType,
    spec: MergeSpec,
    incompatible: Sequence[IncompatibleColumn],
) -> RejectedEvents:
    """Read events that were set aside as rows of the changelog as it is now.

    Args:
        stored: rows of `<mirror>_rejected`.
        changes: the columns of the changelog, and of where an event stands in it.
    """
    place = {cols.FILE, cols.POSITION}
    columns = [field for field in changes if field.name not in place]
    # In an event, a column that the changelog has dropped has the name that it had.
    names = {field.name: name_before(field.name, changes.names) for field in columns}
    readable = T.StructType(
        [
            T.StructField(names[field.name], field.dataType)
            for field in columns
            if _has_json(field.dataType)
        ]
    )

    def value(field: T.StructField) -> Column:
        name = names[field.name]
        stored_value = F.col(f"{_ROW}.{quoted(name)}") if name in readable.names else F.lit(None)
        return stored_value.cast(field.dataType).alias(field.name)

    parsed = stored.select(
        F.struct("*").alias(_STORED), F.from_json("event", readable, EVENT_JSON).alias(_ROW)
    )
    before, now = F.col(f"{_STORED}.event"), F.to_json(_ROW, EVENT_JSON)
    # The order of columns does not matter: some may have been dropped, or moved, since.
    is_same = (before == now) | (_in_order(before) == _in_order(now))
    events = parsed.select(
        *(value(field) for field in columns),
        F.col(f"{_STORED}.changelog_file").alias(cols.FILE),
        F.col(f"{_STORED}.changelog_position").alias(cols.POSITION),
        F.coalesce(is_same, F.lit(False)).alias(_ROW),
        _STORED,
    )
    known = classified(events, spec, incompatible)
    is_accepted = F.col(_ROW) & F.col(cols.REASON).isNull()
    return RejectedEvents(
        known.where(is_accepted).drop(_ROW, _STORED),
        known.where(~is_accepted).select(f"{_STORED}.*"),
    )


def _in_order(event: Column) -> Column:
    """Return JSON with its keys in order; NULL if it is too large for that."""
    return F.to_json(F.try_parse_json(event))


def _has_json(kind: T.DataType) -> bool:
    """Tell whether Spark reads the JSON of a type; it reads no maps but those by strings."""
    if isinstance(kind, T.StructType):
        return all(_has_json(field.dataType) for field in kind)
    if isinstance(kind, T.ArrayType):
        return _has_json(kind.elementType)
    if isinstance(kind, T.MapType):
        return isinstance(kind.keyType, T.StringType) and _has_json(kind.valueType)
    return not isinstance(kind, T.VariantType)
