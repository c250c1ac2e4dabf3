"""The queries that a statement names in WITH, and where each name hides a table of that name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sqlglot.dialects.spark import Spark
from sqlglot.tokenizer_core import Token, TokenType

_NAMES = Spark.Parser.ID_VAR_TOKENS


def named_queries(tokens: Sequence[Token]) -> Iterator[tuple[str, range]]:
    """Yield the names of CTEs, each with the tokens among which it hides a table of that name.

    These are the tokens after its own query, up to the end of the query that its WITH belongs to.
    """
    opened: list[int] = []
    closed: dict[int, int] = {}
    for at, token in enumerate(tokens):
        if token.token_type is TokenType.L_PAREN:
            opened.append(at)
        elif token.token_type is TokenType.R_PAREN and opened:
            closed[opened.pop()] = at
    for at, token in enumerate(tokens):
        if token.token_type is not TokenType.WITH:
            continue
        around = [end for start, end in closed.items() if start < at < end]
        scope_end = min(around, default=len(tokens))
        yield from _queries_of_with(tokens, at + 1, closed, scope_end)


def _queries_of_with(
    tokens: Sequence[Token], at: int, closed: Mapping[int, int], scope_end: int
) -> Iterator[tuple[str, range]]:
    """Yield the CTEs of one WITH: `name [(columns)] AS (query), …`."""
    is_recursive = at < len(tokens) and tokens[at].token_type is TokenType.RECURSIVE
    at += is_recursive
    while at < len(tokens) and tokens[at].token_type in _NAMES:
        name = tokens[at].text.lower()
        at += 1
        if at in closed:
            at = closed[at] + 1
        if at < len(tokens) and tokens[at].token_type is TokenType.ALIAS:
            at += 1
        if at not in closed:
            return
        yield name, range(at if is_recursive else closed[at], scope_end)
        at = closed[at] + 1
        if at >= len(tokens) or tokens[at].token_type is not TokenType.COMMA:
            return
        at += 1
