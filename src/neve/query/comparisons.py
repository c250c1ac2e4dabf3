"""Which types may meet in a comparison, a CASE or a COALESCE, and as what."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from neve.query.plain_read import NotPlainError
from neve.query.sql_types import (
    DATE,
    DOUBLE,
    FLOAT,
    MAX_PRECISION,
    NUMBERS,
    TIMESTAMP,
    TIMESTAMPTZ,
    VARCHAR,
    WHOLE_NUMBERS,
    SqlType,
    decimal,
    is_decimal,
    is_nested,
)
from neve.query.typed import Typed

_DATE_TEXT = re.compile(r"'\d{4}-\d\d-\d\d'")
_TIME_TEXT = re.compile(r"'\d{4}-\d\d-\d\d([ T]([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d{1,6})?)?)?'")

_TIME_WITH_OFFSET = re.compile(
    r"'\d{4}-\d\d-\d\d[ T]([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?(Z|[+-](0\d|1[0-4]):[0-5]\d)'"
)


def compared(left: Typed, right: Typed) -> tuple[Typed, Typed]:
    """Return both sides of a comparison as they meet in both engines.

    Raises:
        NotPlainError: the engines would cast them in different ways, or not at all.
    """
    if left.type == right.type and not is_nested(left.type):
        return left, right
    if left.type in NUMBERS and right.type in NUMBERS:
        return left, right
    kinds = {left.type, right.type}
    if kinds <= {FLOAT, DOUBLE} or _are_number_and_decimal(left.type, right.type):
        return _as_double(left), _as_double(right)
    if _are_exact(left.type, right.type):
        return left, right
    if VARCHAR in kinds and kinds & {DATE, TIMESTAMP, TIMESTAMPTZ}:
        if left.type == VARCHAR:
            return time_constant(left, right.type), right
        return left, time_constant(right, left.type)
    raise NotPlainError(f"{left.type.name} compared with {right.type.name}")


def common_type(values: Sequence[Typed]) -> tuple[SqlType, list[Typed]]:
    """Return the one type of several values: all have it, or all are numbers.

    Raises:
        NotPlainError: they have types that the engines would unite in different ways.
    """
    kinds = {value.type for value in values}
    if len(kinds) == 1:
        return values[0].type, list(values)
    if kinds <= set(NUMBERS):
        wider = NUMBERS[max(NUMBERS.index(kind) for kind in kinds)]
        return wider, [replace(value, sql=f"CAST({value.sql} AS {wider.name})") for value in values]
    raise NotPlainError("values of several types as one")


def _are_number_and_decimal(left: SqlType, right: SqlType) -> bool:
    """Tell whether a FLOAT or DOUBLE meets a decimal that has as many digits in a DOUBLE."""
    pairs = ((left, right), (right, left))
    return any(
        one in (FLOAT, DOUBLE) and is_decimal(other) and other.numbers[0] <= 15
        for one, other in pairs
    )


def _are_exact(left: SqlType, right: SqlType) -> bool:
    """Tell whether both are whole numbers or decimals that fit into one decimal."""
    if not (is_decimal(left) or is_decimal(right)):
        return False
    exact = [decimal(20, 0) if kind in WHOLE_NUMBERS else kind for kind in (left, right)]
    if not all(is_decimal(kind) for kind in exact):
        return False
    scale = max(kind.numbers[1] for kind in exact)
    whole_digits = max(kind.numbers[0] - kind.numbers[1] for kind in exact)
    return whole_digits + scale <= MAX_PRECISION


def _as_double(value: Typed) -> Typed:
    return replace(value, sql=f"CAST({value.sql} AS DOUBLE)", type=DOUBLE)


def time_constant(text: Typed, kind: SqlType) -> Typed:
    """Read a constant text as a date or time; only spellings that both engines read alike.

    Not before 1970: DuckDB 1.5 rounds such a time towards 1970 when it looks for the partition by
    year, month, day or hour that has it, and misses the rows.
    """
    has_offset = _TIME_WITH_OFFSET.fullmatch(text.sql) is not None
    if text.sql < ("'1970-01-02" if has_offset else "'1970"):
        raise NotPlainError("a time before 1970")
    if kind == TIMESTAMPTZ and has_offset:
        return replace(text, sql=f"TIMESTAMPTZ {text.sql}", type=kind)
    if kind == DATE and _DATE_TEXT.fullmatch(text.sql):
        return replace(text, sql=f"DATE {text.sql}", type=DATE)
    if kind in (TIMESTAMP, TIMESTAMPTZ) and _TIME_TEXT.fullmatch(text.sql):
        time = f"TIMESTAMP {text.sql}"
        sql = f"timezone('UTC', {time})" if kind == TIMESTAMPTZ else time
        return replace(text, sql=sql, type=kind)
    raise NotPlainError("a text as a time that is not written as 2026-01-31 12:00:00")
