"""GROUP BY, ORDER BY and LIMIT that mean the same in Spark and in DuckDB."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from neve.query.plain_read import NotPlainError, require_only
from neve.query.sql_types import SqlType, is_floating, is_nested
from neve.query.typed import Typed

if TYPE_CHECKING:
    from neve.query.selects import SelectScope

# The columns of a result, by the names that Spark gives them.
Outputs = list[tuple[str, Typed]]


def group_keys(group: Any, select: Any, outputs: Outputs, scope: SelectScope) -> list[str]:
    require_only(group, "expressions", "all")
    if group.args.get("all"):
        if len(outputs) != len(select.expressions):
            raise NotPlainError("GROUP BY ALL with a star")
        pairs = zip(select.expressions, outputs, strict=True)
        keys = [value for node, (_, value) in pairs if not node.find(exp.AggFunc)]
    else:
        named = replace(scope, first="tables")
        keys = [
            outputs[_ordinal(key, outputs)][1] if _is_ordinal(key) else named.translate(key)
            for key in group.expressions
        ]
    if not keys:
        raise NotPlainError("GROUP BY nothing")
    require_groupable([key.type for key in keys])
    if any(key.sql.isdecimal() for key in keys):
        raise NotPlainError("GROUP BY a number, which would be a position")
    return [key.sql for key in keys]


def require_groupable(kinds: Iterable[SqlType]) -> None:
    for kind in kinds:
        if is_nested(kind):
            raise NotPlainError("a group of structs, lists or maps")
        # Spark writes a group of -0.0 and 0.0 as 0.0, DuckDB as the first that it met.
        if is_floating(kind):
            raise NotPlainError("a group of floating-point numbers")


def _is_ordinal(node: Any) -> bool:
    return isinstance(node, exp.Literal) and not node.is_string


def _ordinal(node: Any, outputs: Outputs) -> int:
    if not re.fullmatch(r"\d{1,4}", node.this) or not 1 <= int(node.this) <= len(outputs):
        raise NotPlainError(f"the position {node.this}")
    return int(node.this) - 1


def order_and_limit(query: Any, outputs: Outputs, scope: SelectScope | None) -> str:
    sql = ""
    if order := query.args.get("order"):
        require_only(order, "expressions")
        sql += f" ORDER BY {', '.join(_ordered(key, outputs, scope) for key in order.expressions)}"
    for word, clause in (("LIMIT", "limit"), ("OFFSET", "offset")):
        if node := query.args.get(clause):
            require_only(node, "expression")
            count = node.expression
            if not (_is_ordinal(count) and re.fullmatch(r"\d{1,18}", count.this)):
                raise NotPlainError(f"{word} with other than a number")
            sql += f" {word} {count.this}"
    return sql


def _ordered(key: Any, outputs: Outputs, scope: SelectScope | None) -> str:
    require_only(key, "this", "desc", "nulls_first")
    node = key.this
    names = [name.lower() for name, _ in outputs]
    if _is_ordinal(node):
        position = _ordinal(node, outputs)
        sql, value = str(position + 1), outputs[position][1]
    elif isinstance(node, exp.Column) and not node.table and node.name.lower() in names:
        if names.count(node.name.lower()) > 1:
            raise NotPlainError(f"ORDER BY {node.name}, which is in the result twice")
        position = names.index(node.name.lower())
        sql, value = str(position + 1), outputs[position][1]
    elif scope is None:
        raise NotPlainError("ORDER BY other than a column of the result")
    else:
        value = replace(scope, first="result").translate(node)
        sql = value.sql
    if is_nested(value.type):
        raise NotPlainError("ORDER BY a struct, a list or a map")
    if is_floating(value.type):
        if scope is None:
            raise NotPlainError("ORDER BY a floating-point number of such a result")
        # DuckDB takes the column that it sorts by from its keys, where -0.0 is 0.0, and leaves out
        # files by statistics that have no NaN. Of an expression it does neither.
        sql = f"(CASE WHEN {value.sql} = 0 THEN 0 ELSE {value.sql} END)"
    direction = "DESC" if key.args.get("desc") else "ASC"
    return f"{sql} {direction} NULLS {'FIRST' if key.args.get('nulls_first') else 'LAST'}"
