"""Whole queries that mean the same in Spark and in DuckDB: SELECT, joins, WITH, UNION, subqueries.

Every column is written with its relation, stars are written out, and ORDER BY says where NULLs
go, so that nothing is left to DuckDB's own rules for names and order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from sqlglot import exp

from neve.query.aggregates import AGGREGATES
from neve.query.clauses import Outputs, group_keys, order_and_limit, require_groupable
from neve.query.functions import FUNCTIONS
from neve.query.operators import OPERATORS, condition, field_of
from neve.query.plain_read import NotPlainError, require_only
from neve.query.sql_types import arrow_type
from neve.query.typed import Columns, Typed, quote_name

_NODES = {**OPERATORS, **FUNCTIONS, **AGGREGATES}
_SELECT = (
    *("expressions", "from_", "joins", "where", "group", "having", "order", "limit", "offset"),
    *("distinct", "with_"),
)
_JOINS = {
    ("", ""): "JOIN",
    ("", "INNER"): "JOIN",
    ("", "CROSS"): "CROSS JOIN",
    ("LEFT", ""): "LEFT JOIN",
    ("LEFT", "OUTER"): "LEFT JOIN",
    ("RIGHT", ""): "RIGHT JOIN",
    ("RIGHT", "OUTER"): "RIGHT JOIN",
    ("FULL", ""): "FULL JOIN",
    ("FULL", "OUTER"): "FULL JOIN",
}
_SET_OPERATIONS = {exp.Union: "UNION", exp.Except: "EXCEPT", exp.Intersect: "INTERSECT"}


@dataclass(frozen=True)
class Relation:
    """A table, a subquery or a CTE in FROM: what it is called and what columns it has."""

    name: str
    columns: Columns


@dataclass(frozen=True)
class Translated:
    """A query in DuckDB's SQL, with the columns that Spark's answer has."""

    sql: str
    columns: Columns


@dataclass(frozen=True)
class _Ctes:
    """The CTEs that can be seen from a place, by name in lower case: its name in FROM, columns."""

    known: Mapping[str, tuple[str, Columns]] = field(default_factory=dict)


# Returns what stands for a table of the lake in DuckDB's FROM, and its columns.
Tables = Callable[[exp.Table], tuple[str, Columns]]


def translate_query(query: exp.Expr, tables: Tables) -> Translated:
    """Translate a query.

    Raises:
        NotPlainError: a part of it is not known to mean the same in both engines.
    """
    translated = _query(query, tables, _Ctes(), None)
    for name, kind in translated.columns:
        if arrow_type(kind) is None:
            raise NotPlainError(f"the type {kind.name} of the column {name}")
    return translated


@dataclass(frozen=True)
class SelectScope:
    """What names mean inside one SELECT.

    Args:
        outer: the scope around a subquery, whose columns it may name.
        aliases: the columns of the result; of use in GROUP BY, HAVING and ORDER BY only.
        first: what a name means that is a column of a table and one of the result; None: refuse.
    """

    tables: Tables
    ctes: _Ctes
    relations: tuple[Relation, ...]
    outer: SelectScope | None = None
    aliases: Mapping[str, Typed] = field(default_factory=dict)
    first: Literal["tables", "result"] | None = None

    def translate(self, node: exp.Expr) -> Typed:
        entry = _NODES.get(type(node))
        if entry is None:
            raise NotPlainError(_described(node))
        handler, known = entry
        require_only(node, *known)
        return handler(node, self)

    def subquery(self, query: exp.Expr) -> tuple[str, Columns]:
        if isinstance(query, exp.Subquery):
            require_only(query, "this")
            query = query.this
        translated = _query(query, self.tables, self.ctes, self)
        return f"({translated.sql})", translated.columns

    def column(self, parts: tuple[str, ...]) -> Typed:
        alias = self.aliases.get(parts[0].lower()) if len(parts) == 1 else None
        if alias and self.first == "result":
            return alias
        column = self._column_of_relations(parts)
        if column:
            if alias and alias.sql != column.sql and self.first != "tables":
                raise NotPlainError(f"{parts[0]}, which is a column and an alias")
            return column
        if alias:
            return alias
        if self.outer:
            return self.outer.column(parts)
        raise NotPlainError(f"the name {'.'.join(parts)}, which is no column here")

    def _column_of_relations(self, parts: tuple[str, ...]) -> Typed | None:
        """Resolve as Spark does: a relation's column first, then a field of a struct."""
        if len(parts) > 1:
            named = [one for one in self.relations if one.name.lower() == parts[0].lower()]
            if len(named) > 1:
                raise NotPlainError(f"two relations called {parts[0]}")
            if named:
                if column := _find(named[0], parts[1]):
                    return _with_fields(column, parts[2:])
                return None
        columns = [column for one in self.relations if (column := _find(one, parts[0]))]
        if len(columns) > 1:
            raise NotPlainError(f"the name {parts[0]}, which two relations have")
        return _with_fields(columns[0], parts[1:]) if columns else None


