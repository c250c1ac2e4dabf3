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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Union

from sqlglot.dialects.spark import Spark
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType

from neve.errors import SqlError
from neve.lake.identifier import Identifier

Kind = Literal["as of", "since", "between"]

_NAMES = Spark.Parser.ID_VAR_TOKENS
_ALIASES = Spark.Parser.TABLE_ALIAS_TOKENS
_LITERALS = (TokenType.NUMBER, TokenType.STRING, TokenType.RAW_STRING)
_STRINGS = (TokenType.STRING, TokenType.RAW_STRING)
# What a table stands after. A comma separates expressions, too, but an expression followed by
# VERSION SINCE or VERSION BETWEEN is a syntax error.
_BEFORE_A_TABLE = {
    TokenType.FROM,
    TokenType.JOIN,
    TokenType.COMMA,
    TokenType.USING,
    TokenType.TABLE,
    TokenType.L_PAREN,
}


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
        has_alias: the statement gives the table an alias of its own.
    """

    kind: Kind
    start: int
    end: int
    table: Identifier
    points: tuple[Point, ...]
    options: Mapping[str, str]
    has_alias: bool = True


def find_clauses(statement: str) -> list[VersionClause]:
    """Return the version clauses of a statement, in their order.

    Raises:
        SqlError: a clause is not complete.
    """
    # Almost every statement ends here, without a tokenizer.
    if "version" not in statement.casefold():
        return []
    try:
        tokens = Spark().tokenize(statement)
    except TokenError:
        # Spark says what is wrong with it, and where.
        return []
    clauses = []
    at = 0
    while at < len(tokens):
        if table := _table_before_clause(tokens, at):
            reader = _ClauseReader(statement, tokens, at)
            clauses.append(reader.read(table))
            at = reader.at
        else:
            at += 1
    return [clause for clause in clauses if clause is not None]


def splice(statement: str, replacements: Sequence[tuple[VersionClause, str]]) -> str:
    """Put a text in the place of each clause; what is around them stays byte for byte."""
    parts = []
    at = 0
    for clause, text in replacements:
        parts += [statement[at : clause.start], text]
        at = clause.end
    return "".join([*parts, statement[at:]])


def _table_before_clause(tokens: Sequence[Token], at: int) -> list[Token]:
    """Return the tokens of the table's name, if a clause begins at a token; none otherwise."""
    if not _is_word(tokens[at], "VERSION") or not _begins_clause(tokens, at):
        return []
    last = at - 1
    if last > 0 and tokens[last].token_type is TokenType.FOR:
        last -= 1
    first = last
    while (
        first >= 2
        and tokens[first].token_type in _NAMES
        and tokens[first - 1].token_type is TokenType.DOT
    ):
        first -= 2
    if first < 1 or tokens[first].token_type not in _NAMES:
        return []
    if tokens[first - 1].token_type not in _BEFORE_A_TABLE:
        return []
    return list(tokens[first : last + 1 : 2])


def _begins_clause(tokens: Sequence[Token], at: int) -> bool:
    following = tokens[at + 1 : at + 3]
    if not following:
        return False
    if _is_word(following[0], "SINCE") or following[0].token_type is TokenType.BETWEEN:
        return True
    return (
        len(following) == 2
        and following[0].token_type is TokenType.ALIAS
        and _is_word(following[1], "OF")
    )


def _is_word(token: Token, word: str) -> bool:
    return token.token_type is TokenType.VAR and token.text.upper() == word


class _ClauseReader:
    """Reads one clause; `at` is the token after it."""

    def __init__(self, statement: str, tokens: Sequence[Token], at: int) -> None:
        self.statement = statement
        self.tokens = tokens
        self.at = at

    def read(self, table: list[Token]) -> VersionClause | None:
        word = self.tokens[self.at + 1]
        name = tuple(token.text for token in table)
        if word.token_type is TokenType.ALIAS:
            self.at += 3
            start = self._start()
            point = self._point("VERSION AS OF")
            return VersionClause("as of", start, self._end(), name, (point,), {})
        self.at += 2
        kind: Kind = "since" if word.token_type is TokenType.VAR else "between"
        points = [self._point(f"VERSION {kind.upper()}")]
        if kind == "between":
            self._take(TokenType.AND, "VERSION BETWEEN a needs AND b after it")
            points.append(self._point("VERSION BETWEEN a AND"))
        options = self._options()
        end = self._end()
        following = self.tokens[self.at].token_type if self.at < len(self.tokens) else None
        has_alias = following is TokenType.ALIAS or following in _ALIASES
        return VersionClause(kind, table[0].start, end, name, tuple(points), options, has_alias)

    def _point(self, after: str) -> Point:
        wanted = f"{after} needs a snapshot id, a quoted tag, branch or time, or a parameter"
        token = self._next(wanted)
        if token.token_type is TokenType.PLACEHOLDER:
            marks = [one for one in self.tokens if one.token_type is TokenType.PLACEHOLDER]
            return Parameter(marks.index(token))
        if token.token_type is TokenType.COLON:
            return Parameter(self._next(wanted).text)
        if token.token_type not in _LITERALS:
            raise self._error(wanted, token)
        if token.token_type in _STRINGS:
            return token.text
        # 12L: sqlglot makes a cast of the suffix.
        if self._peek() is TokenType.DCOLON and self.tokens[self.at].start == token.start:
            self.at += 2
        if not token.text.isdecimal():
            raise self._error(wanted, token)
        return int(token.text)

    def _options(self) -> dict[str, str]:
        """Read `WITH (name = 'value', …)`, if it is there."""
        if self._peek() is not TokenType.WITH:
            return {}
        form = "WITH is written WITH (mode = 'net', keys = 'id')"
        self.at += 1
        self._take(TokenType.L_PAREN, form)
        options: dict[str, str] = {}
        while True:
            name = self._next(form)
            self._take(TokenType.EQ, form)
            value = self._next(form)
            if value.token_type not in _STRINGS and value.token_type not in _NAMES:
                raise self._error(form, value)
            options[name.text.lower()] = value.text
            closing = self._next(form)
            if closing.token_type is TokenType.R_PAREN:
                return options
            if closing.token_type is not TokenType.COMMA:
                raise self._error(form, closing)

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
        return SqlError(f"{message}, not {token.text} (line {token.line}, column {token.col})")
