"""Lists of a metadata document that grow with each commit, compared with those of the one before.

A commit makes the next document of members of the last one (`metadata_updates.py`): they are the
same objects, and nobody changes them. A document that was read from a file or from a server has new
objects, so that nothing of an earlier one counts for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_
from typing import Any


def kept_members(before: Sequence[Any], now: Sequence[Any]) -> range:
    """Return the positions of those members of a list that the next one begins with.

    They are all from there to the end of the list. An empty range: the lists have to be compared
    member by member, or nothing is left.
    """
    first = next((n for n, each in enumerate(before) if now and each is now[0]), len(before))
    kept = before[first:]
    if len(kept) > len(now) or not all(map(is_, kept, now)):
        return range(0)
    return range(first, len(before))