def _find(relation: Relation, name: str) -> Typed | None:
    matching = [column for column in relation.columns if column[0].lower() == name.lower()]
    if len(matching) > 1:
        raise NotPlainError(f"two columns called {name}")
    if not matching:
        return None
    column, kind = matching[0]
    return Typed(f"{quote_name(relation.name)}.{quote_name(column)}", kind, name)


def _with_fields(column: Typed, fields: tuple[str, ...]) -> Typed:
    for name in fields:
        column = field_of(column, name)
    return column


def _described(node: exp.Expr) -> str:
    if isinstance(node, exp.Anonymous):
        return f"the function {node.name}"
    if isinstance(node, exp.Func):
        return f"the function {node.sql_name().lower()}"
    return node.key


def _query(query: exp.Expr, tables: Tables, ctes: _Ctes, outer: SelectScope | None) -> Translated:
    if isinstance(query, exp.Subquery):
        require_only(query, "this")
        return _query(query.this, tables, ctes, outer)
    with_, ctes = _with(query, tables, ctes)
    if isinstance(query, exp.Select):
        translated = _select(query, tables, ctes, outer)
    elif type(query) in _SET_OPERATIONS:
        translated = _set_operation(query, tables, ctes, outer)
    else:
        raise NotPlainError(_described(query))
    return Translated(with_ + translated.sql, translated.columns)


def _with(query: exp.Expr, tables: Tables, ctes: _Ctes) -> tuple[str, _Ctes]:
    """Translate the WITH of a query; each CTE sees those before it."""
    clause = query.args.get("with_")
    if clause is None:
        return "", ctes
    require_only(clause, "expressions")
    written = []
    for cte in clause.expressions:
        require_only(cte, "this", "alias")
        require_only(cte.args["alias"], "this")
        translated = _query(cte.this, tables, ctes, None)
        # A CTE may have the name of one outside; DuckDB's name is unlike both, and no table's.
        name = quote_name(f"cte {len(ctes.known)} {cte.alias}")
        written.append(f"{name} AS ({translated.sql})")
        ctes = _Ctes({**ctes.known, cte.alias.lower(): (name, translated.columns)})
    return f"WITH {', '.join(written)} ", ctes


def _select(select: Any, tables: Tables, ctes: _Ctes, outer: SelectScope | None) -> Translated:
    require_only(select, *_SELECT)
    from_sql, scope = _from(select, SelectScope(tables, ctes, (), outer))
    outputs = _outputs(select, scope)
    parts = [_distinct(select, outputs), ", ".join(_aliased(value, n) for n, value in outputs)]
    sql = " ".join(filter(None, ["SELECT", *parts]))
    if from_sql:
        sql += f" FROM {from_sql}"
    if where := select.args.get("where"):
        sql += f" WHERE {condition(where.this, scope).sql}"
    by_alias = _with_aliases(scope, outputs)
    if group := select.args.get("group"):
        sql += f" GROUP BY {', '.join(group_keys(group, select, outputs, by_alias))}"
    if having := select.args.get("having"):
        sql += f" HAVING {condition(having.this, by_alias).sql}"
    # Of rows that were made one, DuckDB orders by any of them what Spark refuses to order.
    sql += order_and_limit(select, outputs, None if select.args.get("distinct") else by_alias)
    return Translated(sql, tuple((name, value.type) for name, value in outputs))


def _aliased(value: Typed, name: str) -> str:
    return f"{value.sql} AS {quote_name(name)}"


def _distinct(select: Any, outputs: Outputs) -> str:
    distinct = select.args.get("distinct")
    if not distinct:
        return ""
    require_only(distinct)
    require_groupable(value.type for _, value in outputs)
    return "DISTINCT"


def _with_aliases(scope: SelectScope, outputs: Outputs) -> SelectScope:
    names = [name.lower() for name, _ in outputs]
    aliases = {name.lower(): value for name, value in outputs if names.count(name.lower()) == 1}
    return replace(scope, aliases=aliases)


def _outputs(select: Any, scope: SelectScope) -> Outputs:
    """Return the columns of the result, by the names that Spark gives them."""
    outputs: Outputs = []
    for node in select.expressions:
        if isinstance(node, exp.Star):
            require_only(node)
            outputs += _star(scope.relations)
        elif isinstance(node, exp.Column) and isinstance(node.this, exp.Star):
            require_only(node.this)
            require_only(node, "this", "table")
            named = [r for r in scope.relations if r.name.lower() == node.table.lower()]
            if len(named) != 1:
                raise NotPlainError(f"{node.table}.*")
            outputs += _star(tuple(named))
        else:
            outputs.append(_output(node, scope))
    if not outputs:
        raise NotPlainError("a SELECT of nothing")
    return outputs


