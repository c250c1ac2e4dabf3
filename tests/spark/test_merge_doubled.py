"""A key that another engine doubled in the mirror: its next event leaves one row, or none."""

from __future__ import annotations

from collections import defaultdict

import pytest

from neve.merge.strategy import Strategy
from tests.support.merging import Mirrored, event

FOREIGN = "INSERT INTO lake.{mirror} VALUES (1, 'theirs', 0, 1), (2, 'theirs', 0, 1), "
FOREIGN += "(3, 'theirs', 0, 1), (4, 'theirs', 0, 9), (5, 'theirs', 0, 9), (7, 'theirs', 0, 1)"


def rows_of(mirrored):
    found = defaultdict(list)
    for row in mirrored.table().scan().to_arrow().to_pylist():
        found[row["id"]].append((row["lsn"], row["name"]))
    return {key: sorted(rows) for key, rows in found.items()}


@pytest.mark.parametrize("strategy", [Strategy.INDEX, Strategy.SCAN, Strategy.MERGE])
def test_a_key_that_others_doubled_is_one_row_again(embedded_lake, strategy):
    mirrored = Mirrored(embedded_lake, strategy=strategy)
    mirrored.append(*(event("I", 1, key, "ours") for key in range(1, 9)))
    mirrored.merge()
    if strategy is Strategy.INDEX:
        # There is an index before they come, so that it has to notice them.
        mirrored.append(event("U", 2, 8, "indexed"))
        mirrored.merge()
    embedded_lake.sql(FOREIGN.format(mirror=mirrored.mirror))
    mirrored.append(
        event("U", 5, 1, "new"),
        event("D", 5, 2),
        event("U", 5, 4, "late, behind theirs"),
        event("U", 10, 5, "new"),
        event("U", 5, 6, "new"),
        event("I", 1, 7, "ours"),
    )
    mirrored.merge()
    found = rows_of(mirrored)
    # What no event speaks of stays as it is, and so does what an event repeats.
    assert found.pop(3) == [(1, "ours"), (1, "theirs")]
    assert found.pop(7) == [(1, "ours"), (1, "theirs")]
    assert found.pop(4) in ([(9, "theirs")], [(1, "ours"), (9, "theirs")])
    assert found.pop(8)[0][0] in (1, 2)
    assert found == {1: [(5, "new")], 5: [(10, "new")], 6: [(5, "new")]}
    # All of them are single after their next event.
    mirrored.append(*(event("U", 20, key, "last") for key in range(3, 9)), event("D", 20, 1))
    mirrored.merge()
    assert rows_of(mirrored) == {key: [(20, "last")] for key in range(3, 9)}
