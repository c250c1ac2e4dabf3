"""Names, constants, conditions and arithmetic that mean the same in Spark and in DuckDB."""

from __future__ import annotations

import math
import re
from typing import Any

from sqlglot import exp

from neve.query.comparisons import compared
from neve.query.plain_read import NotPlainError, require_only
from neve.query.sql_types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    INTEGER,
    NUMBERS,
    TIMESTAMPS,
    VARCHAR,
    WHOLE_NUMBERS,
    decimal,
    is_decimal,
    is_floating,
    is_nested,
)
from neve.query.typed import Handler, Handlers, Scope, Typed, combine_names, quote_text

_MAX_INTEGER, _MAX_BIGINT = 2**31 - 1, 2**63 - 1
_INTERVAL_UNITS = ("SECOND", "MINUTE", "HOUR", "DAY")


def _column(node: Any, scope: Scope) -> Typed:
    return scope.column(tuple(part.name for part in node.parts))


def _field(node: Any, scope: Scope) -> Typed:
    return field_of(scope.translate(node.this), node.expression.name)


def field_of(struct: Typed, name: str) -> Typed:
    if struct.type.name == "STRUCT":
        for field, kind in struct.type.fields:
            if field.lower() == name.lower():
                sql = f"struct_extract({struct.sql}, {quote_text(field)})"
                return Typed(sql, kind, f"{struct.name}.{name}")
    raise NotPlainError(f"the field {name} of something that is no struct with such a field")


def literal(node: Any, _: Scope) -> Typed:
    text = node.this
    if node.is_string:
        if "\\" in text:
            raise NotPlainError("a backslash in a text")
        return Typed(quote_text(text), VARCHAR, text)
    if re.fullmatch(r"\d+", text):
        if int(text) > _MAX_BIGINT:
            raise NotPlainError("a number beyond BIGINT")
        return Typed(text, INTEGER if int(text) <= _MAX_INTEGER else BIGINT, text)
    if digits := re.fullmatch(r"(\d{1,15})\.(\d{1,15})", text):
        precision = max(len(digits[1].lstrip("0")) + len(digits[2]), 1)
        return Typed(text, decimal(precision, len(digits[2])), None)
    if re.fullmatch(r"\d+(\.\d+)?[eE][+-]?\d+", text) and math.isfinite(float(text)):
        return Typed(f"CAST({text} AS DOUBLE)", DOUBLE, None)
    raise NotPlainError(f"the number {text}")


def _boolean(node: Any, _: Scope) -> Typed:
    text = "true" if node.this else "false"
    return Typed(text, BOOLEAN, text)


def _paren(node: Any, scope: Scope) -> Typed:
    return scope.translate(node.this)


def _logical(word: str) -> Handler:
    def handle(node: Any, scope: Scope) -> Typed:
        left, right = (condition(side, scope) for side in (node.this, node.expression))
        return Typed(
            f"({left.sql} {word} {right.sql})",
            BOOLEAN,
            combine_names("({} {} {})", left, word, right),
        )

    return handle


def condition(node: exp.Expr, scope: Scope) -> Typed:
    value = scope.translate(node)
    if value.type != BOOLEAN:
        raise NotPlainError("a condition that is no BOOLEAN")
    return value


def _not(node: Any, scope: Scope) -> Typed:
    value = condition(node.this, scope)
    name = combine_names("(NOT {})", value)
    if isinstance(node.this, exp.Is):
        name = combine_names("({} IS NOT NULL)", scope.translate(node.this.this))
    return Typed(f"(NOT {value.sql})", BOOLEAN, name)


def _holds_floats(node: exp.Expr, scope: Scope) -> bool:
    """Tell whether an expression has a stored FLOAT or DOUBLE in it, which may be NaN or -0.0."""
    stored = (exp.Column, exp.Dot, exp.Query)
    return any(
        isinstance(part, stored) and is_floating(scope.translate(part).type)
        for part in node.walk(prune=lambda each: isinstance(each, (*stored, exp.AggFunc)))
    )


def _require_no_floats(scope: Scope, *sides: exp.Expr) -> None:
    """Refuse comparisons of floating-point columns, which match other rows in the other engine.

    NaN is the largest number and equal to itself, and -0.0 equals 0.0. By the statistics of files,
    which leave NaN out and have -0.0 below 0.0, both engines pass over files nevertheless: Spark
    where it looks for `d > 1` and `d = 0`, DuckDB for `d <> 1` and the keys of a join.
    """
    if any(_holds_floats(side, scope) for side in sides):
        raise NotPlainError("a comparison of floating-point numbers, which may be NaN")


def _comparison(word: str, name: str) -> Handler:
    def handle(node: Any, scope: Scope) -> Typed:
        _require_no_floats(scope, node.this, node.expression)
        left, right = compared(scope.translate(node.this), scope.translate(node.expression))
        return Typed(f"({left.sql} {word} {right.sql})", BOOLEAN, combine_names(name, left, right))

    return handle


