"""Publish retained segments again, into a table that lacks them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neve.publish.batch import HELD_PREFIX
from neve.publish.contains import Contained, contained_in, overlaps, with_ranges
from neve.publish.publisher import Publisher
from neve.publish.ranges import decode_ranges, read_marks, write_marks

if TYPE_CHECKING:
    from neve.lake.staging import StagingTable
    from neve.publish.ranges import Ranges


def consumed_in(table: StagingTable) -> Contained:
    """Return the segments that a table has, or that a person decides on: their batch is held."""
    consumed = contained_in(table)
    for held in table.staged(HELD_PREFIX):
        consumed = with_ranges(consumed, decode_ranges(held.summary))
    return consumed


class ReplayPublisher(Publisher):
    """A `Publisher` whose batches lie below the table's marks.

    What the table contains decides instead of its marks, on fresh metadata in every attempt: of two
    replays at once, one wins. Marks are raised where they are lower, and never lowered.
    """

    def _is_consumed(self, ranges: Ranges) -> bool:
        return overlaps(consumed_in(self.table), ranges)

    def _marks_after(self, ranges: Ranges) -> dict[str, str]:
        marks = read_marks(self.table.properties)
        return write_marks({s: r for s, r in ranges.items() if r.last > marks.get(s, 0)})
