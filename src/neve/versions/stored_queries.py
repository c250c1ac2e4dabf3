"""Statements that keep a query as text: Spark reads it again whenever what they made is used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot.tokenizer_core import Token, TokenType

_MADE = (TokenType.VIEW, TokenType.FUNCTION, TokenType.TABLE)


@dataclass(frozen=True)
class StoredQuery:
    """What a statement makes of its query.

    Args:
        name: the view that is made, in lower case.
        is_temporary: only this session knows it, and it ends with it.
    """

    name: str
    is_temporary: bool


def stored_query(tokens: Sequence[Token]) -> StoredQuery | None:
    """Return what a statement stores; None: its query is read once, now."""
    verb = tokens[0].text.upper() if tokens else ""
    if verb not in ("CREATE", "ALTER", "CACHE"):
        return None
    at = next((at for at, token in enumerate(tokens) if token.token_type in _MADE), None)
    if at is None or at + 1 == len(tokens):
        return None
    before = {token.text.upper() for token in tokens[:at]}
    # The rows of CREATE TABLE … AS are written now.
    if verb != "CACHE" and tokens[at].token_type is TokenType.TABLE:
        return None
    is_view = tokens[at].token_type is not TokenType.FUNCTION
    is_temporary = verb == "CACHE" or bool(before & {"TEMPORARY", "TEMP"} and is_view)
    is_local = verb != "ALTER" and "GLOBAL" not in before
    return StoredQuery(_name(tokens, at + 1), is_temporary and is_local)


def _name(tokens: Sequence[Token], at: int) -> str:
    """Return the name that stands at a token, behind IF NOT EXISTS, all its parts with dots."""
    if [token.text.upper() for token in tokens[at : at + 3]] == ["IF", "NOT", "EXISTS"]:
        at += 3
    parts = [tokens[at].text] if at < len(tokens) else []
    while at + 2 < len(tokens) and tokens[at + 1].token_type is TokenType.DOT:
        at += 2
        parts.append(tokens[at].text)
    return ".".join(parts).lower()
