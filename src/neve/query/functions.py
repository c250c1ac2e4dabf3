"""Functions and casts that mean the same in Spark and in DuckDB."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlglot import exp

from neve.query.comparisons import common_type, time_constant
from neve.query.operators import condition, literal
from neve.query.plain_read import NotPlainError, require_only
from neve.query.sql_types import (
    BIGINT,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    TIMESTAMP,
    TIMESTAMPS,
    TIMESTAMPTZ,
    VARCHAR,
    SqlType,
)
from neve.query.typed import Handler, Handlers, Scope, Typed, combine_names

_TRUNCATED_TO = ("SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR")
_CAST_TYPES = {
    exp.DataType.Type.INT: INTEGER,
    exp.DataType.Type.BIGINT: BIGINT,
    exp.DataType.Type.DOUBLE: DOUBLE,
    exp.DataType.Type.VARCHAR: VARCHAR,
    exp.DataType.Type.TEXT: VARCHAR,
    exp.DataType.Type.DATE: DATE,
    exp.DataType.Type.TIMESTAMPTZ: TIMESTAMPTZ,
    exp.DataType.Type.TIMESTAMPNTZ: TIMESTAMP,
}
# Not from DOUBLE to whole numbers (Spark cuts, DuckDB rounds) or text (1.0E10 or 10000000000.0).
_CASTS = frozenset(
    {
        (INTEGER, BIGINT),
        (BIGINT, INTEGER),
        (INTEGER, DOUBLE),
        (BIGINT, DOUBLE),
        (FLOAT, DOUBLE),
        (INTEGER, VARCHAR),
        (BIGINT, VARCHAR),
        (DATE, VARCHAR),
        (TIMESTAMPTZ, DATE),
        (TIMESTAMP, DATE),
    }
)


def _case(node: Any, scope: Scope) -> Typed:
    conditions = [condition(branch.this, scope) for branch in node.args["ifs"]]
    values = [scope.translate(branch.args["true"]) for branch in node.args["ifs"]]
    default = node.args.get("default")
    fallback = [] if default is None or isinstance(default, exp.Null) else [default]
    values += [scope.translate(value) for value in fallback]
    kind, values = common_type(values)
    branches = " ".join(
        f"WHEN {condition.sql} THEN {value.sql}"
        for condition, value in zip(conditions, values, strict=False)
    )
    otherwise = f" ELSE {values[-1].sql}" if fallback else ""
    pattern = "CASE" + " WHEN {} THEN {}" * len(conditions) + (" ELSE {}" if fallback else "")
    pairs = [part for pair in zip(conditions, values, strict=False) for part in pair]
    name = combine_names(pattern + " END", *pairs, *(values[-1:] if fallback else []))
    return Typed(f"(CASE {branches}{otherwise} END)", kind, name)


def _if(node: Any, scope: Scope) -> Typed:
    test = condition(node.this, scope)
    kind, values = common_type([scope.translate(node.args[key]) for key in ("true", "false")])
    sql = f"(CASE WHEN {test.sql} THEN {values[0].sql} ELSE {values[1].sql} END)"
    return Typed(sql, kind, combine_names("(IF({}, {}, {}))", test, *values))


def _coalesce(node: Any, scope: Scope) -> Typed:
    items = [scope.translate(item) for item in (node.this, *node.expressions)]
    kind, items = common_type(items)
    # Whether it was written as coalesce, nvl or ifnull, which name the column, the tree forgot.
    return Typed(f"coalesce({', '.join(item.sql for item in items)})", kind, None)


def _cast(node: Any, scope: Scope) -> Typed:
    value, to = scope.translate(node.this), _CAST_TYPES.get(node.to.this)
    require_only(node.to, "this")
    if to is None:
        raise NotPlainError(f"CAST to {node.to.sql('spark')}")
    constant = isinstance(node.this, exp.Literal) and node.this.is_string
    if constant and to in (DATE, *TIMESTAMPS):
        return replace(time_constant(value, to), name=None)
    if (value.type, to) not in _CASTS and value.type != to:
        raise NotPlainError(f"CAST from {value.type.name} to {to.name}")
    source = value.sql
    if value.type == TIMESTAMPTZ:
        # Through ICU's calendar, dates before 1582 would be Julian.
        source = f"timezone('UTC', {source})"
    name = combine_names(f"CAST({{}} AS {node.to.sql('spark')})", value)
    sql = f"CAST({source} AS {to.name})"
    if (value.type, to) == (DATE, VARCHAR):
        # Spark writes years of five digits with a sign.
        sql = f"(CASE WHEN {source} > DATE '9999-12-31' THEN '+' ELSE '' END || {sql})"
    return Typed(sql, to, name)


def _truncated(node: Any, scope: Scope) -> Typed:
    value, unit = scope.translate(node.this), node.args["unit"].name.upper()
    if value.type != TIMESTAMPTZ or unit not in _TRUNCATED_TO:
        raise NotPlainError("date_trunc of another type or to such a unit")
    sql = f"timezone('UTC', date_trunc('{unit}', timezone('UTC', {value.sql})))"
    # Spark's name has the unit as it was written; the tree has it in capitals.
    return Typed(sql, TIMESTAMPTZ, None)


def _date_part(function: str) -> Handler:
    def handle(node: Any, scope: Scope) -> Typed:
        inner = node.this.this if isinstance(node.this, exp.TsOrDsToDate) else node.this
        value = scope.translate(inner)
        if value.type not in (TIMESTAMPTZ, TIMESTAMP):
            raise NotPlainError(f"{function} of another type")
        time = f"timezone('UTC', {value.sql})" if value.type == TIMESTAMPTZ else value.sql
        name = combine_names(f"{function}({{}})", value)
        return Typed(f"CAST({function}({time}) AS INTEGER)", INTEGER, name)

    return handle


def _constant(sql: str, kind: SqlType, name: str) -> Handler:
    return lambda _, __: Typed(sql, kind, name)


def _map_value(node: Any, scope: Scope) -> Typed:
    value, keys = scope.translate(node.this), node.expressions
    fields = dict(value.type.fields)
    text = len(keys) == 1 and isinstance(keys[0], exp.Literal) and keys[0].is_string
    if value.type.name != "MAP" or fields["key"] != VARCHAR or not text:
        raise NotPlainError("[ ] of other than a map with a constant text as its key")
    key = literal(keys[0], scope)
    return Typed(f"{value.sql}[{key.sql}]", fields["value"], combine_names("{}[{}]", value, key))


def _length(node: Any, scope: Scope) -> Typed:
    value = scope.translate(node.this)
    if value.type != VARCHAR:
        raise NotPlainError("length of other than text")
    return Typed(f"CAST(length({value.sql}) AS INTEGER)", INTEGER, None)


FUNCTIONS: Handlers = {
    exp.Case: (_case, ("ifs", "default")),
    exp.If: (_if, ("this", "true", "false")),
    exp.Coalesce: (_coalesce, ("this", "expressions")),
    exp.Cast: (_cast, ("this", "to")),
    exp.TimestampTrunc: (_truncated, ("this", "unit")),
    exp.Year: (_date_part("year"), ("this",)),
    exp.Month: (_date_part("month"), ("this",)),
    exp.Day: (_date_part("day"), ("this",)),
    exp.Hour: (_date_part("hour"), ("this",)),
    exp.Minute: (_date_part("minute"), ("this",)),
    exp.CurrentTimestamp: (_constant("now()", TIMESTAMPTZ, "current_timestamp()"), ()),
    exp.CurrentDate: (
        _constant("CAST(timezone('UTC', now()) AS DATE)", DATE, "current_date()"),
        (),
    ),
    exp.Bracket: (_map_value, ("this", "expressions")),
    exp.Length: (_length, ("this",)),
}