def _star(relations: tuple[Relation, ...]) -> Outputs:
    if not relations:
        raise NotPlainError("a star without FROM")
    outputs = []
    for relation in relations:
        for name, kind in relation.columns:
            sql = f"{quote_name(relation.name)}.{quote_name(name)}"
            outputs.append((name, Typed(sql, kind, name)))
    return outputs


def _output(node: Any, scope: SelectScope) -> tuple[str, Typed]:
    if isinstance(node, exp.Alias):
        require_only(node, "this", "alias")
        if not isinstance(node.args["alias"], exp.Identifier):
            raise NotPlainError("such an alias")
        return node.alias, scope.translate(node.this)
    value = scope.translate(node)
    name = value.name
    if isinstance(node, exp.Cast) and isinstance(node.this, exp.Column):
        name = node.this.name
    elif isinstance(node, (exp.Column, exp.Dot)):
        name = node.name
    if name is None:
        raise NotPlainError(f"a column without an alias ({_described(node)})")
    return name, value


def _from(select: Any, empty: SelectScope) -> tuple[str, SelectScope]:
    source = select.args.get("from_")
    if source is None:
        return "", empty
    require_only(source, "this")
    relations: list[Relation] = []
    sql = _relation(source.this, empty, relations)
    for join in select.args.get("joins") or []:
        require_only(join, "this", "side", "kind", "on")
        word = _JOINS.get(((join.side or "").upper(), (join.kind or "").upper()))
        on = join.args.get("on")
        if word is None or (on is None) == (word != "CROSS JOIN"):
            raise NotPlainError(f"a join such as {join.side} {join.kind}".strip())
        sql += f" {word} {_relation(join.this, empty, relations)}"
        if on is not None:
            scope = _scope_of(empty, relations)
            sql += f" ON {condition(on, scope).sql}"
    names = [relation.name.lower() for relation in relations]
    if len(set(names)) != len(names):
        raise NotPlainError("two relations with one name")
    return sql, _scope_of(empty, relations)


def _scope_of(empty: SelectScope, relations: list[Relation]) -> SelectScope:
    return replace(empty, relations=tuple(relations))


def _relation(node: Any, scope: SelectScope, relations: list[Relation]) -> str:
    """Translate one relation of FROM, and add it to the list."""
    if isinstance(node, exp.Table):
        require_only(node, "this", "db", "catalog", "alias")
        source, columns = _table(node, scope)
        sql = source
        name = node.alias or node.parts[-1].name
    elif isinstance(node, exp.Subquery) and node.alias:
        require_only(node, "this", "alias")
        translated = _query(node.this, scope.tables, scope.ctes, None)
        sql, columns, name = f"({translated.sql})", translated.columns, node.alias
    else:
        raise NotPlainError(f"{_described(node)} in FROM")
    if alias := node.args.get("alias"):
        require_only(alias, "this")
        if not isinstance(alias.this, exp.Identifier):
            raise NotPlainError("such an alias")
    _require_different_names(columns)
    relations.append(Relation(name, columns))
    return f"{sql} AS {quote_name(name)}"


def _table(node: Any, scope: SelectScope) -> tuple[str, Columns]:
    if not isinstance(node.this, (exp.Identifier, exp.Dot)):
        raise NotPlainError(f"{_described(node.this)} in FROM")
    if node.args.get("db"):
        return scope.tables(node)
    if cte := scope.ctes.known.get(node.name.lower()):
        return cte
    raise NotPlainError(f"{node.name}, which may be a temporary view of Spark")


def _require_different_names(columns: Columns) -> None:
    names = [name.lower() for name, _ in columns]
    if len(set(names)) != len(names):
        raise NotPlainError("two columns with one name in a relation")


def _set_operation(
    query: Any, tables: Tables, ctes: _Ctes, outer: SelectScope | None
) -> Translated:
    require_only(query, "this", "expression", "distinct", "order", "limit", "offset", "with_")
    left, right = (_query(side, tables, ctes, outer) for side in (query.this, query.expression))
    kinds = [kind for _, kind in left.columns]
    if kinds != [kind for _, kind in right.columns]:
        raise NotPlainError("queries of several types as one")
    distinct = query.args.get("distinct")
    if distinct or not isinstance(query, exp.Union):
        require_groupable(kinds)
    word = _SET_OPERATIONS[type(query)] + ("" if distinct else " ALL")
    outputs = [(name, Typed(quote_name(name), kind, name)) for name, kind in left.columns]
    sql = f"({left.sql}) {word} ({right.sql})" + order_and_limit(query, outputs, None)
    return Translated(sql, left.columns)