def _is(node: Any, scope: Scope) -> Typed:
    value = scope.translate(node.this)
    if isinstance(node.expression, exp.Null):
        return Typed(f"({value.sql} IS NULL)", BOOLEAN, combine_names("({} IS NULL)", value))
    raise NotPlainError("IS TRUE, IS FALSE")


def _between(node: Any, scope: Scope) -> Typed:
    _require_no_floats(scope, node.this, node.args["low"], node.args["high"])
    value = scope.translate(node.this)
    at_least, low = compared(value, scope.translate(node.args["low"]))
    at_most, high = compared(value, scope.translate(node.args["high"]))
    sql = f"({at_least.sql} >= {low.sql} AND {at_most.sql} <= {high.sql})"
    return Typed(sql, BOOLEAN, combine_names("between({}, {}, {})", value, low, high))


def _in(node: Any, scope: Scope) -> Typed:
    value = scope.translate(node.this)
    if query := node.args.get("query"):
        sql, columns = scope.subquery(query)
        if len(columns) != 1 or columns[0][1] != value.type or is_nested(value.type):
            raise NotPlainError("IN with a query of another type")
        if not _is_filter(node):
            raise NotPlainError("IN with a query elsewhere than in WHERE")
        if is_floating(value.type):
            raise NotPlainError("IN with a query of floating-point numbers")
        return Typed(f"({value.sql} IN {sql})", BOOLEAN, None)
    _require_no_floats(scope, node.this, *node.expressions)
    items = [compared(value, scope.translate(item)) for item in node.expressions]
    if len({left.sql for left, _ in items}) != 1 or len({item.type for _, item in items}) != 1:
        raise NotPlainError("IN with several types")
    values = [item for _, item in items]
    sql = f"({items[0][0].sql} IN ({', '.join(item.sql for item in values)}))"
    names = ", ".join("{}" for _ in values)
    return Typed(sql, BOOLEAN, combine_names("({} IN (" + names + "))", value, *values))


def _is_filter(node: exp.Expr) -> bool:
    """Tell whether a condition only keeps or drops rows, so that NULL means the same as false.

    Where NULL could be seen, Spark has false in its place for IN with a query.
    """
    parents: tuple[type[exp.Expr], ...] = (exp.And, exp.Or, exp.Paren)
    if isinstance(node.parent, exp.Not):
        node, parents = node.parent, (exp.And, exp.Paren)
    while isinstance(node.parent, parents):
        node = node.parent
    return isinstance(node.parent, (exp.Where, exp.Having))


def _exists(node: Any, scope: Scope) -> Typed:
    sql, _ = scope.subquery(node.this)
    return Typed(f"EXISTS {sql}", BOOLEAN, None)


def _scalar_subquery(node: Any, scope: Scope) -> Typed:
    sql, columns = scope.subquery(node)
    if len(columns) != 1:
        raise NotPlainError("a query of several columns as a value")
    return Typed(sql, columns[0][1], None)


def _like(node: Any, scope: Scope) -> Typed:
    value, pattern = scope.translate(node.this), node.expression
    if value.type != VARCHAR or not (isinstance(pattern, exp.Literal) and pattern.is_string):
        raise NotPlainError("LIKE with a pattern that is no constant")
    shape = literal(pattern, scope)
    word = "NOT LIKE" if node.args.get("negate") else "LIKE"
    name = combine_names("(NOT {} LIKE {})" if "NOT" in word else "{} LIKE {}", value, shape)
    return Typed(f"({value.sql} {word} {shape.sql})", BOOLEAN, name)


def _arithmetic(sign: str) -> Handler:
    def handle(node: Any, scope: Scope) -> Typed:
        if isinstance(node.expression, exp.Interval) and sign in "+-":
            return _shifted(node, sign, scope)
        left, right = scope.translate(node.this), scope.translate(node.expression)
        if left.type not in NUMBERS or right.type not in NUMBERS:
            raise NotPlainError(f"{sign} of other types than INT, BIGINT and DOUBLE")
        wider = NUMBERS[max(NUMBERS.index(left.type), NUMBERS.index(right.type))]
        return Typed(
            f"({left.sql} {sign} {right.sql})",
            wider,
            combine_names("({} {} {})", left, sign, right),
        )

    return handle


