"""Find version clauses in SQL. Everything else in a statement stays as it was written.

    t VERSION AS OF 'time'
    t VERSION SINCE a [WITH (mode = 'net', keys = 'id')]
    t VERSION BETWEEN a AND b [WITH (…)]

Spark itself knows `VERSION AS OF` with a snapshot id or a ref, and `TIMESTAMP AS OF`. They are left
to Spark; only a time after `VERSION AS OF` is resolved here.

The tokenizer of sqlglot tells words from strings, comments and quoted identifiers. No parser is
used: a round trip through one changes other people's SQL.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Union

from sqlglot.dialects.spark import Spark
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType

from neve.errors import SqlError
from neve.lake.identifier import Identifier, quote_identifier
from neve.versions.arguments import MOST_DIGITS
from neve.versions.clause_words import may_have_clause
from neve.versions.named_queries import named_queries

Kind = Literal["as of", "since", "between"]
Place = Literal["relation", "named source", "name"]

# `count(ALL version BETWEEN 1 AND 2)` and `CASE version BETWEEN 1 AND 2 WHEN …` have no table.
_NAMES = Spark.Parser.ID_VAR_TOKENS - {TokenType.ALL, TokenType.CASE}
_STRINGS = (TokenType.STRING, TokenType.RAW_STRING)
_LITERALS = (TokenType.NUMBER, *_STRINGS)
# What a table stands after. A comma separates expressions, too, but an expression followed by
# VERSION SINCE or VERSION BETWEEN is a syntax error.
_PLACES: Mapping[TokenType, Place] = {
    TokenType.FROM: "relation",
    TokenType.JOIN: "relation",
    TokenType.COMMA: "relation",
    TokenType.L_PAREN: "relation",
    # MERGE INTO … USING t
    TokenType.USING: "named source",
    # TABLE t, which is short for SELECT * FROM t
    TokenType.TABLE: "name",
}
# What `TABLE t` stands after where it is a query. After other words (DROP, ALTER, INSERT INTO) it
# names what a command changes.
_BEFORE_TABLE_QUERY = {
    TokenType.ALIAS,
    TokenType.ALL,
    TokenType.COMMA,
    TokenType.COMMAND,
    TokenType.DISTINCT,
    TokenType.EXCEPT,
    TokenType.INTERSECT,
    TokenType.L_PAREN,
    TokenType.R_PAREN,
    TokenType.UNION,
}

_PLACE = re.compile(r"\bline (?P<line>\d+),? pos (?P<column>\d+)\b")


class _Tokens(Spark):
    """Spark SQL without sqlglot's commands: it takes what follows EXPLAIN for one string."""

    class Tokenizer(Spark.Tokenizer):
        COMMANDS: ClassVar[set[TokenType]] = set()


@dataclass(frozen=True)
class Parameter:
    """A marker in a statement: `:name`, or the n-th `?`, counted from 0."""

    key: Union[str, int]  # noqa: UP007 - a type at run time on Python 3.10 too


Point = Union[int, str, Parameter]  # noqa: UP007 - as above
"""A snapshot id, a quoted ref or time, or a parameter that stands for one of them."""


@dataclass(frozen=True)
class VersionClause:
    """A version clause and the table before it.

    Args:
        start, end: the part of the statement that is replaced. It is the table with its clause for
            a range, and the literal alone for `VERSION AS OF`.
        points: one version for `AS OF` and `SINCE`, two for `BETWEEN`.
        options: what `WITH (…)` says.
        place: where the table stands, which decides how a view is written in its place.
        is_cte: the name is not a table's but that of a query in the statement's WITH.
    """

    kind: Kind
    start: int
    end: int
    table: Identifier
    points: tuple[Point, ...]
    options: Mapping[str, Union[str, Parameter]]  # noqa: UP007 - as above
    place: Place = "relation"
    is_cte: bool = False

    def written(self, view: str) -> str:
        """Write a view so that it can stand in the clause's place, under the table's name.

        An alias that the statement gives comes after it, perhaps after a TABLESAMPLE.
        """
        name = quote_identifier((view,))
        named = f"{name} AS {quote_identifier(self.table[-1:])}"
        return {"relation": f"({named})", "named source": named, "name": name}[self.place]


def find_clauses(statement: str) -> list[VersionClause]:
    """Return the version clauses of a statement, in their order.

    Raises:
        SqlError: a clause is not complete.
    """
    if not may_have_clause(statement):
        return []
    tokens = tokenize(statement)
    queries = list(named_queries(tokens))
    clauses = []
    at = 0
    while at < len(tokens):
        if _begins_clause(tokens, at) and (table := _table_before(tokens, at, queries)):
            reader = _ClauseReader(statement, tokens, at)
            clauses.append(reader.read(table))
            at = reader.at
        else:
            _require_name(statement, tokens, at)
            at += 1
    return clauses


