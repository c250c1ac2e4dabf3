"""What stops a statement from being a plain read."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlglot import exp


class NotPlainError(Exception):
    """The statement has a part that is not known to mean the same in both engines."""


def require_only(node: exp.Expr, *known: str) -> None:
    """Refuse a node that says more than we translate: the parser knows more than this list."""
    for key, value in node.args.items():
        if value and key not in known:
            raise NotPlainError(f"{node.key} with {key.strip('_')}")
