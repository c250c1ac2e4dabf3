"""The books of one batch of one table, in records. Pure.

    records read = rows published or held + rows set aside + dead letters + duplicates

They are in the summary of the staged snapshot, so that whoever publishes it after a restart has
them, and in the ledger. A batch whose books do not add up is neither published nor retired.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from neve.errors import UnbalancedError
from neve.lake.staged_snapshot import COUNTS
from neve.publish.batch import batch_id_of

if TYPE_CHECKING:
    from neve.lake.staged_snapshot import StagedSnapshot


@dataclass(frozen=True)
class BatchCounts:
    """What became of the records that a batch of one table read."""

    # As counted on the wire, in the requests of the batch's ranges, before anything was decoded.
    read: int = 0
    # Those that no table can hold.
    dead_letters: int = 0
    # Those of requests that are copies of stored ones.
    duplicates: int = 0
    # Rows that audits kept out of the table.
    set_aside: int = 0

    def __add__(self, other: BatchCounts) -> BatchCounts:
        return BatchCounts(
            self.read + other.read,
            self.dead_letters + other.dead_letters,
            self.duplicates + other.duplicates,
            self.set_aside + other.set_aside,
        )

    def with_set_aside(self, rows: int) -> BatchCounts:
        return replace(self, set_aside=rows)

    def encode(self) -> dict[str, str]:
        """Return the entry of a snapshot's summary."""
        return {COUNTS: json.dumps(asdict(self))}

    @classmethod
    def decode(cls, summary: Mapping[str, str]) -> BatchCounts | None:
        """Read the entry of a snapshot's summary; None if it has none."""
        return cls(**json.loads(summary[COUNTS])) if COUNTS in summary else None

    def require_balance(self, table: str, batch_id: str, rows: int) -> None:
        """Compare with the rows that are to be published or held.

        Raises:
            UnbalancedError: records are lost, or were made up.
        """
        booked = rows + self.set_aside + self.dead_letters + self.duplicates
        if booked != self.read:
            raise UnbalancedError(
                f"{table}: the counts of batch {batch_id} do not add up: {self.read:,} records "
                f"were read, but {rows:,} rows + {self.set_aside:,} set aside + "
                f"{self.dead_letters:,} dead letters + {self.duplicates:,} duplicates are "
                f"{booked:,}",
                hint="nothing of it was published, and its segments are kept; if it is staged, "
                f"this reads them again: neve staged discard {table} {batch_id}",
            )


def require_balance(table: str, staged: StagedSnapshot) -> None:
    """Raise UnbalancedError if the counts of a staged batch do not add up."""
    if (counts := BatchCounts.decode(staged.summary)) is not None:
        counts.require_balance(table, batch_id_of(staged), added_records(staged))


def added_records(staged: StagedSnapshot) -> int:
    """Return how many rows a staged snapshot adds."""
    return int(staged.summary.get("added-records", 0))
