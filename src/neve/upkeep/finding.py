"""One thing that makes a table slow or large, what it costs of the score, and what helps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from neve.upkeep.observed_table import ObservedTable


@dataclass(frozen=True)
class Finding:
    """One thing that makes a table slow or large.

    Args:
        name: a word that stays the same when the text is reworded.
        action: the command that helps, or the policy that allows it to; None: nothing has to be
            done, or only people can decide.
        effect: what is expected of it.
        penalty: points off the score.
    """

    name: str
    text: str
    penalty: int
    action: str | None = None
    effect: str | None = None


def maintain(observed: ObservedTable) -> str:
    """Return the command that maintains a table."""
    return f"neve maintain {observed.name}"


def allow(observed: ObservedTable, key: str) -> str:
    """Return the policy without which maintenance leaves a table as it is."""
    return f"allow it in neve.yaml: upkeep.tables: {{{observed.name}: {{{key}: true}}}}"


def points(most: int, *shares: float) -> int:
    """Return points for how bad something is, each share from 0 to 1, at least one point."""
    share = 1.0
    for each in shares:
        share *= min(1.0, max(0.0, each))
    return max(1, round(most * share))
