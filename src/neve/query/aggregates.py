"""Aggregates that mean the same in Spark and in DuckDB."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from neve.query.operators import condition
from neve.query.plain_read import NotPlainError, require_only
from neve.query.sql_types import (
    BIGINT,
    DOUBLE,
    FLOAT,
    MAX_PRECISION,
    NUMBERS,
    WHOLE_NUMBERS,
    decimal,
    is_decimal,
    is_floating,
    is_nested,
)
from neve.query.typed import Handler, Handlers, Scope, Typed, combine_names


def _count(node: Any, scope: Scope) -> Typed:
    counted = node.this
    if isinstance(counted, exp.Star):
        require_only(counted)
        return Typed("count(*)", BIGINT, "count(1)")
    distinct = isinstance(counted, exp.Distinct)
    if distinct:
        require_only(counted, "expressions")
        if len(counted.expressions) != 1:
            raise NotPlainError("count of several columns")
        counted = counted.expressions[0]
    value = scope.translate(counted)
    if distinct and is_nested(value.type):
        raise NotPlainError("count of different structs, lists or maps")
    word = "DISTINCT " if distinct else ""
    return Typed(f"count({word}{value.sql})", BIGINT, combine_names(f"count({word}{{}})", value))


def _count_if(node: Any, scope: Scope) -> Typed:
    value = condition(node.this, scope)
    # DuckDB's count_if of no rows is NULL.
    sql = f"count(CASE WHEN {value.sql} THEN 1 END)"
    return Typed(sql, BIGINT, combine_names("count_if({})", value))


def _sum(node: Any, scope: Scope) -> Typed:
    value = scope.translate(node.this)
    name = combine_names("sum({})", value)
    if value.type in WHOLE_NUMBERS:
        # DuckDB adds up in 128 bits; Spark raises when 64 are not enough, and so does this cast.
        return Typed(f"CAST(sum({value.sql}) AS BIGINT)", BIGINT, name)
    if value.type in (FLOAT, DOUBLE):
        return Typed(f"sum(CAST({value.sql} AS DOUBLE))", DOUBLE, name)
    if is_decimal(value.type):
        precision, scale = value.type.numbers
        kind = decimal(min(precision + 10, MAX_PRECISION), scale)
        return Typed(f"CAST(sum({value.sql}) AS DECIMAL{kind.numbers})", kind, name)
    raise NotPlainError("sum of no numbers")


def _average(node: Any, scope: Scope) -> Typed:
    value = scope.translate(node.this)
    if value.type not in (*NUMBERS, FLOAT):
        raise NotPlainError("avg of other types than INT, BIGINT, FLOAT and DOUBLE")
    return Typed(f"avg(CAST({value.sql} AS DOUBLE))", DOUBLE, combine_names("avg({})", value))


def _extreme(function: str) -> Handler:
    def handle(node: Any, scope: Scope) -> Typed:
        value = scope.translate(node.this)
        if is_nested(value.type):
            raise NotPlainError(f"{function} of structs, lists or maps")
        if is_floating(value.type):
            raise NotPlainError(f"{function} of floating-point numbers, which may be NaN")
        return Typed(
            f"{function}({value.sql})", value.type, combine_names(f"{function}({{}})", value)
        )

    return handle


def _filtered(node: Any, scope: Scope) -> Typed:
    if not isinstance(node.this, (exp.Count, exp.Min, exp.Max)):
        raise NotPlainError("FILTER of other than count, min and max")
    value, where = scope.translate(node.this), condition(node.expression.this, scope)
    return Typed(
        f"{value.sql} FILTER (WHERE {where.sql})",
        value.type,
        combine_names("{} FILTER (WHERE {})", value, where),
    )


AGGREGATES: Handlers = {
    exp.Count: (_count, ("this", "big_int")),
    exp.CountIf: (_count_if, ("this",)),
    exp.Sum: (_sum, ("this",)),
    exp.Avg: (_average, ("this",)),
    exp.Min: (_extreme("min"), ("this",)),
    exp.Max: (_extreme("max"), ("this",)),
    exp.Filter: (_filtered, ("this", "expression")),
}