def _require_name(statement: str, tokens: Sequence[Token], at: int) -> None:
    """Refuse `IDENTIFIER('t') VERSION SINCE …`, which Spark would not understand."""
    words = [token.text.upper() for token in tokens[max(0, at - 4) : at]]
    if words[:2] == ["IDENTIFIER", "("] and words[-1:] == [")"] and _begins_range(tokens, at):
        place = _place(statement, tokens[at].start)
        raise SqlError(
            f"{tokens[at].text} {tokens[at + 1].text} stands after a table's name, not after "
            f"IDENTIFIER ({place})",
            hint="write the name itself, or use lake.changes(name, …)",
        )


def tokenize(statement: str) -> list[Token]:
    """Return the tokens of a statement; none of one that does not end."""
    try:
        return list(_Tokens().tokenize(statement))
    except TokenError:
        # Spark says what is wrong with it, and where.
        return []


def splice(statement: str, replacements: Sequence[tuple[VersionClause, str]]) -> str:
    """Put a text in the place of each clause; what is around them stays byte for byte."""
    parts = []
    at = 0
    for clause, text in replacements:
        parts += [statement[at : clause.start], text]
        at = clause.end
    return "".join([*parts, statement[at:]])


def place_in_original(
    statement: str, replacements: Sequence[tuple[VersionClause, str]], message: str
) -> str:
    """Change the place that an error names in a spliced statement to that in the original."""
    place = _PLACE.search(message)
    if place is None or not replacements:
        return message
    lines = splice(statement, replacements).split("\n")
    line, column = int(place["line"]), int(place["column"])
    offset = sum(len(text) + 1 for text in lines[: line - 1]) + column
    grown = 0
    for clause, text in replacements:
        if clause.start + grown >= offset:
            break
        # A place inside the text is that of the clause.
        offset = max(offset, clause.start + grown + len(text))
        grown += len(text) - (clause.end - clause.start)
    where = _place(statement, offset - grown)
    return message[: place.start()] + where + message[place.end() :]


def _place(statement: str, offset: int) -> str:
    """Name a place as Spark does."""
    lines = statement[:offset].split("\n")
    return f"line {len(lines)}, pos {len(lines[-1])}"


def tables_at_times(statement: str) -> list[Identifier]:
    """Return the tables that `TIMESTAMP AS OF` stands after."""
    tokens = tokenize(statement)
    tables = [_table_before(tokens, at) for at in range(len(tokens)) if _begins_time(tokens, at)]
    return [_name(tokens, table) for table in tables if table]


@dataclass(frozen=True)
class _Table:
    """The tokens `first` to `last` are a table's name, and stand where one is read."""

    first: int
    last: int
    place: Place
    is_cte: bool


def _table_before(
    tokens: Sequence[Token], at: int, queries: Sequence[tuple[str, range]] = ()
) -> _Table | None:
    """Return the table whose name ends before a token, or before the FOR that stands there.

    Args:
        queries: the names of CTEs, and the tokens among which each hides a table.
    """
    last = at - 1
    if last > 0 and tokens[last].token_type is TokenType.FOR:
        last -= 1
    first = last
    while first >= 2 and tokens[first - 1].token_type is TokenType.DOT and _is_part(tokens[first]):
        first -= 2
    if first < 1 or tokens[first].token_type not in _NAMES:
        return None
    place = _PLACES.get(tokens[first - 1].token_type)
    before = tokens[first - 2].token_type if first > 1 else None
    if place is None or before is TokenType.DELETE:
        return None
    if place == "name" and not _begins_table_query(tokens, first - 1):
        return None
    is_cte = first == last and any(
        tokens[first].text.lower() == name and first in visible for name, visible in queries
    )
    return _Table(first, last, place, is_cte)


def _begins_table_query(tokens: Sequence[Token], at: int) -> bool:
    """Tell whether TABLE stands where a query does, and names nothing that a command changes."""
    if at == 0 or tokens[at - 1].token_type in _BEFORE_TABLE_QUERY:
        return True
    # INSERT INTO x TABLE t, INSERT INTO x BY NAME TABLE t
    last = at - 1
    if last > 1 and [token.text.upper() for token in tokens[last - 1 : at]] == ["BY", "NAME"]:
        last -= 2
    while last >= 2 and tokens[last - 1].token_type is TokenType.DOT:
        last -= 2
    before = [token.text.upper() for token in tokens[max(0, last - 2) : last]]
    words = before[:-1] if before[-1:] == ["TABLE"] else before
    return words[-1:] in (["INTO"], ["OVERWRITE"])


def _is_part(token: Token) -> bool:
    """Tell whether a token after a dot is part of a name; there any word may be one."""
    return token.token_type in _NAMES or token.text.replace("_", "a").isalnum()


def _begins_clause(tokens: Sequence[Token], at: int) -> bool:
    following = tokens[at + 1 : at + 3]
    if not following or not _is_word(tokens[at], "VERSION", "SYSTEM_VERSION"):
        return False
    if len(following) == 2 and following[0].token_type is TokenType.ALIAS:
        return _is_word(following[1], "OF")
    return _begins_range(tokens, at)


