"""What becomes of a key's newest event: the one rule of every merge.

It is written once, over boolean operands. The scan gives it Spark's Columns, the index gives it
NumPy's arrays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from pyspark.sql import Column

# A TRUNCATE of a greater sequence has ended the event: it changes nothing.
TRUNCATED_AWAY = "truncated away"
# The event changes nothing: something newer is known of its key.
LATE = "late"
# It has the sequence of the key's row: what the row came from decides which of them counts.
TIE = "tie"
# It has the sequence of the key's row, and changes nothing.
REPEAT = "repeat"
# The key gets the event's row.
UPSERT = "upsert"
# The key's row is deleted, and a tombstone is left.
REMOVE = "remove"
# There is no row to delete; a tombstone is left.
ABSENT = "absent"

Condition = TypeVar("Condition", "Column", "npt.NDArray[np.bool_]")


def dispositions(
    *,
    is_delete: Condition,
    has_row: Condition,
    is_older: Condition,
    is_equal: Condition,
    is_truncated: Condition,
) -> list[tuple[str, Condition]]:
    """Return what becomes of events with the condition of each; the first that holds counts.

    UPSERT is what is left. No operand may be NULL.

    Args:
        has_row: the mirror has a row of the key that no TRUNCATE removes.
        is_older: the event's sequence is less than the known one, which is the greater of the
            row's and the tombstone's. A mirror that was rolled back may have a row that is older
            than the tombstone of its key: the delete is merged again, and removes it.
        is_equal: it is equal to the known one.
        is_truncated: it is less than that of the newest TRUNCATE.
    """
    return [
        (TRUNCATED_AWAY, is_truncated),
        # At an equal sequence a delete wins over an upsert, and a second delete changes nothing.
        (LATE, is_older | (is_equal & ~has_row)),
        (TIE, is_equal & ~is_delete),
        (REMOVE, is_delete & has_row),
        (ABSENT, is_delete),
    ]
