"""Check rows that a caller made against the table they are for, before anything is written."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from neve.errors import UsageError
from neve.lake.table_columns import with_table_columns
from neve.telemetry.promote import promote
from neve.telemetry.schemas import ATTRIBUTES, types_column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from neve.telemetry.promote import Promotion

_EPOCH = date(1970, 1, 1)
_DAY_MICROS = 86_400_000_000


def checked_rows(table: str, rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows with the types of a table's columns. Raises UsageError.

    Args:
        schema: the columns that the table takes.
    """
    names: list[str] = rows.column_names
    unknown = sorted({name for name in names if name not in schema.names})
    if unknown:
        raise UsageError(
            f"{table} has no column {', '.join(unknown)}",
            hint="leave it out, promote the attribute (telemetry.promote), or add it to the table",
        )
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(f"rows for {table} have more than one column {', '.join(twice)}")
    lacking = [each.name for each in schema if not each.nullable and each.name not in names]
    if lacking:
        raise UsageError(f"rows for {table} lack {', '.join(lacking)}, which may not be NULL")
    columns = [_checked_column(table, rows.select([name]), schema.field(name)) for name in names]
    return pa.Table.from_arrays(columns, schema=pa.schema([schema.field(name) for name in names]))


def _checked_column(table: str, rows: pa.Table, wanted: pa.Field) -> pa.ChunkedArray:
    given = rows.schema.field(0).type
    said = f"column {wanted.name} of {table} is {wanted.type}"
    if not _fits(given, wanted.type):
        raise UsageError(f"{said}, and its rows have {given}", hint=_hint(given, wanted.type))
    try:
        column = with_table_columns(rows, pa.schema([wanted])).column(0)
        # Text that is no UTF-8, among others: readers would fail on it.
        column.validate(full=True)
    except pa.ArrowException as error:
        reason = str(error).partition("\n")[0]
        raise UsageError(f"{said}, which cannot hold a value of its rows: {reason}") from error
    if not wanted.nullable and column.null_count:
        raise UsageError(f"{said} and may not be NULL, and is so in {column.null_count} rows")
    if kinds.is_timestamp(wanted.type) and not _is_in_calendar(column):
        raise UsageError(f"{said}, and its rows have times before the year 1 or after 9999")
    return column


def _is_in_calendar(times: pa.ChunkedArray) -> bool:
    """Tell whether the day of each time has a date, for the name of its partition."""
    micros = pc.min_max(times.cast(pa.timestamp("us")).cast(pa.int64())).as_py()
    first, last = (_EPOCH.toordinal() + (each or 0) // _DAY_MICROS for each in micros.values())
    return date.min.toordinal() <= first and last <= date.max.toordinal()


def _hint(given: pa.DataType, wanted: pa.DataType) -> str | None:
    if kinds.is_timestamp(given) and kinds.is_timestamp(wanted):
        return "say which zone it is: column.cast(pa.timestamp('us', 'UTC'))"
    return None


def _fits(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Tell whether values of a type can mean the same in another: not whether each fits."""
    if kinds.is_dictionary(given):
        given = given.value_type
    if given == wanted or kinds.is_null(given):
        return True
    if kinds.is_timestamp(given) and kinds.is_timestamp(wanted):
        return (given.tz is None) == (wanted.tz is None)
    if kinds.is_map(given) and kinds.is_map(wanted):
        return _fits(given.key_type, wanted.key_type) and _fits(given.item_type, wanted.item_type)
    if _is_list(given) and _is_list(wanted):
        return _fits(given.value_type, wanted.value_type)
    if kinds.is_struct(given) and kinds.is_struct(wanted):
        return [field.name for field in given] == [field.name for field in wanted] and all(
            _fits(mine.type, other.type) for mine, other in zip(given, wanted, strict=True)
        )
    if kinds.is_integer(given):
        return bool(kinds.is_integer(wanted) or kinds.is_floating(wanted))
    return any(
        is_kind(given) and is_kind(wanted) for is_kind in (_is_text, _is_binary, kinds.is_floating)
    )


def _is_text(kind: pa.DataType) -> bool:
    return bool(kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_string_view(kind))


def _is_binary(kind: pa.DataType) -> bool:
    return bool(kinds.is_binary(kind) or kinds.is_large_binary(kind) or kinds.is_binary_view(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(kinds.is_list(kind) or kinds.is_large_list(kind))


def with_promoted(rows: pa.Table, promotions: Sequence[Promotion]) -> pa.Table:
    """Fill the promoted columns that checked rows lack, if they have the maps to fill them from."""
    names: list[str] = rows.column_names
    lacking = [
        promotion
        for promotion in promotions
        if promotion.column not in names
        and {promotion.attributes, types_column(promotion.attributes)} <= set(names)
    ]
    maps = {promotion.attributes for promotion in lacking}
    for name in sorted(maps | {types_column(each) for each in maps}):
        rows = rows.set_column(names.index(name), name, rows[name].cast(ATTRIBUTES))
    return promote(rows, lacking).rows