def _begins_range(tokens: Sequence[Token], at: int) -> bool:
    if at + 1 >= len(tokens) or not _is_word(tokens[at], "VERSION"):
        return False
    following = tokens[at + 1]
    return _is_word(following, "SINCE") or following.token_type is TokenType.BETWEEN


def _begins_time(tokens: Sequence[Token], at: int) -> bool:
    word = tokens[at].text.upper() in ("TIMESTAMP", "SYSTEM_TIME")
    following = [token.text.upper() for token in tokens[at + 1 : at + 3]]
    return word and following == ["AS", "OF"]


def _name(tokens: Sequence[Token], table: _Table) -> Identifier:
    return tuple(token.text for token in tokens[table.first : table.last + 1 : 2])


def _is_word(token: Token, *words: str) -> bool:
    return token.token_type is TokenType.VAR and token.text.upper() in words


class _ClauseReader:
    """Reads one clause; `at` is the token after it."""

    def __init__(self, statement: str, tokens: Sequence[Token], at: int) -> None:
        self.statement = statement
        self.tokens = tokens
        self.at = at

    def read(self, table: _Table) -> VersionClause:
        word = self.tokens[self.at + 1]
        name = _name(self.tokens, table)
        if word.token_type is TokenType.ALIAS:
            self.at += 3
            start = self._start()
            point = self._point("VERSION AS OF")
            end = self._end()
            return VersionClause("as of", start, end, name, (point,), {}, is_cte=table.is_cte)
        self.at += 2
        kind: Kind = "since" if word.token_type is TokenType.VAR else "between"
        points = [self._point(f"VERSION {kind.upper()}")]
        if kind == "between":
            self._take(TokenType.AND, "VERSION BETWEEN a needs AND b after it")
            points.append(self._point("VERSION BETWEEN a AND"))
        options = self._options()
        has_alias = table.place == "named source" and self._peek() is not TokenType.ON
        place = "name" if has_alias else table.place
        start, end = self.tokens[table.first].start, self._end()
        return VersionClause(kind, start, end, name, tuple(points), options, place, table.is_cte)

    def _point(self, after: str) -> Point:
        wanted = f"{after} needs a snapshot id, a quoted tag, branch or time, or a parameter"
        if parameter := self._parameter(wanted):
            return parameter
        token = self._next(wanted)
        if token.token_type not in _LITERALS:
            raise self._error(wanted, token)
        if token.token_type in _STRINGS:
            return token.text
        # 12L: sqlglot makes a cast of the suffix.
        if self._peek() is TokenType.DCOLON and self.tokens[self.at].start == token.start:
            self.at += 2
        if not token.text.isdecimal() or len(token.text) > MOST_DIGITS:
            raise self._error(wanted, token)
        return int(token.text)

    def _parameter(self, wanted: str) -> Parameter | None:
        """Read a parameter, if one is there."""
        if self._peek() is TokenType.PLACEHOLDER:
            before = self.tokens[: self.at]
            self.at += 1
            return Parameter(sum(each.token_type is TokenType.PLACEHOLDER for each in before))
        if self._peek() is TokenType.COLON:
            self.at += 1
            return Parameter(self._next(wanted).text)
        return None

    def _options(self) -> dict[str, str | Parameter]:
        """Read `WITH (name = 'value', …)`, if it is there."""
        if self._peek() is not TokenType.WITH:
            return {}
        form = "WITH is written WITH (mode = 'net', keys = 'id')"
        self.at += 1
        self._take(TokenType.L_PAREN, form)
        options: dict[str, str | Parameter] = {}
        while True:
            name = self._next(form)
            self._take(TokenType.EQ, form)
            value = self._parameter(form) or self._option(form)
            if name.text.lower() in options:
                raise self._error(f"{form}; each option stands there once", name)
            options[name.text.lower()] = value
            closing = self._next(form)
            if closing.token_type is TokenType.R_PAREN:
                return options
            if closing.token_type is not TokenType.COMMA:
                raise self._error(form, closing)

    def _option(self, form: str) -> str:
        value = self._next(form)
        if value.token_type not in _STRINGS and value.token_type not in _NAMES:
            raise self._error(form, value)
        return value.text

    def _peek(self) -> TokenType | None:
        return self.tokens[self.at].token_type if self.at < len(self.tokens) else None

    def _take(self, wanted: TokenType, message: str) -> None:
        token = self._next(message)
        if token.token_type is not wanted:
            raise self._error(message, token)

    def _next(self, message: str) -> Token:
        if self.at >= len(self.tokens):
            raise SqlError(f"{message}; the statement ends there")
        token = self.tokens[self.at]
        self.at += 1
        return token

    def _start(self) -> int:
        return self.tokens[self.at].start if self.at < len(self.tokens) else len(self.statement)

    def _end(self) -> int:
        return self.tokens[self.at - 1].end + 1

    def _error(self, message: str, token: Token) -> SqlError:
        place = _place(self.statement, token.start)
        return SqlError(f"{message}, not {token.text} ({place})")
