"""Names that were misspelt."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

ALIKE = 0.5


def nearest(name: str, known: Iterable[str], alike: float = ALIKE) -> str | None:
    """Return the known name that is most like `name`; None when none is.

    Args:
        alike: how much alike the two must be, from 0 to 1.
    """
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=alike)
    return close[0] if close else None