def _shifted(node: Any, sign: str, scope: Scope) -> Typed:
    """Shift a time by a constant number of seconds, minutes, hours or days.

    Not a constant time, nor the present by decades: see `time_constant`.
    """
    if not isinstance(node.this, (exp.Column, exp.CurrentTimestamp)):
        raise NotPlainError("an interval added to other than a column or the present")
    value, interval = scope.translate(node.this), node.expression
    require_only(interval, "this", "unit")
    amount, unit = interval.this, interval.unit.name.upper().removesuffix("S")
    whole = isinstance(amount, exp.Literal) and re.fullmatch(r"\d{1,4}", amount.this)
    if value.type not in TIMESTAMPS or unit not in _INTERVAL_UNITS or not whole:
        raise NotPlainError("such an interval")
    return Typed(f"({value.sql} {sign} INTERVAL '{amount.this}' {unit})", value.type, None)


def _negative(node: Any, scope: Scope) -> Typed:
    value = scope.translate(node.this)
    if value.type not in NUMBERS and not is_decimal(value.type):
        raise NotPlainError("the negative of no number")
    name = (
        f"-{value.name}" if isinstance(node.this, exp.Literal) else combine_names("(- {})", value)
    )
    sql, kind = f"(- {value.sql})", value.type
    if isinstance(node.this, exp.Literal) and value.sql == str(_MAX_INTEGER + 1):
        # Without its sign the smallest INT would be a BIGINT.
        sql, kind = f"CAST({sql} AS INTEGER)", INTEGER
    return Typed(sql, kind, name if value.name else None)


def _division(node: Any, scope: Scope) -> Typed:
    left, right = scope.translate(node.this), scope.translate(node.expression)
    if left.type not in NUMBERS or right.type not in NUMBERS:
        raise NotPlainError("/ of other types than INT, BIGINT and DOUBLE")
    divisor = f"CAST({right.sql} AS DOUBLE)"
    if not _is_positive_literal(node.expression):
        # Where Spark raises, DuckDB has infinity.
        divisor = f"(CASE WHEN {divisor} = 0 THEN error('division by zero') ELSE {divisor} END)"
    sql = f"(CAST({left.sql} AS DOUBLE) / {divisor})"
    return Typed(sql, DOUBLE, combine_names("({} / {})", left, right))


def _remainder(node: Any, scope: Scope) -> Typed:
    left, right = scope.translate(node.this), scope.translate(node.expression)
    if not {left.type, right.type} <= {*WHOLE_NUMBERS} or not _is_positive_literal(node.expression):
        raise NotPlainError("% of other than whole numbers by a constant")
    wider = BIGINT if BIGINT in (left.type, right.type) else INTEGER
    return Typed(f"({left.sql} % {right.sql})", wider, combine_names("({} % {})", left, right))


def _is_positive_literal(node: exp.Expr) -> bool:
    return isinstance(node, exp.Literal) and not node.is_string and float(node.this) > 0


def _joined_text(node: Any, scope: Scope) -> Typed:
    left, right = scope.translate(node.this), scope.translate(node.expression)
    if (left.type, right.type) != (VARCHAR, VARCHAR):
        raise NotPlainError("|| of other than texts")
    return Typed(f"({left.sql} || {right.sql})", VARCHAR, None)


_BINARY = ("this", "expression")
OPERATORS: Handlers = {
    exp.Column: (_column, ("this", "table", "db", "catalog")),
    exp.Dot: (_field, _BINARY),
    exp.Literal: (literal, ("this", "is_string")),
    exp.Boolean: (_boolean, ("this",)),
    exp.Paren: (_paren, ("this",)),
    exp.And: (_logical("AND"), _BINARY),
    exp.Or: (_logical("OR"), _BINARY),
    exp.Not: (_not, ("this",)),
    exp.EQ: (_comparison("=", "({} = {})"), _BINARY),
    exp.NEQ: (_comparison("<>", "(NOT ({} = {}))"), _BINARY),
    exp.LT: (_comparison("<", "({} < {})"), _BINARY),
    exp.LTE: (_comparison("<=", "({} <= {})"), _BINARY),
    exp.GT: (_comparison(">", "({} > {})"), _BINARY),
    exp.GTE: (_comparison(">=", "({} >= {})"), _BINARY),
    exp.NullSafeEQ: (_comparison("IS NOT DISTINCT FROM", "({} <=> {})"), _BINARY),
    exp.Is: (_is, _BINARY),
    exp.Between: (_between, ("this", "low", "high")),
    exp.In: (_in, ("this", "expressions", "query")),
    exp.Exists: (_exists, ("this",)),
    exp.Subquery: (_scalar_subquery, ("this",)),
    exp.Like: (_like, ("this", "expression", "negate")),
    exp.Add: (_arithmetic("+"), _BINARY),
    exp.Sub: (_arithmetic("-"), _BINARY),
    exp.Mul: (_arithmetic("*"), _BINARY),
    exp.Div: (_division, (*_BINARY, "typed", "safe")),
    exp.Mod: (_remainder, _BINARY),
    exp.Neg: (_negative, ("this",)),
    exp.DPipe: (_joined_text, (*_BINARY, "safe")),
}
