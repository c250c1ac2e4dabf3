"""Tell statements without version clauses without a tokenizer."""

from __future__ import annotations

import re

# Between the words there are spaces and comments. A comment may hold anything.
_WORDS = re.compile(
    r"version(?:\s*(?:/\*|--)|\s+(?:since|between|as)(?!\w))",
    re.IGNORECASE,
)


def may_have_clause(statement: str) -> bool:
    """Say whether a statement may have a version clause; almost none has."""
    return _WORDS.search(statement) is not None
