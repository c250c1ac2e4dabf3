"""Where a key's row is now: what the events of a batch meet.

A locator is asked once for a batch. It adds to each key's newest event the sequence of the mirror's
row and of the key's tombstone, in a form in which they can be compared with each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from neve.merge import transforms as tr

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


class Locator(Protocol):
    """Finds rows."""

    @property
    def name(self) -> str: ...

    @property
    def partition_by(self) -> tuple[str, ...]:
        """Columns by which events are distributed, beside the keys."""

    def distributed(self, rows: DataFrame, shape: tr.Shape) -> DataFrame:
        """Bring events that are looked up together into one partition."""

    def located(self, reduced: DataFrame, shape: tr.Shape) -> DataFrame:
        """Add what each key has now: CURRENT and BURIED, ROW_FILE and ROW_POSITION."""

    def sequence(self, shape: tr.Shape) -> Column:
        """Return an event's sequence in the form in which CURRENT and BURIED are."""

    def barrier(self, barrier: tuple[str, ...] | None, shape: tr.Shape) -> Column | None:
        """Return a TRUNCATE's sequence in that form."""


class ScanLocator:
    """Joins the batch with the keys of the whole mirror and of all tombstones."""

    name = "scan"
    partition_by = ()

    def __init__(self, mirror: DataFrame | None, tombstones: DataFrame | None) -> None:
        self._mirror = mirror
        self._tombstones = tombstones

    def distributed(self, rows: DataFrame, shape: tr.Shape) -> DataFrame:  # noqa: ARG002 - the port
        return rows

    def located(self, reduced: DataFrame, shape: tr.Shape) -> DataFrame:
        return tr.located(reduced, self._mirror, self._tombstones, shape)

    def sequence(self, shape: tr.Shape) -> Column:
        return tr.sequence_of(shape)

    def barrier(self, barrier: tuple[str, ...] | None, shape: tr.Shape) -> Column | None:
        return tr.barrier_column(barrier, shape)
