"""Writes that were acknowledged, and of which nobody knows whether they were committed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from neve.lake.identifier import Identifier

    # Reads the writes anew. Raises CorruptionError if one of their records is damaged.
    ReadUnconfirmed = Callable[[], Iterable["UnconfirmedWrite"]]


@dataclass(frozen=True)
class UnconfirmedWrite:
    """A direct write that was acknowledged, and whose commit nobody has confirmed.

    Args:
        base_sequence_number: the commit can only be among the snapshots with a greater one.
        paths: its data files, which may be in no snapshot.
    """

    table: Identifier
    table_uuid: str
    base_sequence_number: int
    paths: tuple[str, ...]
