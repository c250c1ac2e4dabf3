"""What a table says of the snapshots that direct writes removed."""

import pytest

from neve.lake.metadata_json import MetadataJson
from neve.lake.snapshot_limit import REMOVED_APPENDS, removed_appends, with_removed


def metadata(text, *numbers):
    """Return a table with such a property; the id of a snapshot is ten times its number."""
    snapshots = [{"snapshot-id": 10 * number, "sequence-number": number} for number in numbers]
    return MetadataJson("", {"snapshots": snapshots, "properties": {REMOVED_APPENDS: text}})


@pytest.mark.parametrize(
    ("text", "removed", "expected"),
    [
        ("", [1, 2], "1-2"),
        ("1-2", [3], "1-3"),
        ("1-2", [4, 5], "1-2,4-5"),
        (",".join(f"{10 * n}-{10 * n}" for n in range(20)), [300], None),
    ],
)
def test_removed_numbers_are_added_to_the_ranges(text, removed, expected):
    table = metadata(text, *removed)
    result = with_removed(table, [10 * number for number in removed])
    if expected is None:
        # The oldest range goes: for its numbers nothing is claimed.
        expected = ",".join([*text.split(",")[1:], "300-300"])
    assert result == expected


@pytest.mark.parametrize("text", ["x", "3-", "-3", "1,2", "1-2;3-4"])
def test_what_is_no_range_claims_nothing(text):
    assert removed_appends(metadata(text)) == []
    assert removed_appends(metadata(f"{text},5-6")) == [range(5, 7)]
